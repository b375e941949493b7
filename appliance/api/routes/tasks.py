"""Agent tasks: `DELETE /v1/tasks/{id}` cancels all of one."""

from typing import Any

from fastapi import APIRouter, Request

from appliance.api.hints import MAX_TASK_CHARACTERS
from appliance.api.routes.description import errors
from appliance.api.state import daemon, principal
from appliance.errors import InvalidRequest

router = APIRouter()


@router.delete("/v1/tasks/{id:path}", responses=errors(400, 401, 403, 429))
async def cancel(id: str, request: Request) -> dict[str, Any]:  # noqa: A002 - the path's own word
    """Cancel every request of a task that is under way, waiting or running. Those of other keys are other tasks."""
    if len(id) > MAX_TASK_CHARACTERS:
        raise InvalidRequest(f"'id' must have 1 to {MAX_TASK_CHARACTERS} characters.", param="id")
    return {"id": id, "cancelled_requests": daemon(request).tasks.cancel(principal(request).id, id)}
