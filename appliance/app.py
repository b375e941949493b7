"""Puts the daemon's HTTP application together. What runs it is in `appliance.service`."""

import time
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp

from appliance import __version__
from appliance.api import failures
from appliance.api.openai.schema import component_schemas
from appliance.api.routes import generation, models, operations, tokens
from appliance.api.state import DaemonState
from appliance.engines import Engines
from appliance.pipeline import Pipeline
from appliance.security.body import BodyLimits
from appliance.security.hosts import HostPolicy
from appliance.security.keys import KeyStore
from appliance.security.limits import Limiter
from appliance.security.middleware import SecurityMiddleware
from appliance.security.origins import OriginPolicy
from appliance.settings import Loaded
from appliance.telemetry.access import AccessMiddleware
from appliance.telemetry.metrics import Metrics


class Application:
    """The ASGI application and the parts of it that signals reach."""

    def __init__(self, loaded: Loaded, engines: Engines, keys: KeyStore) -> None:
        server, security = loaded.settings.server, loaded.settings.security
        self.keys = keys
        self.limiter = Limiter(time.monotonic, security.max_requests_per_minute, security.max_concurrent)
        metrics = Metrics(lambda: {name: s.status() for name, s in engines.supervisors.items()})
        self.state = DaemonState(
            loaded=loaded,
            engines=engines,
            pipeline=Pipeline(engines, metrics, server.request_timeout_s),
            metrics=metrics,
            body_limits=BodyLimits(server.max_body_bytes),
        )
        inner = SecurityMiddleware(
            _fastapi(self.state),
            hosts=HostPolicy(server.host, security.allowed_hosts),
            origins=OriginPolicy(security.allowed_origins),
            keys=keys,
            limiter=self.limiter,
        )
        self.asgi: ASGIApp = AccessMiddleware(inner, metrics)

    def reload(self, loaded: Loaded) -> None:
        """Takes over keys and limits; all else stays as it was at start."""
        self.keys.reload()
        security = loaded.settings.security
        self.limiter.set_defaults(security.max_requests_per_minute, security.max_concurrent)


def _fastapi(state: DaemonState) -> FastAPI:
    app = FastAPI(title="Inference appliance", version=__version__, docs_url=None, redoc_url=None)
    app.state.daemon = state
    for module in (generation, models, tokens, operations):
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
