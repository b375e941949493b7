"""Takes what is private out of a request before it leaves, and puts it back into the answer. Pure.

Each find becomes a placeholder that a model can repeat, `[EMAIL_1]`, the same one for the same text. It finds what has
a form: it is a help against slips, no proof that nothing private goes out. Names have no form.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from appliance.protocol import (
    ChatPrompt,
    Delta,
    Event,
    Finished,
    Message,
    Private,
    ReasoningDelta,
    RefusalDelta,
    Request,
    TextPart,
    ToolCallDelta,
)

_LONGEST_PLACEHOLDER: Final = len("[SECRET_999999]")
# In this order: a key may hold digits that look like a card, and a card's look like a telephone.
_FORMS: Final[tuple[tuple[Private, re.Pattern[str]], ...]] = (
    (
        "secret",
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
            r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"  # a JSON web token
            r"|\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}"
            r"|\b(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs]|hf|npm|pypi)[-_][\w-]{16,}"
            r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
            r"|\bAIza[\w-]{35}"
            r"|(?i:\b(?:api[_-]?key|secret|passw(?:or)?d|pwd|token)\b[\"']?\s{0,3}[:=]\s{0,3}[\"']?)"
            r"(?P<value>[^\s\"',;]{6,})",
            re.DOTALL,
        ),
    ),
    ("email", re.compile(r"\b[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")),
    ("card", re.compile(r"(?<![\d.-])\d(?:[ -]?\d){12,18}(?![\d-])")),
    ("phone", re.compile(r"(?<![\w.])(?:\+\d{1,3}[ .-]?)?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]\d{2,4}){1,4}(?![\w-])"
                         r"|(?<![\w.])\+\d{8,15}(?!\w)")),
)  # fmt: skip


class Redaction:
    """Of one request."""

    def __init__(self, patterns: frozenset[Private]) -> None:
        self._patterns = patterns
        self._placeholders: dict[str, str] = {}  # what was found: what stands for it
        self._held: dict[tuple[int, str], str] = {}  # ends of pieces that may be half a placeholder

    def outward(self, request: Request) -> Request:
        if not self._patterns:
            return request
        prompts = [
            replace(prompt, messages=tuple(map(self._message, prompt.messages)))
            if isinstance(prompt, ChatPrompt)
            else prompt
            for prompt in request.prompts
        ]
        return replace(request, prompts=tuple(prompts))

    def inward(self, event: Event) -> list[Event]:
        """The event with what was taken out; what may be half a placeholder waits for the next piece."""
        if not self._placeholders:
            return [event]
        match event:
            case Delta() | ReasoningDelta() | RefusalDelta():
                return self._piece(event, type(event).__name__, lambda text: replace(event, text=text), event.text)
            case ToolCallDelta():
                place = f"call {event.index}"
                return self._piece(event, place, lambda text: replace(event, arguments=text), event.arguments)
            case Finished():
                return [*self._flushed(event.choice), event]
        return [event]

    def _message(self, message: Message) -> Message:
        content = tuple(
            replace(part, text=self._without(part.text)) if isinstance(part, TextPart) else part
            for part in message.content
        )
        calls = tuple(replace(call, arguments=self._without(call.arguments)) for call in message.tool_calls)
        return replace(message, content=content, tool_calls=calls)

    def _without(self, text: str) -> str:
        for kind, form in _FORMS:
            if kind in self._patterns:
                text = form.sub(lambda found, kind=kind: self._stand_in(kind, found), text)  # type: ignore[misc] # mypy knows no default here
        return text

    def _stand_in(self, kind: Private, found: re.Match[str]) -> str:
        whole = found[0]
        value = found.groupdict().get("value") or whole
        if kind == "card" and not _is_card(value):
            return whole
        if kind == "phone" and not 7 <= sum(c.isdigit() for c in value) <= 15:
            return whole
        if value not in self._placeholders:
            self._placeholders[value] = f"[{kind.upper()}_{len(self._placeholders) + 1}]"
        return whole.replace(value, self._placeholders[value])

    def _piece(self, event: Any, kind: str, made: Callable[[str], Event], text: str) -> list[Event]:
        place = event.choice, kind
        text = self._held.pop(place, "") + text
        start = text.rfind("[", max(0, len(text) - _LONGEST_PLACEHOLDER))
        if start >= 0 and any(mark.startswith(text[start:]) and mark != text[start:] for mark in self._marks()):
            self._held[place], text = text[start:], text[:start]
            if not text and not (isinstance(event, ToolCallDelta) and event.id is not None):
                return []
        return [made(self._with(text, in_json=kind.startswith("call")))]

    def _flushed(self, choice: int) -> Iterator[Event]:
        for place in [place for place in self._held if place[0] == choice]:
            text, kind = self._held.pop(place), place[1]
            match kind:
                case "Delta":
                    yield Delta(choice, text, 0)
                case "ReasoningDelta":
                    yield ReasoningDelta(choice, text, 0)
                case "RefusalDelta":
                    yield RefusalDelta(choice, text)
                case _:
                    yield ToolCallDelta(choice, int(kind.removeprefix("call ")), None, None, text)

    def _marks(self) -> Iterator[str]:
        yield from self._placeholders.values()

    def _with(self, text: str, *, in_json: bool) -> str:
        if "[" in text:
            for value, mark in self._placeholders.items():
                text = text.replace(mark, json.dumps(value)[1:-1] if in_json else value)
        return text


def _is_card(text: str) -> bool:
    """Luhn's check, which nine of ten numbers that are no card fail."""
    digits = [int(c) for c in text if c.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return 13 <= len(digits) <= 19 and (sum(doubled) + sum(digits[-1::-2])) % 10 == 0
