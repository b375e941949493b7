"""Anthropic's Messages. Pure.

Source: the types of the official `anthropic` package. System messages are gathered in front, which is where this format
has a place for them; results of tools are parts of a user's turn, and turns of one side in a row become one.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from appliance.protocol import (
    ChatPrompt,
    Delta,
    Event,
    Finished,
    FinishReason,
    ImagePart,
    Message,
    ReasoningDelta,
    Request,
    Started,
    TextPart,
    ToolCallDelta,
    ToolUse,
)
from fallback.provider import Provider
from fallback.wire.call_ids import Inward, outward
from fallback.wire.contract import Claimed, MalformedAnswer, ProviderFault, json_object, text_of, token_count

VERSION: Final = "2023-06-01"
_DATA_URL: Final = re.compile(r"data:(image/[a-z+.-]+);base64,(.*)", re.DOTALL)
_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_EFFORTS: Final = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}


class AnthropicWire:
    def url(self, provider: Provider) -> str:
        parts = urlsplit(provider.base_url)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/messages"))

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({} if key is None else {"x-api-key": key})}

    def body(self, request: Request, provider: Provider) -> dict[str, Any]:
        prompt = request.prompts[0]
        assert isinstance(prompt, ChatPrompt)  # noqa: S101 - `excluded_by` lets no other pass
        limit, sampling = request.stopping.max_tokens, request.sampling
        body: dict[str, Any] = {
            "model": provider.model,
            "max_tokens": provider.max_tokens if limit is None else limit,
            "messages": _turns(prompt.messages),
            "stream": True,
        }
        if system := _system(prompt.messages):
            body["system"] = system
        body |= {
            name: value
            for name, value, default in (
                ("temperature", sampling.temperature, 1.0),
                ("top_p", sampling.top_p, 1.0),
                ("top_k", sampling.top_k, 0),
            )
            if value != default
        }
        if request.stopping.stop:
            body["stop_sequences"] = list(request.stopping.stop)
        if prompt.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": json.loads(tool.parameters)}
                for tool in prompt.tools
            ]
            body["tool_choice"] = _tool_choice(request.tool_use)
        if output := _output(request, prompt):
            body["output_config"] = output
        if request.reasoning.budget:
            body["thinking"] = {"type": "enabled", "budget_tokens": request.reasoning.budget}
        elif request.reasoning.budget == 0 or not request.reasoning.enabled:
            body["thinking"] = {"type": "disabled"}
        return body

    def answer(self, request: Request) -> "AnthropicAnswer":
        return AnthropicAnswer(request.id)

    def error_message(self, body: Any) -> str | None:
        error = body.get("error") if isinstance(body, dict) else None
        message = error.get("message") if isinstance(error, dict) else None
        return message if isinstance(message, str) else None


def _system(messages: tuple[Message, ...]) -> str:
    parts = [_text(message) for message in messages if message.role in ("system", "developer")]
    return "\n\n".join(part for part in parts if part)


def _text(message: Message) -> str:
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


def _turns(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": "."}]})  # a user must begin
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    blocks = [_part(part) for part in message.content if not (isinstance(part, TextPart) and not part.text.strip())]
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": outward(message.tool_call_id or ""), "content": blocks}]
    for call in message.tool_calls:
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            arguments = None
        blocks.append(
            {
                "type": "tool_use",
                "id": outward(call.id),
                "name": call.name,
                "input": arguments if isinstance(arguments, dict) else {"arguments": call.arguments},
            }
        )
    return blocks


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if inline := _DATA_URL.fullmatch(part.url):
        source = {"type": "base64", "media_type": inline[1], "data": inline[2]}
    else:
        source = {"type": "url", "url": part.url}
    return {"type": "image", "source": source}


def _output(request: Request, prompt: ChatPrompt) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if request.constraint is not None:
        output["format"] = {"type": "json_schema", "schema": json.loads(request.constraint.text)}
    if (effort := _EFFORTS.get(prompt.template_kwargs.get("reasoning_effort", ""))) is not None:
        output["effort"] = effort
    return output


def _tool_choice(use: ToolUse | None) -> dict[str, Any]:
    if use is None:
        return {"type": "none"}
    choice: dict[str, Any] = {"type": "any" if use.choice == "required" else "auto"}
    if use.only is not None:
        choice = {"type": "tool", "name": use.only}
    if not use.parallel:
        choice["disable_parallel_tool_use"] = True
    return choice


@dataclass(slots=True)
class _Block:
    call: int = -1  # which of the answer's calls it is
    has_arguments: bool = False


@dataclass(slots=True)
class AnthropicAnswer:
    _unique: str
    claimed: Claimed | None = None
    _begun: bool = False
    _ended: bool = False
    _reason: FinishReason | None = None
    _calls: int = 0
    _blocks: dict[int, _Block] = field(default_factory=dict)
    _usage: dict[str, int] = field(default_factory=dict)
    _ids: Inward = field(init=False)

    def __post_init__(self) -> None:
        self._ids = Inward(self._unique)

    def feed(self, name: str, data: str) -> list[Event]:
        said = json_object(data)
        if self._ended:
            return []
        match said.get("type", name):
            case "message_start":
                message = said.get("message")
                self._count(message.get("usage") if isinstance(message, dict) else None)
                begins, self._begun = not self._begun, True
                return [Started(0, 0, 0, 0.0)] if begins else []
            case "content_block_start":
                return self._open(said)
            case "content_block_delta":
                return self._read(said)
            case "content_block_stop":
                return self._close(said)
            case "message_delta":
                self._stop(said.get("delta"))
                self._count(said.get("usage"))
            case "message_stop":
                self._ended = True
            case "error":
                raise ProviderFault(AnthropicWire().error_message(said) or "it reports an error")
        return []  # pings, ends of blocks, and what is yet to be invented

    def end(self) -> list[Event]:
        if not self._begun or not self._ended or self._reason is None:
            raise MalformedAnswer("the stream ended before the answer did")
        return [
            *self._completed(*self._blocks.values()),
            Finished(0, self._reason, self.claimed.completion_tokens if self.claimed else 0),
        ]

    def _open(self, said: dict[str, Any]) -> list[Event]:
        index, block = said.get("index"), said.get("content_block")
        if not self._begun or not isinstance(index, int) or not isinstance(block, dict):
            raise MalformedAnswer("a block of the stream has no message, index or content")
        kind = block.get("type")
        opened = self._blocks[index] = _Block()
        if kind == "text":
            text = text_of(block.get("text"))
            return [Delta(0, text, 0)] if text else []
        if kind == "tool_use":
            name = text_of(block.get("name"))
            if not name:
                raise MalformedAnswer("a tool call of the stream has no name")
            opened.call, self._calls = self._calls, self._calls + 1
            events: list[Event] = [ToolCallDelta(0, opened.call, self._ids.id(block.get("id")), name, "")]
            given = block.get("input")  # as a rule empty, and to come
            if isinstance(given, dict) and given:
                opened.has_arguments = True
                events.append(ToolCallDelta(0, opened.call, None, None, json.dumps(given)))
            return events
        return []

    def _close(self, said: dict[str, Any]) -> list[Event]:
        index = said.get("index")
        block = self._blocks.get(index) if isinstance(index, int) else None
        return [] if block is None else self._completed(block)

    def _completed(self, *blocks: _Block) -> list[Event]:
        """Arguments for calls that have none."""
        events: list[Event] = []
        for block in blocks:
            if block.call >= 0 and not block.has_arguments:
                block.has_arguments = True
                events.append(ToolCallDelta(0, block.call, None, None, "{}"))
        return events

    def _read(self, said: dict[str, Any]) -> list[Event]:
        index, delta = said.get("index"), said.get("delta")
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None or not isinstance(delta, dict):
            raise MalformedAnswer("a piece of the stream belongs to no block")
        for kind, key in (("text_delta", "text"), ("thinking_delta", "thinking"), ("input_json_delta", "partial_json")):
            if delta.get("type") != kind:
                continue
            piece = delta.get(key)
            if not isinstance(piece, str):
                raise MalformedAnswer(f"a {kind} of the stream has no text")
            piece = text_of(piece)
            if not piece:
                return []
            if kind == "text_delta":
                return [Delta(0, piece, 0)]
            if kind == "thinking_delta":
                return [ReasoningDelta(0, piece, 0)]
            if block.call < 0:
                raise MalformedAnswer("a piece of the stream belongs to no tool call")
            block.has_arguments = True
            return [ToolCallDelta(0, block.call, None, None, piece)]
        return []

    def _stop(self, delta: Any) -> None:
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        if reason == "error":  # gateways say so
            raise ProviderFault("it ended the answer with an error")
        if reason is not None:
            self._reason = _REASONS.get(reason, "stop") if isinstance(reason, str) else "stop"

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            value = token_count(usage.get(name))
            if value is not None:
                self._usage[name] = value
        if "input_tokens" not in self._usage or "output_tokens" not in self._usage:
            return
        details = usage.get("output_tokens_details")
        thoughts = details.get("thinking_tokens") if isinstance(details, dict) else None
        cached = self._usage.get("cache_read_input_tokens", 0)
        prompt = self._usage.get("input_tokens", 0) + cached + self._usage.get("cache_creation_input_tokens", 0)
        completion = self._usage.get("output_tokens", 0)
        reasoning = thoughts if isinstance(thoughts, int) and 0 <= thoughts <= completion else 0
        self.claimed = Claimed(prompt, cached, completion, reasoning)
