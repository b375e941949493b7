"""What every provider's wire format can do."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.protocol import Event, Request
from fallback.provider import Provider

MAX_TOKENS = 2**40  # beyond any sense, and within what a database can hold


class MalformedAnswer(Exception):
    """What came is not the format that was agreed on, or ends before its end."""


class ProviderFault(Exception):
    """The provider says, in the middle of an answer, that it cannot go on."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Tokens, as the provider counts them. Prompt tokens include the cached ones."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int


def json_object(data: str) -> dict[str, Any]:
    """Of an event's data. Raises `MalformedAnswer`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedAnswer("an event of the stream is not JSON") from None
    if not isinstance(value, dict):
        raise MalformedAnswer("an event of the stream is no object")
    return value


def text_of(value: Any) -> str:
    """A string without halves of surrogate pairs, which JSON can hold and no answer of ours; "" for what is none."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def token_count(value: Any) -> int | None:
    """None: it is no number of tokens."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_TOKENS else None


class Answer(Protocol):
    """One answer, as its events of the stream come in."""

    @property
    def claimed(self) -> Claimed | None:
        """What the provider said of usage so far."""
        ...

    def feed(self, name: str, data: str) -> list[Event]:
        """What a server-sent event tells: no `Finished` and no usage, which wait for the end.

        Raises `MalformedAnswer` and `ProviderFault`.
        """
        ...

    def end(self) -> list[Event]:
        """The `Finished` of each choice, when the stream has ended. Raises `MalformedAnswer` if it ended too soon."""
        ...


class Wire(Protocol):
    def url(self, provider: Provider) -> str: ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, request: Request, provider: Provider) -> dict[str, Any]: ...

    def answer(self, request: Request) -> Answer: ...

    def error_message(self, body: Any) -> str | None:
        """What the body of an error answer says, if it is one."""
        ...
