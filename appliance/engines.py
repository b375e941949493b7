"""The models this daemon serves, by the names that clients use. Knows no HTTP."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.admission_settings import SloSettings
from appliance.curves import Curves, mark_of
from appliance.errors import InvalidRequest, ModelNotFound
from appliance.settings import EngineSettings
from runtimes.engine import CostCurve
from runtimes.supervisor import Limits, Supervisor
from runtimes.worker.messages import Load

LOCAL_ALIASES = ("auto", "local")
FRONTIER_ALIAS = "frontier"


@dataclass(frozen=True, slots=True)
class ServedModel:
    name: str
    path: Path
    created: int  # Unix time, seconds


class Engines:
    def __init__(
        self,
        models: Iterable[ServedModel],
        settings: EngineSettings,
        slo: SloSettings,
        curves: Curves,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.models = tuple(models)
        self._curves = curves
        self._marks = {model.name: mark_of(model.path, settings) for model in self.models}
        limits = Limits(
            max_in_flight=settings.slots + settings.max_waiting,
            hang_timeout_s=settings.hang_timeout_s,
            load_timeout_s=settings.load_timeout_s,
        )
        self.supervisors = {
            model.name: Supervisor(
                _load(model.path, settings, slo, curves.find(self._marks[model.name])), limits, environ
            )
            for model in self.models
        }

    def start(self) -> None:
        for supervisor in self.supervisors.values():
            supervisor.start()

    async def stop(self) -> None:
        for supervisor in self.supervisors.values():
            await supervisor.stop()

    def keep_curves(self) -> None:
        """What was measured of the models that are loaded, for the next start. Writes a file."""
        for name, supervisor in self.supervisors.items():
            if supervisor.curve is not None:
                self._curves.keep(self._marks[name], supervisor.curve)

    @property
    def ready(self) -> bool:
        """Whether every model has made a token and its worker lives."""
        return all(supervisor.status().state == "ready" for supervisor in self.supervisors.values())

    def local(self, model: str) -> tuple[str, Supervisor]:
        """The local model that a name means. Raises `ModelNotFound`, and `InvalidRequest` for the frontier."""
        self.check_model(model)
        if model == FRONTIER_ALIAS:
            raise InvalidRequest("A frontier model's tokens are not known here: name a local model.", param="model")
        name = model if model in self.supervisors else self.models[0].name
        return name, self.supervisors[name]

    def check_model(self, model: str) -> None:
        """Raises `ModelNotFound` for a name that is neither a model's nor an alias."""
        if model not in self.supervisors and model not in (*LOCAL_ALIASES, FRONTIER_ALIAS):
            known = ", ".join([*LOCAL_ALIASES, FRONTIER_ALIAS, *self.supervisors])
            raise ModelNotFound(f"The model {model[:100]!r} is not served here; these are: {known}.", param="model")


def served_model(name: str, path: Path) -> ServedModel:
    try:
        created = int(path.stat().st_mtime)
    except OSError:  # the worker will say what is wrong with the file
        created = int(time.time())
    return ServedModel(name, path, created)


def _load(path: Path, settings: EngineSettings, slo: SloSettings, curve: CostCurve | None) -> Load:
    return Load(
        path=str(path),
        slots=settings.slots,
        context_tokens=settings.context_tokens,
        kv_tokens=settings.kv_tokens,
        threads=settings.threads,
        gpu_layers=settings.gpu_layers,
        step_target_s=settings.step_target_ms / 1000,
        itl_target_s=slo.itl_ms / 1000,
        curve=curve,
    )
