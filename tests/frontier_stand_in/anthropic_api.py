"""Anthropic's Messages API, as its official client reads it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.frontier_stand_in.answers import Answer, BadQuestion, Piece, Question, Tool
from tests.frontier_stand_in.api import GARBAGE, MODELS, Document, event, text_of
from tests.frontier_stand_in.journal import Usage

SIGNATURE = "c2lnbmVk"  # of every thought
STOP_REASONS = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "calls": "tool_use",
    "error": "error",  # none of Anthropic's
    None: None,
}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True, slots=True)
class Anthropic:
    key_headers: tuple[str, ...] = ("x-api-key", "authorization")

    def question(self, body: Document, headers: Mapping[str, str]) -> Question:
        messages = body.get("messages")
        if "anthropic-version" not in headers:
            raise BadQuestion("anthropic-version: header is required")
        if not messages:
            raise BadQuestion("messages: at least one message is required")
        if "max_tokens" not in body:
            raise BadQuestion("max_tokens: Field required")
        system = [text_of(body["system"])] if body.get("system") else []
        user_texts = [_user_text(message) for message in messages if message["role"] == "user"]
        tools, parallel = _tools(body)
        form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        return Question(
            model=body["model"],
            texts=(*system, *(text_of(message["content"]) for message in messages)),
            user_text=user_texts[-1] if user_texts else "",
            max_tokens=body["max_tokens"],
            tools=() if _has_results(messages[-1]) else tools,
            parallel_calls=parallel,
            schema=form["schema"] if form.get("type") == "json_schema" else None,
            stop=tuple(body.get("stop_sequences") or ()),
            stream=bool(body.get("stream")),
        )

    def plain(self, number: int, question: Question, answer: Answer, usage: Usage | None) -> Document:
        content: list[Document] = []
        if reasoning := answer.joined("reasoning"):
            content.append({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE})
        if text := answer.joined("text"):
            content.append({"type": "text", "text": text})
        for call in answer.calls():
            arguments = _input(call.arguments, answer)
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
        ending = {"stop_reason": STOP_REASONS[answer.ending], "stop_sequence": answer.stop_sequence}
        document = _message(number, question) | {"content": content} | ending
        return document | ({"usage": _usage(usage)} if usage else {})

    def stream(self, number: int, question: Question) -> "AnthropicStream":
        return AnthropicStream(number, question)

    def models(self) -> Document:
        models = [
            {"type": "model", "id": name, "display_name": name, "created_at": "2023-11-14T22:13:20Z"} for name in MODELS
        ]
        return {"data": models, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]}

    def error(self, status: int, message: str) -> Document:
        return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": message}}


class AnthropicStream:
    """Events: the message's start, its blocks, each with a start, deltas and a stop, and the message's end."""

    def __init__(self, number: int, question: Question) -> None:
        self.told: Document | None = None
        self._number = number
        self._question = question
        self._blocks = 0
        self._open: tuple[str, int] | None = None  # the type and call of the block that has not ended

    def opening(self, usage: Usage | None) -> bytes:
        start = _message(self._number, self._question) | {"content": [], "stop_reason": None, "stop_sequence": None}
        if usage:
            self.told = _usage(usage) | {"output_tokens": 1}  # it says so before there is any
            start |= {"usage": self.told}
        return _event("message_start", message=start) + _event("ping")

    def piece(self, piece: Piece) -> bytes:
        match piece.kind:
            case "reasoning":
                block: Document = {"type": "thinking", "thinking": "", "signature": ""}
                return self._within(block) + self._delta("thinking_delta", thinking=piece.text)
            case "text":
                return self._within({"type": "text", "text": ""}) + self._delta("text_delta", text=piece.text)
            case "call":
                block = {"type": "tool_use", "id": piece.call_id, "name": piece.text, "input": {}}
                return self._within(block, piece.call) + self._delta("input_json_delta", partial_json="")
            case "arguments":
                return self._delta("input_json_delta", partial_json=piece.text)

    def closing(self, answer: Answer, usage: Usage | None) -> bytes:
        if answer.ending is None:
            return b""
        delta = {"stop_reason": STOP_REASONS[answer.ending], "stop_sequence": answer.stop_sequence}
        if usage:
            self.told = _usage(usage)
        last = _event("message_delta", delta=delta, **({"usage": self.told} if usage else {}))
        return self._block_end() + last + _event("message_stop")

    def error(self) -> bytes:
        return event(Anthropic().error(529, "The stand-in was told to fail in the middle of its answer."), "error")

    def garbage(self) -> bytes:
        return b"".join(b"event: content_block_delta\n" + data for data in GARBAGE)  # unnamed events are passed over

    def _within(self, block: Document, call: int = 0) -> bytes:
        """What must come before a delta of that block: nothing where it is the open one."""
        wanted = (block["type"], call)
        if self._open == wanted:
            return b""
        ended = self._block_end()
        self._open = wanted
        self._blocks += 1
        return ended + _event("content_block_start", index=self._blocks - 1, content_block=block)

    def _block_end(self) -> bytes:
        if self._open is None:
            return b""
        signed = self._delta("signature_delta", signature=SIGNATURE) if self._open[0] == "thinking" else b""
        self._open = None
        return signed + _event("content_block_stop", index=self._blocks - 1)

    def _delta(self, kind: str, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._blocks - 1, delta={"type": kind, **fields})


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _has_results(message: Document) -> bool:
    content = message["content"]
    return not isinstance(content, str) and any(block["type"] == "tool_result" for block in content)


def _user_text(message: Document) -> str:
    content = message["content"]
    return content if isinstance(content, str) else text_of([block for block in content if block["type"] == "text"])


def _tools(body: Document) -> tuple[tuple[Tool, ...], bool]:
    """The tools that `tool_choice` leaves, and whether more than one may be called at once."""
    tools = tuple(
        Tool(tool["name"], tool["input_schema"]) for tool in body.get("tools") or () if "input_schema" in tool
    )
    choice = body.get("tool_choice") or {"type": "auto"}
    parallel = not choice.get("disable_parallel_tool_use")
    match choice["type"]:
        case "auto" | "any":
            return tools, parallel
        case "none":
            return (), parallel
        case "tool":
            chosen = tuple(tool for tool in tools if tool.name == choice["name"])
            if not chosen:
                raise BadQuestion(f"tool_choice: tool {choice['name']!r} not found in provided tools")
            return chosen, parallel
    raise BadQuestion(f"tool_choice: unknown type {choice['type']!r}")


def _input(arguments: str, answer: Answer) -> Any:
    """The arguments as JSON. Those that `max_tokens` cut short are none; others that are no JSON stay text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {} if answer.ending == "length" else arguments


def _message(number: int, question: Question) -> Document:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": question.model}


def _usage(usage: Usage) -> Document:
    """Here the cached tokens are not among the input's."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }
