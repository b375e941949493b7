"""The models this daemon serves, by the names that clients use. Knows no HTTP."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import InvalidRequest, ModelNotFound
from appliance.settings import EngineSettings
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
        self, models: Iterable[ServedModel], settings: EngineSettings, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.models = tuple(models)
        limits = Limits(
            max_in_flight=settings.slots + settings.max_waiting,
            hang_timeout_s=settings.hang_timeout_s,
            load_timeout_s=settings.load_timeout_s,
        )
        self.supervisors = {
            model.name: Supervisor(_load(model.path, settings), limits, environ) for model in self.models
        }

    def start(self) -> None:
        for supervisor in self.supervisors.values():
            supervisor.start()

    async def stop(self) -> None:
        for supervisor in self.supervisors.values():
            await supervisor.stop()

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


def _load(path: Path, settings: EngineSettings) -> Load:
    return Load(
        path=str(path),
        slots=settings.slots,
        context_tokens=settings.context_tokens,
        kv_tokens=settings.kv_tokens,
        threads=settings.threads,
        gpu_layers=settings.gpu_layers,
        step_target_s=settings.step_target_ms / 1000,
    )
