"""OpenAI's chat completions, as its official client reads them. Azure's differ in path and key only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.frontier_stand_in.answers import Answer, BadQuestion, Piece, Question, Tool
from tests.frontier_stand_in.api import GARBAGE, MODELS, Document, event, text_of
from tests.frontier_stand_in.journal import Usage

CREATED = 1_700_000_000  # the same in all runs
LOGPROB = -0.25  # of every word
FINISH_REASONS = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "calls": "tool_calls",
    "error": "error",  # none of OpenAI's: gateways say so
    None: None,
}
ERRORS = {  # status: (type, code)
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


@dataclass(frozen=True, slots=True)
class OpenAi:
    key_headers: tuple[str, ...] = ("authorization",)

    def question(self, body: Document, headers: Mapping[str, str]) -> Question:
        messages = body.get("messages")
        if not messages:
            raise BadQuestion("'messages' is missing or empty")
        if body.get("n", 1) != 1:
            raise BadQuestion("this stand-in makes one choice: 'n' must be 1")
        tools, parallel = _tools(body)
        form = body.get("response_format") or {"type": "text"}
        stop = body.get("stop") or ()
        limit = body.get("max_completion_tokens")
        return Question(
            model=body["model"],
            texts=tuple(text_of(message.get("content")) for message in messages),
            user_text=next((text_of(m.get("content")) for m in reversed(messages) if m["role"] == "user"), ""),
            max_tokens=body.get("max_tokens") if limit is None else limit,
            tools=() if messages[-1]["role"] == "tool" else tools,
            parallel_calls=parallel,
            schema=form["json_schema"]["schema"] if form["type"] == "json_schema" else None,
            json_object=form["type"] == "json_object",
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            stream=bool(body.get("stream")),
            stream_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            logprobs=bool(body.get("logprobs")),
            top_logprobs=body.get("top_logprobs") or 0,
        )

    def plain(self, number: int, question: Question, answer: Answer, usage: Usage | None) -> Document:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls()
        ]
        text, reasoning = answer.joined("text"), answer.joined("reasoning")
        message: Document = {"role": "assistant", "content": None if calls else text, "refusal": None}
        message |= {"tool_calls": calls} if calls else {}
        message |= {"reasoning_content": reasoning} if reasoning else {}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": _logprobs(question, [piece.text for piece in answer.pieces if piece.kind == "text"]),
            "finish_reason": FINISH_REASONS[answer.ending],
        }
        document = _envelope(number, question, "chat.completion") | {"choices": [choice]}
        return document | ({"usage": _usage(usage)} if usage else {})

    def stream(self, number: int, question: Question) -> "OpenAiStream":
        return OpenAiStream(number, question)

    def models(self) -> Document:
        models = [{"id": name, "object": "model", "created": CREATED, "owned_by": "stand-in"} for name in MODELS]
        return {"object": "list", "data": models}

    def error(self, status: int, message: str) -> Document:
        kind, code = ERRORS.get(status, ("server_error", None))
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class OpenAiStream:
    """Chunks: the role, one for each piece, the finish reason, the usage if it was asked for, `[DONE]`."""

    def __init__(self, number: int, question: Question) -> None:
        self.told: Document | None = None
        self._number = number
        self._question = question

    def opening(self, usage: Usage | None) -> bytes:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def piece(self, piece: Piece) -> bytes:
        function: Document
        match piece.kind:
            case "text":
                return self._chunk({"content": piece.text}, _logprobs(self._question, [piece.text]))
            case "reasoning":
                return self._chunk({"reasoning_content": piece.text})
            case "call":
                function = {"name": piece.text, "arguments": ""}
                call = {"index": piece.call, "id": piece.call_id, "type": "function", "function": function}
            case "arguments":
                call = {"index": piece.call, "function": {"arguments": piece.text}}
        return self._chunk({"tool_calls": [call]})

    def closing(self, answer: Answer, usage: Usage | None) -> bytes:
        if answer.ending is None:
            return b""
        sent = self._chunk({}, finish_reason=FINISH_REASONS[answer.ending])
        if self._question.stream_usage and usage:
            self.told = _usage(usage)
            sent += event(self._envelope() | {"choices": [], "usage": self.told})
        return sent + b"data: [DONE]\n\n"

    def error(self) -> bytes:
        return event(OpenAi().error(500, "The stand-in was told to fail in the middle of its answer."))

    def garbage(self) -> bytes:
        return b"".join(GARBAGE)

    def _chunk(self, delta: Document, logprobs: Document | None = None, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        usage = {"usage": None} if self._question.stream_usage else {}
        return event(self._envelope() | {"choices": [choice]} | usage)

    def _envelope(self) -> Document:
        return _envelope(self._number, self._question, "chat.completion.chunk")


def _tools(body: Document) -> tuple[tuple[Tool, ...], bool]:
    """The tools that `tool_choice` leaves, and whether more than one may be called at once."""
    functions = [tool["function"] for tool in body.get("tools") or () if tool["type"] == "function"]
    tools = tuple(Tool(function["name"], function.get("parameters") or {}) for function in functions)
    parallel = body.get("parallel_tool_calls") is not False
    match body.get("tool_choice"):
        case None | "auto" | "required":
            return tools, parallel
        case "none":
            return (), parallel
        case {"type": "function", "function": {"name": forced}}:
            names = [forced]
        case {"type": "allowed_tools", "allowed_tools": {"tools": allowed}}:
            names = [tool["function"]["name"] for tool in allowed]
        case other:
            raise BadQuestion(f"'tool_choice' cannot be {other!r}")
    chosen = tuple(tool for tool in tools if tool.name in names)
    if not chosen:
        raise BadQuestion(f"'tool_choice' names a tool that is not in 'tools': {names}")
    return chosen, parallel


def _envelope(number: int, question: Question, kind: str) -> Document:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": CREATED,
        "model": question.model,
        "service_tier": "default",
        "system_fingerprint": "fp_stand_in",
    }


def _usage(usage: Usage) -> Document:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


def _logprobs(question: Question, said: list[str]) -> Document | None:
    """Those of each word. Where alternatives are asked for, the word itself is the only one."""
    if not question.logprobs:
        return None

    def scored(word: str) -> dict[str, Any]:
        return {"token": word, "logprob": LOGPROB, "bytes": list(word.encode())}

    alternatives = min(question.top_logprobs, 1)
    content = [scored(word) | {"top_logprobs": [scored(word)] * alternatives} for word in said]
    return {"content": content, "refusal": None}
