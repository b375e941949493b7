"""`POST /v1/chat/completions` and `POST /v1/completions`."""

import time
from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from appliance import protocol
from appliance.api.answer import Answer
from appliance.api.openai.chat_request import parse_chat
from appliance.api.openai.completion_request import parse_completion
from appliance.api.openai.schema import chat_schema, completion_schema
from appliance.api.openai.serialize import ChatSerializer, CompletionSerializer, Serializer
from appliance.api.routes.description import generation_responses, hinted_body
from appliance.api.state import daemon, exchange, json_body, principal
from appliance.api.tool_history import with_sound_history
from appliance.errors import Overloaded

router = APIRouter()

Parse = Callable[[object, Mapping[str, str], str], protocol.Request]


@router.post("/v1/chat/completions", openapi_extra=hinted_body(chat_schema()), responses=generation_responses())
async def chat_completions(request: Request) -> Response:
    """Continue a conversation."""
    return await _generate(request, parse_chat, ChatSerializer)


@router.post("/v1/completions", openapi_extra=hinted_body(completion_schema()), responses=generation_responses())
async def completions(request: Request) -> Response:
    """Continue a text."""
    return await _generate(request, parse_completion, CompletionSerializer)


async def _generate(request: Request, parse: Parse, serializer: type[Serializer]) -> Response:
    noted, pipeline = exchange(request), daemon(request).pipeline
    if daemon(request).draining:
        raise Overloaded("The daemon is stopping.")
    asked = parse(await json_body(request), request.headers, noted.request_id)
    asked = with_sound_history(asked, daemon(request).loaded.settings.server.broken_history)
    routed = await pipeline.route(asked, noted, principal(request))
    return Answer(
        pipeline, daemon(request).tasks, routed, serializer(asked, created=int(time.time()), model=noted.model or "")
    )
