"""`POST /v1/tokenize` and `POST /v1/detokenize`: a model's own token ids."""

from typing import Any

from fastapi import APIRouter, Request

from appliance.api.openai.schema import detokenize_schema, request_body, tokenize_schema
from appliance.api.openai.tokenize_request import detokenize_body, parse_detokenize, parse_tokenize, tokenize_body
from appliance.api.routes.description import errors
from appliance.api.state import daemon, exchange, json_body
from appliance.errors import from_code
from runtimes.supervisor import EngineError

router = APIRouter()
_ERRORS = errors(400, 401, 403, 404, 408, 413, 429, 500, 503)


@router.post("/v1/tokenize", openapi_extra=request_body(tokenize_schema()), responses=_ERRORS)
async def tokenize(request: Request) -> dict[str, Any]:
    """The tokens of a text, or of messages as the model's chat template writes them."""
    asked = parse_tokenize(await json_body(request))
    exchange(request).model, supervisor = daemon(request).engines.local(asked.model)
    try:
        info = await supervisor.wait_ready()
        tokens = await supervisor.tokenize(asked.prompt, with_text=asked.return_token_strs)
    except EngineError as error:
        raise from_code(error.code, error.message, error.param) from None
    return tokenize_body(tokens.tokens, max_model_len=info.context_tokens, token_strs=tokens.texts)


@router.post("/v1/detokenize", openapi_extra=request_body(detokenize_schema()), responses=_ERRORS)
async def detokenize(request: Request) -> dict[str, Any]:
    """The text of tokens, control tokens included."""
    asked = parse_detokenize(await json_body(request))
    exchange(request).model, supervisor = daemon(request).engines.local(asked.model)
    try:
        return detokenize_body(await supervisor.detokenize(asked.tokens))
    except EngineError as error:
        raise from_code(error.code, error.message, error.param) from None
