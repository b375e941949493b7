"""What happens, live: the snapshot of the status again and again, and each change of the breaker when it comes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from appliance.admission.breaker import Transition
from appliance.admission.status import transition_status
from appliance.api import sse
from appliance.api.routes.description import described, errors
from appliance.api.routes.operations import snapshot
from appliance.api.state import DaemonState, daemon

EVERY_S: Final = 1.0

router = APIRouter()


@router.get(
    "/admin/v1/events",
    responses={**errors(401, 403, 429), **described("text/event-stream", "Events `status` and `breaker`.")},
)
async def events(request: Request) -> Response:
    """The status every second, and each change of the breaker at once, as server-sent events."""
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(_framed(daemon(request)), media_type="text/event-stream", headers=headers)


async def _framed(state: DaemonState) -> AsyncIterator[bytes]:
    async for name, data in _events(state):
        yield sse.event(data, name)


async def _events(state: DaemonState) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    admission = state.admission
    told: Transition | None = next(reversed(admission.controller.transitions), None)
    while not state.draining:
        changed = admission.changed
        yield "status", snapshot(state)
        try:
            async with asyncio.timeout(EVERY_S):
                await changed.wait()
        except TimeoutError:
            continue
        news = list(admission.controller.transitions)
        for transition in news[news.index(told) + 1 if told in news else 0 :]:
            told = transition
            yield "breaker", transition_status(transition, admission.now_s())
