"""What an owner sees of the cache, and takes out of it; and a user's word on a hit."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from appliance.api.openai.schema import request_body
from appliance.api.openai.validation import Body, Text, validated
from appliance.api.routes.description import errors
from appliance.api.state import daemon, json_body, principal
from appliance.errors import InvalidRequest

router = APIRouter()


class FeedbackBody(Body):
    request_id: Annotated[Text, Field(min_length=1, max_length=128, description="the `x-request-id` of the hit")]
    correct: bool


@router.get("/admin/v1/cache", responses=errors(401, 403, 429))
async def stats(request: Request) -> dict[str, Any]:
    """Entries, hits by tier, tokens saved, near-misses by the guard that refused them, measured false hits."""
    return await run_in_threadpool(daemon(request).caching.cache.status)


@router.delete("/admin/v1/cache", responses=errors(400, 401, 403, 429))
async def evict(
    request: Request,
    namespace: Annotated[str | None, Query(description="the id of a key")] = None,
    older_than_s: Annotated[float | None, Query(ge=0, le=1e12, description="age in seconds")] = None,
    id: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="of one entry")] = None,  # noqa: A002 - INTERFACE's name
) -> dict[str, int]:
    """Takes answers out of the cache: those that all conditions hold for; without any, all of them."""
    for name in request.query_params:
        if name not in ("namespace", "older_than_s", "id"):
            raise InvalidRequest(f"'{name}' is no parameter: there are namespace, older_than_s and id.", param=name)
    cache = daemon(request).caching.cache
    gone = await run_in_threadpool(cache.evict, namespace=namespace, older_than_s=older_than_s, id=id)
    return {"evicted": gone}


@router.post(
    "/admin/v1/cache/feedback",
    openapi_extra=request_body(FeedbackBody.model_json_schema()),
    responses=errors(400, 401, 403, 408, 413, 429),
)
async def feedback(request: Request) -> dict[str, Any]:
    """Says of a hit whether its answer was right. A wrong one is gone, and counts against the false-hit budget.

    A key without the scope `admin` speaks of the hits that it was given itself.
    """
    body = validated(FeedbackBody, await json_body(request))
    caching = daemon(request).caching
    if not await caching.complain(body.request_id, principal(request), correct=body.correct):
        raise InvalidRequest("'request_id' is not that of a hit that this daemon remembers.", param="request_id")
    return {"request_id": body.request_id, "correct": body.correct}
