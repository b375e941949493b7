"""The messages of a request as turns whose strings can be followed into the prompt, and what must arrive there.

Pure. It knows what a client may send (`protocol`) and nothing about templates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.protocol import Message, TextPart, ToolCall
from runtimes import strict_json
from runtimes.templates.provenance import UNKNOWN, Run, Traced, from_client
from runtimes.templates.result import TemplateError

# What a reasoning model thought in an earlier turn ends here. Its templates leave that out, as they should.
END_OF_REASONING = ("</think>", "[/THINK]")


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str  # as the client sent them
    parsed: dict[str, Any] | None  # None: not a JSON object that survives being read and written again


@dataclass(frozen=True, slots=True)
class Turn:
    role: str
    texts: tuple[str, ...]
    origins: tuple[int, ...]  # indices of the messages it was made from
    name: str | None = None
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)  # need not arrive


@dataclass(frozen=True, slots=True)
class Claim:
    """Texts of a message that must reach the prompt, in one of several ways. A way lists sources."""

    message: int
    ways: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Conversation:
    """Turns as the client sent them, with the text behind each source."""

    turns: list[Turn] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)  # by number; blank out what need not arrive
    claims: list[Claim] = field(default_factory=list)

    def trace(self, text: str, needed: str | None = None) -> Traced:
        """Numbers a text. `needed` is its end that must arrive, all of it by default."""
        kept = text if needed is None else needed
        self.sources.append(" " * (len(text) - len(kept)) + kept)
        return from_client(text, len(self.sources) - 1)

    def trace_all(self, value: Any) -> Any:
        """The same JSON value with every string in it, keys too, numbered."""
        if isinstance(value, str):
            return self.trace(value)
        if isinstance(value, (list, tuple)):
            return [self.trace_all(item) for item in value]
        if isinstance(value, dict):
            return {self.trace(key): self.trace_all(item) for key, item in value.items()}
        return value

    def missing(self, runs: Iterable[Run]) -> int | None:
        """The first message of which something but blanks is not in the prompt, or None."""
        exact: dict[int, list[tuple[int, int]]] = {}
        whole: set[int] = set()
        for run in runs:
            if run.sources is None:
                continue
            if run.offset == UNKNOWN:
                whole.update(run.sources)
            else:
                exact.setdefault(run.sources[0], []).append((run.offset, run.offset + run.length))

        def arrived(source: int) -> bool:
            if source in whole:
                return True
            text, position = self.sources[source], 0
            for low, high in sorted(exact.get(source, ())):
                if text[position:low].strip():
                    return False
                position = max(position, high)
            return not text[position:].strip()

        lost = (claim.message for claim in self.claims if not any(all(map(arrived, way)) for way in claim.ways))
        return min(lost, default=None)


def conversation(messages: Sequence[Message]) -> Conversation:
    """Raises `TemplateError` for what no text model can read."""
    if not messages:
        raise TemplateError("there is nothing to answer; send at least one message", "messages")
    made = Conversation()
    names: dict[str, str] = {}  # of the functions, by the id of the call
    for index, message in enumerate(messages):
        texts = tuple(_texts(made, message, index))
        calls = tuple(_call(made, call, index) for call in message.tool_calls)
        names |= {call.id: call.name for call in calls}
        name = message.name or names.get(message.tool_call_id or "")
        made.turns.append(
            Turn(
                role=message.role,
                texts=texts,
                origins=(index,),
                name=None if name is None else made.trace(name),
                calls=calls,
                call_id=None if message.tool_call_id is None else made.trace(message.tool_call_id),
                attributes={key: made.trace(text) for key, text in message.attributes.items()},
            )
        )
    return made


def _texts(made: Conversation, message: Message, index: int) -> Iterator[str]:
    texts: list[str] = []
    for position, part in enumerate(message.content):
        if not isinstance(part, TextPart):
            where = f"messages[{index}].content[{position}]"
            raise TemplateError(f"{where} is an image; this model reads text only, so leave images out", where)
        texts.append(part.text)
    for text, needed in zip(texts, _after_reasoning(texts) if message.role == "assistant" else texts, strict=True):
        made.claims.append(Claim(index, ((len(made.sources),),)))
        yield made.trace(text, needed)


def _after_reasoning(texts: Sequence[str]) -> list[str]:
    """The end of each text that follows the last mark, in whichever text that is."""
    needed = list(texts)
    for at, text in enumerate(texts):
        for end in END_OF_REASONING:
            if end in text:
                needed[:at] = [""] * at
                needed[at] = min(needed[at], text.rpartition(end)[2], key=len)
    return needed


def _call(made: Conversation, call: ToolCall, index: int) -> Call:
    name = made.trace(call.name)
    arguments = made.trace(call.arguments)
    first = len(made.sources)
    made.claims.append(Claim(index, ((first - 2,),)))
    try:
        parsed = made.trace_all(parsed_arguments(call.arguments))
    except RecursionError:  # nested too deep to be walked: it stays text
        parsed = None
    ways = ((first - 1,),) if parsed is None else ((first - 1,), tuple(range(first, len(made.sources))))
    made.claims.append(Claim(index, ways))
    return Call(made.trace(call.id), name, arguments, parsed)


def parsed_arguments(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`, or None when it is none or would not come back the same: doubled keys, NaN."""
    try:
        value = strict_json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("doubled key")
    return made
