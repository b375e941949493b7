"""A request's events as OpenAI's answers: stream chunks as they come, or one body of them all.

Pure: no clock, no socket. One serializer serves one request and counts its usage. `frames` is what a stream sends;
`chunks` is the same as plain objects, and says what the bytes must be.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from appliance.api import sse
from appliance.api.openai.logprobs import CompletionLogprobs, chat_logprobs
from appliance.api.openai.usage import UsageMeter
from appliance.errors import from_code
from appliance.protocol import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Queued,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Started,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)

_HOLE: Final = "\0"  # stands for the text while a frame is cut in two around it


@dataclass(slots=True)
class _Answer:
    """What one choice has said so far."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    reason: FinishReason | None = None

    def add(self, event: Event) -> None:
        match event:
            case Started():
                if event.prompt_text:
                    self.texts.append(event.prompt_text)
            case ReasoningDelta():
                self.thoughts.append(event.text)
            case Delta():
                self.texts.append(event.text)
                self.logprobs.extend(event.logprobs)
            case RefusalDelta():
                self.refusals.append(event.text)
            case ToolCallDelta(id=str() as call_id, name=str() as name):
                self.calls.append(ToolCall(call_id, name, event.arguments))
            case ToolCallDelta():
                last = self.calls[-1]
                self.calls[-1] = replace(last, arguments=last.arguments + event.arguments)
            case Finished():
                self.reason = event.reason


class Serializer(ABC):
    _id_prefix: ClassVar[str]
    _object: ClassVar[str]
    _chunk_object: ClassVar[str]

    def __init__(self, request: Request, *, created: int, model: str, system_fingerprint: str | None = None) -> None:
        """`created` is Unix time in seconds; `model` is the name the client sees."""
        self._request = request
        self._usage = UsageMeter(request)
        self._head = {
            "id": self._id_prefix + request.id,
            "object": self._chunk_object,
            "created": created,
            "model": model,
            "system_fingerprint": system_fingerprint,
        }
        self._cuts: dict[int, tuple[bytes, bytes]] = {}

    def answered_by(self, model: str) -> None:
        """It turned out to be another model. Before the first frame only."""
        self._head["model"] = model

    def frames(self, event: Event) -> bytes:
        """The server-sent events, ready to send, for one event; empty when it shows nothing.

        Raises an `ApplianceError` for `Failed`.
        """
        # One of these runs for every token of every stream, so a text goes between two ready-made halves.
        if type(event) is Delta and not event.logprobs:
            if not event.text:
                return b""
            before, after = self._cuts.get(event.choice) or self._cut(event.choice)
            return before + sse.json_bytes(event.text) + after
        return b"".join(sse.event(chunk) for chunk in self.chunks(event))

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        """The stream's chunks for one event. With `include_usage`, the last `Finished` gives the usage chunk too.

        Raises an `ApplianceError` for `Failed`.
        """
        self._usage.saw(event)
        match event:
            case Started():
                opening = self._opening(event)
                pieces = [] if opening is None else [opening]
            case ReasoningDelta():
                pieces = [self._thought(event)] if event.text else []
            case Delta():
                pieces = [self._delta(event)] if event.text or event.logprobs else []
            case RefusalDelta():
                pieces = [self._refusal(event)]
            case ToolCallDelta():
                pieces = [self._call(event)]
            case Finished():
                pieces = [self._closing(event)]
            case Usage() | Queued():
                pieces = []
            case Failed():
                raise from_code(event.code, event.message, event.param)
        chunks = [self._chunk(piece) for piece in pieces]
        if isinstance(event, Finished) and self._request.include_usage and self._usage.complete:
            chunks.append({**self._head, "choices": [], "usage": self.usage()})
        return chunks

    def whole(self, events: Iterable[Event]) -> dict[str, Any]:
        """The body of a plain answer, from all events of all choices.

        Raises an `ApplianceError` for `Failed`.
        """
        answers: defaultdict[int, _Answer] = defaultdict(_Answer)
        for event in events:
            self._usage.saw(event)
            if isinstance(event, Failed):
                raise from_code(event.code, event.message, event.param)
            if not isinstance(event, Usage | Queued):
                answers[event.choice].add(event)
        choices = [self._choice(index, answer) for index, answer in sorted(answers.items())]
        return {**self._head, "object": self._object, "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object for the events seen so far."""
        return self._usage.body()

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head, "choices": [choice]}
        if self._request.include_usage:
            chunk["usage"] = None
        return chunk

    def _cut(self, choice: int) -> tuple[bytes, bytes]:
        frame = sse.event(self._chunk(self._delta(Delta(choice, _HOLE, 1))))
        # The last one: the model's name, which comes before, could hold the character too.
        before, _, after = frame.rpartition(sse.json_bytes(_HOLE))
        self._cuts[choice] = before, after
        return before, after

    @abstractmethod
    def _opening(self, event: Started) -> dict[str, Any] | None:
        """The chunk's choice that opens a choice, if any."""

    @abstractmethod
    def _delta(self, event: Delta) -> dict[str, Any]: ...

    @abstractmethod
    def _thought(self, event: ReasoningDelta) -> dict[str, Any]: ...

    @abstractmethod
    def _refusal(self, event: RefusalDelta) -> dict[str, Any]: ...

    @abstractmethod
    def _call(self, event: ToolCallDelta) -> dict[str, Any]: ...

    @abstractmethod
    def _closing(self, event: Finished) -> dict[str, Any]: ...

    @abstractmethod
    def _choice(self, index: int, answer: _Answer) -> dict[str, Any]:
        """A choice of a plain answer."""


