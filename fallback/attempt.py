"""One exchange with one provider: a request out, a stream of events back, within limits.

It knows no other provider, no money and no second try; what went wrong is an `AttemptFailed` that says what it means
for these.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import httpx

from appliance.protocol import Delta, Event, ReasoningDelta, RefusalDelta, Request, ToolCallDelta
from fallback.gate import PRIVACY, EgressRefused
from fallback.provider import Provider
from fallback.retry import RETRIED, retry_after_s
from fallback.wire import Answer, MalformedAnswer, ProviderFault, wire_of
from fallback.wire.contract import Claimed
from fallback.wire.sse import EventStream

MAX_ERROR_BYTES = 64 * 1024
MAX_PLAIN_BYTES = 32 * 2**20  # of an answer that is not streamed
LONGEST_MESSAGE = 300
USER_AGENT = "inference-appliance"
_AT_FAULT = frozenset({400, 413, 415, 422})  # the request is: no other time would help

# failed: the provider did not answer; limited: it asked for a pause; key: it does not take the key;
# request: it does not take the request; refused: the gate; expired: the request's own deadline
# held-back: it was not asked at all
FailureKind = Literal["failed", "limited", "key", "request", "refused", "expired", "held-back"]


class AttemptFailed(Exception):
    """The message is for a client, and so has no key and no address in it."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        status: int | None = None,
        retriable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message
        self.status = status
        self.retriable = retriable
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Progress:
    """What has come of an attempt; times are the event loop's, in seconds."""

    began_s: float
    first_s: float | None = None
    text_s: list[float] = field(default_factory=list)  # when each piece came
    texts: list[str] = field(default_factory=list)
    claimed: Claimed | None = None
    complete: bool = False

    def note(self, event: Event, now_s: float) -> None:
        match event:
            case Delta(text=text) | ReasoningDelta(text=text) | RefusalDelta(text=text):
                self.texts.append(text)
            case ToolCallDelta():
                self.texts.append((event.name or "") + event.arguments)
            case _:
                return
        self.first_s = now_s if self.first_s is None else self.first_s
        self.text_s.append(now_s)


class Attempt:
    def __init__(self, client: httpx.AsyncClient, provider: Provider, key: str | None) -> None:
        self._client = client
        self._provider = provider
        self._key = key
        self._wire = wire_of(provider.kind)

    def __repr__(self) -> str:
        return f"Attempt({self._provider.name!r})"

    async def events(self, request: Request, body: bytes, progress: Progress) -> AsyncGenerator[Event | None, None]:
        """The answer's events, `Finished` last, and None whenever something came that tells nothing yet.

        It has no limits of time but that of connecting. Raises `AttemptFailed`.
        """
        provider, loop = self._provider, asyncio.get_running_loop()
        try:
            response = await self._client.send(self._request(request, body), stream=True)
            async with aclosing(response):
                if response.status_code != 200:
                    raise await self._refused(response)
                async with aclosing(self._read(response, request, progress)) as events:
                    async for event in events:
                        if event is not None:
                            progress.note(event, loop.time())
                        yield event
            progress.complete = True
        except EgressRefused as error:
            raise AttemptFailed("refused", str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise AttemptFailed("failed", f"{provider.name}: {_in_words(error)}", retriable=True) from None
        except MalformedAnswer as error:
            raise AttemptFailed("failed", f"{provider.name}: {error}", retriable=True) from None
        except ProviderFault as error:
            said = self._clean(str(error))
            raise AttemptFailed("failed", f"{provider.name} broke off: {said}", retriable=True) from None

    def _request(self, request: Request, body: bytes) -> httpx.Request:
        provider = self._provider
        timeout = httpx.Timeout(None, connect=provider.connect_timeout_s, pool=provider.connect_timeout_s)
        return self._client.build_request(
            "POST",
            self._wire.url(provider),
            content=body,
            headers={
                "content-type": "application/json",
                "accept": "text/event-stream, application/json",
                "user-agent": USER_AGENT,
                **self._wire.headers(self._key),
            },
            timeout=timeout,
            extensions={PRIVACY: request.hints.privacy},
        )

    async def _read(
        self, response: httpx.Response, request: Request, progress: Progress
    ) -> AsyncGenerator[Event | None, None]:
        answer = self._wire.answer(request)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json" and self._provider.kind != "anthropic":  # it does not stream
            for event in _fed(answer, "", (await _whole(response, MAX_PLAIN_BYTES)).decode("utf-8", "replace")):
                yield event
            answer.feed("", "[DONE]")
        elif kind == "text/event-stream":
            stream = EventStream()
            async for data in response.aiter_bytes():
                yield None
                for name, text in stream.feed(data):
                    for event in _fed(answer, name, text):
                        progress.claimed = answer.claimed
                        yield event
        else:
            raise MalformedAnswer(f"it answers with {self._clean(kind) or 'no type'} instead of a stream of events")
        progress.claimed = answer.claimed
        for event in answer.end():
            yield event

    async def _refused(self, response: httpx.Response) -> AttemptFailed:
        status, provider = response.status_code, self._provider
        body: Any = None
        with suppress(ValueError, RecursionError, MalformedAnswer):  # what it says in another form is not repeated
            body = json.loads(await _whole(response, MAX_ERROR_BYTES))
        said = self._clean(self._wire.error_message(body) or "")
        words = f"{provider.name} answered {status}" + (f": {said}" if said else "")
        pause_s = retry_after_s(response.headers, body, datetime.now(UTC))
        if status == 429:
            return AttemptFailed("limited", words, status=status, retriable=True, retry_after_s=pause_s)
        if status in (401, 403):
            # Its message may show a part of the key.
            return AttemptFailed("key", f"{provider.name} does not accept its key ({status})", status=status)
        if status in _AT_FAULT:
            return AttemptFailed("request", words, status=status)
        return AttemptFailed("failed", words, status=status, retriable=status in RETRIED, retry_after_s=pause_s)

    def _clean(self, text: str) -> str:
        """What an upstream says, as part of a message of ours: short, in one line, without the key."""
        if self._key:
            text = text.replace(self._key, "[key]")
        return "".join(c if c.isprintable() else " " for c in text[:LONGEST_MESSAGE]).strip().rstrip(".")


def _fed(answer: Answer, name: str, text: str) -> list[Event]:
    """What the event tells. Raises `MalformedAnswer` also for what the reader of the format did not foresee."""
    try:
        return answer.feed(name, text)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise MalformedAnswer(f"the stream is not in the agreed format ({type(error).__name__})") from error


async def _whole(response: httpx.Response, limit_bytes: int) -> bytes:
    data = bytearray()
    async for part in response.aiter_bytes():
        data += part
        if len(data) > limit_bytes:
            raise MalformedAnswer(f"its answer is larger than {limit_bytes} bytes")
    return bytes(data)


def _in_words(error: Exception) -> str:
    """Without what the library says of addresses."""
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return "no connection in time"
    if isinstance(error, httpx.ConnectError):
        return "it cannot be connected to"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return "the connection ended before the answer did"
    return f"the exchange failed ({type(error).__name__})"
