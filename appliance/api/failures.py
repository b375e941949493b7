"""Errors as OpenAI's JSON, whoever raised them: ours, the router's 404 and 405, and a fault that nobody foresaw."""

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from appliance.api import sse
from appliance.errors import ApplianceError, InternalError, InvalidRequest, MethodNotAllowed, NotFound

logger = logging.getLogger(__name__)


def error_response(error: ApplianceError) -> Response:
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return Response(sse.json_bytes(error.body()), error.status, headers, media_type="application/json")


def install(app: Starlette) -> None:
    app.add_exception_handler(ApplianceError, _ours)
    app.add_exception_handler(HTTPException, _of_the_router)
    app.add_exception_handler(Exception, _unforeseen)


def _noted(request: Request, error: ApplianceError) -> Response:
    exchange = request.scope.get("state", {}).get("exchange")
    if exchange is not None:
        exchange.error = error.code
    return error_response(error)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApplianceError)  # noqa: S101 - what it is registered for
    return _noted(request, error)


async def _of_the_router(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    path = request.url.path[:200]
    if error.status_code == 404:
        return _noted(request, NotFound(f"There is no {path} here: see the README for the paths."))
    if error.status_code == 405:
        response = _noted(request, MethodNotAllowed(f"{request.method[:20]} is not for {path}."))
        response.headers.update(error.headers or {})
        return response
    return _noted(request, InvalidRequest(str(error.detail)))


async def _unforeseen(request: Request, error: Exception) -> Response:
    logger.error("a request met a fault of the daemon's own", exc_info=error)
    return _noted(request, InternalError("The daemon met a fault of its own; its log has the details."))
