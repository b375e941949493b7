"""OpenAI's chat completions, as OpenAI and all who speak like it offer them. Pure."""

import json
import math
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
    Part,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Started,
    TextPart,
    TokenLogprob,
    Tool,
    ToolCallDelta,
    ToolUse,
)
from fallback.expressible import ANY_OBJECT
from fallback.provider import Provider
from fallback.wire.call_ids import Inward, outward
from fallback.wire.contract import Claimed, MalformedAnswer, ProviderFault, json_object, text_of, token_count

_DONE: Final = "[DONE]"
_NONE: Final = -9999.0
_NO_TOKEN: Final = -1  # a frontier model's token ids are not known
# OpenRouter's, vLLM's, DeepSeek's words for an answer that was not finished.
_GIVEN_UP: Final = ("error", "abort", "insufficient_system_resource")
_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class OpenAIWire:
    def url(self, provider: Provider) -> str:
        parts = urlsplit(provider.base_url)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/chat/completions"))

    def headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"authorization": f"Bearer {key}"}

    def body(self, request: Request, provider: Provider) -> dict[str, Any]:
        prompt = request.prompts[0]
        assert isinstance(prompt, ChatPrompt)  # noqa: S101 - `excluded_by` lets no other pass
        limit = request.stopping.max_tokens
        body: dict[str, Any] = {
            "model": provider.model,
            "messages": [_message(message) for message in prompt.messages],
            provider.max_tokens_field: provider.max_tokens if limit is None else limit,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= _sampling(request)
        if request.stopping.stop:
            body["stop"] = list(request.stopping.stop)
        if request.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": request.logprobs}
        if request.constraint is not None:
            body |= _form(request)
        if prompt.tools:
            body |= _tools(prompt.tools, request.tool_use)
        if request.reasoning.budget is not None:
            body["thinking_token_budget"] = request.reasoning.budget
        kwargs = dict(prompt.template_kwargs)
        effort = kwargs.pop("reasoning_effort", None)
        if effort is not None:
            body["reasoning_effort"] = effort
        if kwargs and "chat_template_kwargs" in provider.features:
            body["chat_template_kwargs"] = kwargs
        return body

    def answer(self, request: Request) -> "OpenAIAnswer":
        return OpenAIAnswer(request.id, request.n)

    def error_message(self, body: Any) -> str | None:
        if isinstance(body, list) and len(body) == 1:  # Google's way
            (body,) = body
        error = body.get("error") if isinstance(body, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        return message if isinstance(message, str) else None


class AzureWire(OpenAIWire):
    """The same, at a deployment's address and with the key in a header of its own."""

    def headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"api-key": key}


def _message(message: Message) -> dict[str, Any]:
    # OpenAI takes "system" for "developer" where a model knows the second only; others know just the first.
    said: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
    if message.name is not None and message.role != "tool":
        said["name"] = message.name
    if message.role == "tool":
        said["tool_call_id"] = outward(message.tool_call_id or "")
    if message.tool_calls:
        said["tool_calls"] = [
            {
                "id": outward(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    said["content"] = _content(message.content) if message.content or not message.tool_calls else None
    return said


def _content(parts: tuple[Part, ...]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, TextPart) for part in parts) and len(parts) <= 1:
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return [
        {"type": "image_url", "image_url": {"url": part.url, "detail": part.detail}}
        if isinstance(part, ImagePart)
        else {"type": "text", "text": part.text}
        for part in parts
    ]


def _sampling(request: Request) -> dict[str, Any]:
    """What differs from the defaults: some models take no value but their own."""
    sampling, stopping = request.sampling, request.stopping
    values: dict[str, tuple[Any, Any]] = {
        "temperature": (sampling.temperature, 1.0),
        "top_p": (sampling.top_p, 1.0),
        "presence_penalty": (sampling.presence_penalty, 0.0),
        "frequency_penalty": (sampling.frequency_penalty, 0.0),
        "seed": (sampling.seed, None),
        "n": (request.n, 1),
        "top_k": (sampling.top_k, 0),
        "min_p": (sampling.min_p, 0.0),
        "repetition_penalty": (sampling.repetition_penalty, 1.0),
        "min_tokens": (stopping.min_tokens, 0),
        "ignore_eos": (stopping.ignore_eos, False),
    }
    return {name: value for name, (value, default) in values.items() if value != default}


def _form(request: Request) -> dict[str, Any]:
    constraint = request.constraint
    assert constraint is not None  # noqa: S101 - the caller has looked
    if constraint.kind == "regex":
        return {"structured_outputs": {"regex": constraint.text}}
    if constraint.kind == "lark":
        return {"structured_outputs": {"grammar": constraint.text}}
    if constraint.text == ANY_OBJECT:
        return {"response_format": {"type": "json_object"}}
    schema = json.loads(constraint.text)
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": _is_strict(schema)},
        }
    }


def _is_strict(schema: Any) -> bool:
    """Whether OpenAI would take the schema as strict: every object closed, every property required."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) or schema.get("type") == "object":
        named = set(properties or {})
        required = schema.get("required", [])
        if schema.get("additionalProperties") is not False or not isinstance(required, list):
            return False
        if not all(isinstance(name, str) for name in required) or set(required) != named:
            return False
    return all(map(_is_strict, schema.values()))


def _tools(tools: tuple[Tool, ...], use: ToolUse | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": json.loads(tool.parameters),
                },
            }
            for tool in tools
        ]
    }
    if use is None:
        body["tool_choice"] = "none"
    elif use.only is not None:
        body["tool_choice"] = {"type": "function", "function": {"name": use.only}}
    else:
        body["tool_choice"] = use.choice
    if use is not None and not use.parallel:
        body["parallel_tool_calls"] = False
    return body


@dataclass(slots=True)
class _Choice:
    ids: Inward
    reason: FinishReason | None = None
    calls: dict[int, int] = field(default_factory=dict)  # the provider's index of a call: ours
    without_arguments: set[int] = field(default_factory=set)  # ours
    last: int = 0  # the provider's index of the call that was last heard of

    def stop(self, reason: Any) -> None:
        if reason in _GIVEN_UP:
            raise ProviderFault("it ended the answer with an error")
        if reason is not None:
            self.reason = _REASONS.get(reason, "stop") if isinstance(reason, str) else "stop"
            if self.calls and self.reason == "stop":
                self.reason = "tool_calls"


class OpenAIAnswer:
    def __init__(self, unique: str, n: int = 1) -> None:
        self._unique = unique
        self._n = n
        self._choices: dict[int, _Choice] = {}
        self._done = False
        self.claimed: Claimed | None = None

    def feed(self, name: str, data: str) -> list[Event]:  # noqa: ARG002 - OpenAI's events have no names
        if self._done:
            return []
        if data.strip() == _DONE:
            self._done = True
            return []
        chunk = json_object(data)
        if chunk.get("error"):
            raise ProviderFault(OpenAIWire().error_message(chunk) or "it reports an error")
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.claimed = _claimed(usage) or self.claimed
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            raise MalformedAnswer("an event of the stream has no choices")
        return [event for choice in choices for event in self._read(choice)]

    def end(self) -> list[Event]:
        if not self._done or not self._choices or any(choice.reason is None for choice in self._choices.values()):
            raise MalformedAnswer("the stream ended before the answer did")
        events: list[Event] = []
        for index, choice in sorted(self._choices.items()):
            events += [ToolCallDelta(index, call, None, None, "{}") for call in sorted(choice.without_arguments)]
            assert choice.reason is not None  # noqa: S101 - see above
            tokens = self.claimed.completion_tokens if self.claimed and index == 0 else 0
            events.append(Finished(index, choice.reason, tokens))
        return events

    def _read(self, said: Any) -> list[Event]:
        index = said.get("index", 0) if isinstance(said, dict) else None
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < self._n:
            raise MalformedAnswer("a choice of the stream is none that was asked for")
        events: list[Event] = []
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(Inward(f"{self._unique}/{index}"))
            events.append(Started(index, 0, 0, 0.0))
        # Servers that do not stream answer with a message.
        delta = said.get("delta") or said.get("message") or {}
        if not isinstance(delta, dict):
            raise MalformedAnswer("a choice of the stream has no delta")
        if thought := text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning")):
            events.append(ReasoningDelta(index, thought, 0))
        text, logprobs = text_of(delta.get("content")), _logprobs(said.get("logprobs"))
        if text or logprobs:
            events.append(Delta(index, text, 0, logprobs))
        if refusal := text_of(delta.get("refusal")):
            events.append(RefusalDelta(index, refusal))
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise MalformedAnswer("the tool calls of the stream are no list")
        for call in calls:
            events += self._call(index, choice, call)
        choice.stop(said.get("finish_reason"))
        return events

    def _call(self, index: int, choice: _Choice, call: Any) -> list[Event]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise MalformedAnswer("a tool call of the stream has no function")
        name, arguments = text_of(function.get("name")), function.get("arguments") or ""
        if isinstance(arguments, dict):  # some servers send what they should send as text
            arguments = json.dumps(arguments)
        if not isinstance(arguments, str):
            raise MalformedAnswer("the arguments of a tool call are no text")
        arguments = text_of(arguments)
        theirs = call.get("index")
        if not isinstance(theirs, int):  # a server without indices sends each call whole
            theirs = max(choice.calls, default=-1) + 1 if name else choice.last
        choice.last = theirs
        events: list[Event] = []
        if theirs not in choice.calls:
            if not name:
                raise MalformedAnswer("a tool call of the stream has no name")
            choice.calls[theirs] = len(choice.calls)
            choice.without_arguments.add(choice.calls[theirs])
            events.append(ToolCallDelta(index, choice.calls[theirs], choice.ids.id(call.get("id")), name, ""))
        if arguments:
            choice.without_arguments.discard(choice.calls[theirs])
            events.append(ToolCallDelta(index, choice.calls[theirs], None, None, arguments))
        return events


def _claimed(usage: dict[str, Any]) -> Claimed | None:
    """None: it names no numbers."""

    def count(value: Any) -> int:
        return token_count(value) or 0

    def detail(of: str, name: str) -> int:
        details = usage.get(of)
        return count(details.get(name)) if isinstance(details, dict) else 0

    prompt, completion = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    return Claimed(
        prompt_tokens=prompt,
        cached_tokens=min(prompt, detail("prompt_tokens_details", "cached_tokens")),
        completion_tokens=completion,
        reasoning_tokens=min(completion, detail("completion_tokens_details", "reasoning_tokens")),
    )


def _logprobs(said: Any) -> tuple[TokenLogprob, ...]:
    content = said.get("content") if isinstance(said, dict) else None
    if not isinstance(content, list):
        return ()
    return tuple(_logprob(entry) for entry in content if isinstance(entry, dict))


def _logprob(entry: dict[str, Any]) -> TokenLogprob:
    value, top = _finite(entry.get("logprob")), entry.get("top_logprobs")
    raw = entry.get("bytes")
    token = bytes(raw) if isinstance(raw, list) and all(isinstance(b, int) and 0 <= b < 256 for b in raw) else None
    return TokenLogprob(
        token_id=_NO_TOKEN,
        token=text_of(entry.get("token")).encode() if token is None else token,
        logprob=value,
        top=tuple(_logprob(other) for other in top if isinstance(other, dict)) if isinstance(top, list) else (),
    )


def _finite(value: Any) -> float:
    """A log-probability that JSON can say: of what has none, as OpenAI does, -9999."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _NONE
    return number if math.isfinite(number) else _NONE