class ChatSerializer(Serializer):
    _id_prefix = "chatcmpl-"
    _object = "chat.completion"
    _chunk_object = "chat.completion.chunk"

    def _opening(self, event: Started) -> dict[str, Any]:
        content = None if self._request.tool_use is not None else ""  # it may turn out to be a call
        return self._piece(event.choice, {"role": "assistant", "content": content})

    def _delta(self, event: Delta) -> dict[str, Any]:
        logprobs = chat_logprobs(event.logprobs) if event.logprobs else None
        return self._piece(event.choice, {"content": event.text}, logprobs)

    def _thought(self, event: ReasoningDelta) -> dict[str, Any]:
        return self._piece(event.choice, {"reasoning_content": event.text})

    def _refusal(self, event: RefusalDelta) -> dict[str, Any]:
        return self._piece(event.choice, {"refusal": event.text})

    def _call(self, event: ToolCallDelta) -> dict[str, Any]:
        call: dict[str, Any] = {"index": event.index}
        if event.id is not None:
            call |= {"id": event.id, "type": "function"}
        named = {} if event.name is None else {"name": event.name}
        return self._piece(
            event.choice, {"tool_calls": [{**call, "function": {**named, "arguments": event.arguments}}]}
        )

    def _closing(self, event: Finished) -> dict[str, Any]:
        return self._piece(event.choice, {}, reason=event.reason)

    def _piece(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        reason: FinishReason | None = None,
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _choice(self, index: int, answer: _Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(answer.texts), "refusal": None}
        if answer.calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.calls
            ]
        if refusal := "".join(answer.refusals):
            message |= {"content": message["content"] or None, "refusal": refusal}
        if thoughts := "".join(answer.thoughts):
            message["reasoning_content"] = thoughts
        return {
            "index": index,
            "message": message,
            "logprobs": None if self._request.logprobs is None else chat_logprobs(answer.logprobs),
            "finish_reason": answer.reason,
        }


class CompletionSerializer(Serializer):
    _id_prefix = "cmpl-"
    _object = "text_completion"
    _chunk_object = "text_completion"

    def __init__(self, request: Request, *, created: int, model: str, system_fingerprint: str | None = None) -> None:
        super().__init__(request, created=created, model=model, system_fingerprint=system_fingerprint)
        self._logprobs: defaultdict[int, CompletionLogprobs] = defaultdict(CompletionLogprobs)

    def _opening(self, event: Started) -> dict[str, Any] | None:
        return self._piece(event.choice, event.prompt_text) if event.prompt_text else None

    def _delta(self, event: Delta) -> dict[str, Any]:
        logprobs = self._logprobs[event.choice].body(event.logprobs) if event.logprobs else None
        return self._piece(event.choice, event.text, logprobs)

    def _thought(self, event: ReasoningDelta) -> dict[str, Any]:
        raise AssertionError(f"a text completion is not looked into, and yet thinks {event.text!r}")

    def _refusal(self, event: RefusalDelta) -> dict[str, Any]:
        raise AssertionError(f"no frontier model is given a text completion, and yet it refuses: {event.text!r}")

    def _call(self, event: ToolCallDelta) -> dict[str, Any]:
        raise AssertionError(f"a text completion is offered no tools, and yet calls {event.name}")

    def _closing(self, event: Finished) -> dict[str, Any]:
        return self._piece(event.choice, "", reason=event.reason)

    def _choice(self, index: int, answer: _Answer) -> dict[str, Any]:
        logprobs = None if self._request.logprobs is None else CompletionLogprobs().body(answer.logprobs)
        return self._piece(index, "".join(answer.texts), logprobs, answer.reason)

    def _piece(
        self,
        index: int,
        text: str,
        logprobs: dict[str, Any] | None = None,
        reason: FinishReason | None = None,
    ) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
