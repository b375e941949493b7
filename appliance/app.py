"""Puts the daemon's HTTP application together. What runs it is in `appliance.service`."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp

from appliance import __version__
from appliance.admission.admission import Admission
from appliance.admission.controller import Controller
from appliance.api import failures
from appliance.api.openai.schema import component_schemas
from appliance.api.routes import cache, control, events, generation, models, operations, tasks, tokens
from appliance.api.state import DaemonState
from appliance.cache_setup import CACHE_FILE, cache_of, realm_of
from appliance.caching import Caching
from appliance.embedding import EXEMPLARS_CACHE, embed_with, embedder_of, embedding_files
from appliance.engines import Engines
from appliance.frontier_setup import frontier_of, prices_of
from appliance.hardware_setup import hardware_of
from appliance.ledger import Ledger
from appliance.legs import Legs
from appliance.machine_load import machine_load, processes_of
from appliance.offline import OfflineSwitch
from appliance.pipeline import Pipeline
from appliance.rechecks import Rechecks
from appliance.routing.classifier import Classifier
from appliance.routing.exemplars import load_exemplars
from appliance.second_opinion import second_opinion
from appliance.security.body import BodyLimits
from appliance.security.body_memory import BodyMemory
from appliance.security.hosts import HostPolicy
from appliance.security.keys import KeyStore
from appliance.security.limits import Limiter
from appliance.security.middleware import SecurityMiddleware
from appliance.security.origins import OriginPolicy
from appliance.settings import Loaded
from appliance.tasks import Tasks
from appliance.telemetry import logs
from appliance.telemetry.access import AccessMiddleware
from appliance.telemetry.admission_metrics import AdmissionCollector
from appliance.telemetry.cache_metrics import CacheCollector
from appliance.telemetry.hardware import Sampler
from appliance.telemetry.metrics import Metrics
from fallback import EgressGate
from runtimes.embeddings.supervisor import EmbeddingUnavailable
from runtimes.supervisor import EngineError

log = logs.get(__name__)


class Application:
    """The ASGI application and the parts of it that signals reach."""

    def __init__(self, loaded: Loaded, engines: Engines, keys: KeyStore, state_dir: Path) -> None:
        settings = loaded.settings
        server, security = settings.server, settings.security
        self.keys = keys
        self.limiter = Limiter(time.monotonic, security.max_requests_per_minute, security.max_concurrent)
        metrics = Metrics(lambda: {name: s.status() for name, s in engines.supervisors.items()})
        offline = OfflineSwitch(state_dir, pinned=server.offline)
        ledger = Ledger(state_dir / "ledger.db", time.time)
        gate = EgressGate(offline=offline.is_on)
        frontier = frontier_of(settings, prices_of(settings), gate, ledger)
        self._exemplars = state_dir / EXEMPLARS_CACHE
        files = embedding_files(settings, state_dir)
        self._embedder = embedder_of(files)
        embed = None if self._embedder is None else embed_with(self._embedder)
        self._classifier = Classifier(load_exemplars(), embed)
        self._preparing: asyncio.Task[None] | None = None
        self._tending: asyncio.Task[None] | None = None
        self._rechecking: asyncio.Task[None] | None = None
        self._admitting: asyncio.Task[None] | None = None
        realm = realm_of(engines.models, settings)
        workers = {name: supervisor.worker_pid for name, supervisor in engines.supervisors.items()}
        self._hardware = Sampler(hardware_of(settings, processes_of(workers)), time.monotonic)
        controller = Controller(
            engines.supervisors,
            settings.admission,
            settings.slo,
            slots=settings.engine.slots,
            most_waiting=settings.engine.max_waiting,
        )
        metrics.register(AdmissionCollector(controller))
        machine = machine_load(settings.admission, self._hardware)
        admission = Admission(engines.supervisors, controller, machine=machine)
        legs = Legs(engines, frontier, ledger, metrics, admission)
        opinion = second_opinion(legs, state_dir) if settings.cache.second_opinion else None
        answers = cache_of(settings.cache, state_dir / CACHE_FILE, files, self._embedder, realm, second_opinion=opinion)
        metrics.register(CacheCollector(answers.status))
        self._rechecks = Rechecks(answers, legs, settings.cache.recheck_share)
        caching = Caching(answers, ledger, self._rechecks)
        self.state = DaemonState(
            loaded=loaded,
            engines=engines,
            pipeline=Pipeline(legs, settings, self._classifier, caching),
            metrics=metrics,
            admission=admission,
            hardware=self._hardware,
            tasks=Tasks(),
            frontier=frontier,
            ledger=ledger,
            caching=caching,
            offline=offline,
            body_limits=BodyLimits(server.max_body_bytes),
        )
        inner = SecurityMiddleware(
            BodyMemory(_fastapi(self.state), server.max_held_body_bytes),
            hosts=HostPolicy(server.host, security.allowed_hosts),
            origins=OriginPolicy(security.allowed_origins),
            keys=keys,
            limiter=self.limiter,
        )
        self.asgi: ASGIApp = AccessMiddleware(inner, metrics)

    def start(self) -> None:
        """What takes its time, and nobody has to wait for. In the event loop."""
        self._preparing = asyncio.create_task(self._prepare())
        self._tending = asyncio.create_task(self.state.caching.cache.tend())
        self._rechecking = asyncio.create_task(self._rechecks.run())
        self._admitting = asyncio.create_task(self.state.admission.run())
        self._hardware.start()

    async def _prepare(self) -> None:
        """Once the models are there: what follows would keep the cores from them."""
        for supervisor in self.state.engines.supervisors.values():
            with suppress(EngineError):
                await supervisor.wait_ready()
        await asyncio.to_thread(self.state.engines.keep_curves)
        if self._embedder is not None:
            self._embedder.start()
        try:
            await self._classifier.prepare(self._exemplars)
        except EmbeddingUnavailable as error:
            log.warning("routing goes by words alone", reason=str(error))

    async def close(self) -> None:
        """After the last request."""
        self._hardware.stop()
        for task in (self._preparing, self._tending, self._rechecking, self._admitting):
            if task is not None:
                task.cancel()
        if self._embedder is not None:
            await self._embedder.stop()
        await self.state.frontier.close()
        await asyncio.to_thread(self.state.caching.cache.close)
        await asyncio.to_thread(self.state.ledger.close)

    def reload(self, loaded: Loaded) -> None:
        """Takes over keys and limits; all else stays as it was at start."""
        self.keys.reload()
        security = loaded.settings.security
        self.limiter.set_defaults(security.max_requests_per_minute, security.max_concurrent)


def _fastapi(state: DaemonState) -> FastAPI:
    app = FastAPI(title="Inference appliance", version=__version__, docs_url=None, redoc_url=None)
    app.state.daemon = state
    for module in (generation, models, tokens, tasks, operations, events, control, cache):
        app.include_router(module.router)
    failures.install(app)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign] # FastAPI's own way to extend the document
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        document.setdefault("components", {}).setdefault("schemas", {}).update(component_schemas())
        app.openapi_schema = document
    return app.openapi_schema
