"""An answer as bytes, and back as the events of a normal one. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_type_hints

import msgpack

from appliance.protocol import Delta, Event, Finished, ReasoningDelta, Started, Usage

_VERSION: Final = 1
PIECE_CHARACTERS: Final = 64  # of a replayed stream: as if some tokens came together


class UnreadableAnswer(Exception):
    """The bytes are no answer of this version."""


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    reasoning: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    thinking: bool  # as `Started` has it


_KINDS: Final = get_type_hints(Answer)


def answer_of(events: Sequence[Event], model: str) -> Answer:
    """Of the events of one whole choice."""
    started = next(event for event in events if isinstance(event, Started))
    finished = next(event for event in events if isinstance(event, Finished))
    usage = next((event for event in events if isinstance(event, Usage)), None)
    thoughts = [event for event in events if isinstance(event, ReasoningDelta)]
    return Answer(
        text=text_of(events),
        reasoning="".join(event.text for event in thoughts),
        model=model if started.model is None else started.model,
        prompt_tokens=started.prompt_tokens if usage is None else usage.prompt_tokens,
        completion_tokens=finished.completion_tokens if usage is None else usage.completion_tokens,
        reasoning_tokens=sum(event.tokens for event in thoughts) if usage is None else usage.reasoning_tokens,
        thinking=started.thinking,
    )


def text_of(events: Sequence[Event]) -> str:
    """What the client is told, thoughts apart."""
    return "".join(event.text for event in events if isinstance(event, Delta))


def packed(answer: Answer) -> bytes:
    fields = (getattr(answer, name) for name in Answer.__slots__)
    data: bytes = msgpack.packb([_VERSION, *fields], unicode_errors="surrogatepass")
    return data


def unpacked(data: bytes) -> Answer:
    """Raises `UnreadableAnswer`."""
    try:
        version, *fields = msgpack.unpackb(data, unicode_errors="surrogatepass")
        if version != _VERSION:
            raise UnreadableAnswer(f"it has version {version}")
        answer = Answer(*fields)
        for name, kind in _KINDS.items():
            if type(getattr(answer, name)) is not kind:
                raise UnreadableAnswer(f"its {name} is of another kind")
    except (msgpack.UnpackException, ValueError, TypeError) as error:
        raise UnreadableAnswer(str(error)) from error
    return answer


def events_of(answer: Answer) -> Iterator[Event]:
    """As the engine would have sent them. Nothing was computed for any of its tokens."""
    yield Started(0, answer.prompt_tokens, answer.prompt_tokens, 0.0, thinking=answer.thinking, model=answer.model)
    if answer.reasoning or answer.reasoning_tokens:
        yield ReasoningDelta(0, answer.reasoning, answer.reasoning_tokens)
    spoken = answer.completion_tokens - answer.reasoning_tokens
    parts = [answer.text[i : i + PIECE_CHARACTERS] for i in range(0, len(answer.text), PIECE_CHARACTERS)] or [""]
    for i, part in enumerate(parts):
        yield Delta(0, part, spoken * (i + 1) // len(parts) - spoken * i // len(parts))
    yield Finished(0, "stop", answer.completion_tokens)
