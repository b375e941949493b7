"""What the routes work with, put together once at start."""

import time
from dataclasses import dataclass, field

from starlette.requests import Request

from appliance.admission.admission import Admission
from appliance.caching import Caching
from appliance.engines import Engines
from appliance.exchange import Exchange
from appliance.ledger import Ledger
from appliance.offline import OfflineSwitch
from appliance.pipeline import Pipeline
from appliance.security.auth import Principal
from appliance.security.body import BodyLimits, read_json
from appliance.settings import Loaded
from appliance.tasks import Tasks
from appliance.telemetry.hardware import Sampler
from appliance.telemetry.metrics import Metrics
from fallback import Frontier


@dataclass(slots=True)
class DaemonState:
    loaded: Loaded
    engines: Engines
    pipeline: Pipeline
    metrics: Metrics
    admission: Admission
    hardware: Sampler
    tasks: Tasks
    frontier: Frontier
    ledger: Ledger
    caching: Caching
    offline: OfflineSwitch
    body_limits: BodyLimits
    started_s: float = field(default_factory=time.monotonic)
    draining: bool = False  # stopping: requests in flight finish, no new one should come

    @property
    def ready(self) -> bool:
        return not self.draining and self.engines.ready


def daemon(request: Request) -> DaemonState:
    state: DaemonState = request.app.state.daemon
    return state


def exchange(request: Request) -> Exchange:
    noted: Exchange = request.scope["state"]["exchange"]
    return noted


def principal(request: Request) -> Principal:
    asker: Principal = request.scope["state"]["principal"]
    return asker


async def json_body(request: Request) -> dict[str, object]:
    """The request's JSON object. Raises an `ApplianceError`."""
    return await read_json(request.receive, request.scope["headers"], daemon(request).body_limits)
