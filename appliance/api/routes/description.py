"""What the OpenAPI document says of the paths, beyond what their functions do."""

from typing import Any

from appliance.api.hints import header_parameters
from appliance.api.openai.schema import request_body

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}

_TEXTS = {
    400: "The request is wrong; `param` names the field.",
    401: "No key, or no valid one.",
    403: "The key may not do this, or the Host or Origin is not allowed.",
    404: "No such model or path.",
    405: "Not this method.",
    408: "The request came too slowly.",
    409: "The task of this request was cancelled.",
    413: "The body is too large.",
    429: "Too many requests; see Retry-After.",
    500: "The engine crashed.",
    503: "Overloaded, loading or offline; see Retry-After.",
    504: "The request's deadline has passed.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Response objects for error statuses, all with the one error body."""
    return {
        status: {"description": _TEXTS[status], "content": {"application/json": {"schema": _ERROR}}}
        for status in statuses
    }


def described(media_type: str, text: str) -> dict[int | str, dict[str, Any]]:
    """A good answer that is not only JSON."""
    return {200: {"description": text, "content": {media_type: {}}}}


def generation_responses() -> dict[int | str, dict[str, Any]]:
    whole_or_streamed = described("text/event-stream", "The answer, whole or streamed.")
    return whole_or_streamed | errors(400, 401, 403, 404, 408, 409, 413, 429, 500, 503, 504)


def hinted_body(schema: dict[str, str]) -> dict[str, Any]:
    """A JSON body and the hint headers."""
    return {**request_body(schema), "parameters": header_parameters()}
