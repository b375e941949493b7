"""The cost curves that were measured, kept for the next start: by model and machine. A file of the state folder.

A curve that cannot be read or kept is measured again at the next start.
"""

import hashlib
import json
import logging
import os
import platform
from pathlib import Path
from typing import Any, Final

from appliance import __version__
from appliance.settings import EngineSettings
from runtimes.engine import CostCurve

FILE_NAME: Final = "curves.json"
MOST: Final = 64  # models and machines; the oldest goes
_CPUS: Final = Path("/proc/cpuinfo")
_GPUS: Final = Path("/proc/driver/nvidia/gpus")

log = logging.getLogger(__name__)


class Curves:
    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME

    def find(self, mark: str) -> CostCurve | None:
        return _curve(self._read().get(mark))

    def keep(self, mark: str, curve: CostCurve) -> None:
        known = self._read()
        if _curve(known.get(mark)) == curve:
            return
        known.pop(mark, None)
        known[mark] = {"decode": curve.decode, "prefill_row_s": curve.prefill_row_s}
        kept = dict(list(known.items())[-MOST:])
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            os.replace(new, self._path)  # noqa: PTH105 - at once: a start at the same time reads one or the other
        except OSError as error:
            log.warning("a cost curve could not be kept", extra={"fields": {"reason": str(error)}})

    def _read(self) -> dict[str, Any]:
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def mark_of(model: Path, settings: EngineSettings) -> str:
    """Changes with whatever changes what a step takes: the model's file, how it is run, the machine, our version."""
    try:
        file = model.stat()
        identity = [model.name, file.st_size, file.st_mtime_ns]
    except OSError:  # the worker will say what is wrong with the file
        identity = [model.name]
    run = [settings.slots, settings.threads, settings.gpu_layers]
    said = json.dumps([identity, run, _machine(), __version__])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _machine() -> list[object]:
    cpu = _first_value(_CPUS, "model name")
    gpus = sorted(_first_value(path / "information", "Model") for path in _GPUS.glob("*")) if _GPUS.is_dir() else []
    return [platform.machine(), cpu, os.cpu_count(), *gpus]


def _first_value(path: Path, name: str) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _curve(value: Any) -> CostCurve | None:
    try:
        decode = tuple((int(streams), float(seconds)) for streams, seconds in value["decode"])
        return CostCurve(decode, float(value["prefill_row_s"]))
    except (KeyError, TypeError, ValueError):
        return None
