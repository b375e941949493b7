"""What an owner may change while the daemon runs."""

from typing import Any, Literal

from fastapi import APIRouter, Request

from appliance.api.openai.schema import request_body
from appliance.api.openai.validation import Body, validated
from appliance.api.routes.description import errors
from appliance.api.state import daemon, json_body
from appliance.errors import InternalError

router = APIRouter()


class OfflineBody(Body):
    offline: bool


@router.put(
    "/admin/v1/offline",
    openapi_extra=request_body(OfflineBody.model_json_schema()),
    responses=errors(400, 401, 403, 408, 413, 429, 500),
)
async def offline(request: Request) -> dict[str, Any]:
    """Go offline, or back: nothing leaves this machine from now on, also after a restart."""
    state = daemon(request)
    wanted = validated(OfflineBody, await json_body(request)).offline
    if wanted:
        state.frontier.gate.set_offline(offline=True)  # first: what fails afterwards fails on the safe side
    try:
        state.offline.set(offline=wanted)
    except OSError as error:
        raise InternalError(f"This cannot be kept for the next start: {error.strerror}. It holds until then.") from None
    state.frontier.gate.set_offline(offline=state.offline.is_on)
    return {"offline": state.frontier.gate.offline, "pinned": state.offline.pinned}


class BreakerBody(Body):
    action: Literal["trip", "close", "reset"]


@router.post(
    "/admin/v1/breaker",
    openapi_extra=request_body(BreakerBody.model_json_schema()),
    responses=errors(400, 401, 403, 408, 413, 429),
)
async def breaker(request: Request) -> dict[str, Any]:
    """Hold the breaker open (`trip`) or closed (`close`), or let it go by saturation again (`reset`)."""
    admission = daemon(request).admission
    action = validated(BreakerBody, await json_body(request)).action
    held: dict[str, Literal["open", "closed"] | None] = {"trip": "open", "close": "closed", "reset": None}
    admission.hold(held[action])
    breaker = admission.controller.breaker
    return {"state": breaker.state, "held": breaker.held}
