"""HTTP/1.1 connections with limits: uvicorn's httptools protocol, plus what it leaves open.

Passed as `uvicorn.Config(http=limited_protocol(limits))`. It closes connections that say nothing, that take too long
over a request's head or body, or that don't read their answer; it bounds heads, pipelines and the number of
connections; and what it refuses it answers with a JSON error where HTTP allows one. The memory that a client can make a
connection hold is bounded: uvicorn stops reading at 64 KiB of body that the application has not taken, and makes `send`
wait at 64 KiB of answer that the client has not.

Each connection has one timer at most. It is not moved when a deadline moves further away: it fires, finds the later
deadline and sleeps again. So an idle connection costs one wake-up in `idle_timeout_s`, and a usual request none.

Knows no application: below it are bytes, above it ASGI.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from appliance.errors import ApplianceError, HeadersTooLarge, InvalidRequest, Overloaded, RequestTimeout


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    header_timeout_s: float  # from the first byte of a request to the end of its head
    body_timeout_s: float  # longest pause within a body; a body at `min_bytes_per_s` may take that much longer
    idle_timeout_s: float  # a connection without a request
    max_connections: int
    max_head_bytes: int = 64 * 1024
    max_headers: int = 100
    max_pipelined: int = 16  # requests waiting behind the one being answered; real clients send none
    min_bytes_per_s: int = 1024  # of a body that takes longer than `body_timeout_s`: below any real network
    # Between two pieces taken of an answer that fills every buffer. The kernel passes its own on in steps of a third of
    # its size, which may be 4 MB, so that this asks for some 20 kB/s of a client with megabytes outstanding.
    stalled_reader_timeout_s: float = 60.0
    linger_s: float = 2.0  # what a refused client gets to read the answer, and an answered one to finish its body


def limited_protocol(limits: ConnectionLimits) -> type["LimitedHttpProtocol"]:
    """The protocol class for `uvicorn.Config(http=...)`, which takes a class and no arguments for it."""
    return type("LimitedHttpProtocol", (LimitedHttpProtocol,), {"limits": limits})


class _Flow(FlowControl):
    """Also says when reading goes on: a client is not to blame for the time in which nobody listened."""

    def __init__(self, transport: asyncio.Transport, on_resume: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_resume = on_resume

    def resume_reading(self) -> None:
        if self.read_paused:
            super().resume_reading()
            self._on_resume()


class LimitedHttpProtocol(HttpToolsProtocol):
    limits: ClassVar[ConnectionLimits]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.ws_protocol_class = None  # nothing speaks WebSocket; an offer to upgrade is declined
        self._reading: Literal["nothing", "head", "body"] = "nothing"  # what of a message is not whole yet
        self._answering: RequestResponseCycle | None = None  # the oldest unanswered request; `cycle` is the newest
        self._refused = False  # no further byte is looked at
        self._head_bytes = 0
        self._upgrade_offered = False
        self._got_somewhere = False  # within one `data_received`
        self._fruitless_bytes = 0  # since a head, a body or a piece of one was last complete
        self._since_s = self.loop.time()  # when `_reading`, `_answering` or `_refused` last changed
        self._progress_s = self._since_s  # when a piece of body last came
        self._window_bytes = 0  # of body, since `_since_s`
        self._stalled_s = 0.0  # when the client last took something of what waits in full buffers
        self._unsent_bytes = 0  # at that time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    # Bytes and the state of the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # narrowed by uvicorn
        super().connection_made(transport)
        self.flow = _Flow(transport, self._restart)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(Overloaded(f"More than {self.limits.max_connections} connections are open: try again soon."))
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._answering is not None:  # uvicorn told only `cycle`, which is another one with pipelining
            _abandon(self._answering)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._got_somewhere = False
        while data and not self._refused:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                data = self._decline_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserCallbackError as error:
                reason = error.__context__
                self._refuse(reason if isinstance(reason, ApplianceError) else _malformed("the target is no URL"))
            except httptools.HttpParserError as error:
                self._refuse(_malformed(str(error)))
        if not self._refused:
            self._fruitless_bytes = 0 if self._got_somewhere else self._fruitless_bytes + len(data)
            if self._fruitless_bytes > self.limits.max_head_bytes:  # the parser keeps a header that has no end
                self._refuse(self._head_too_large())
        self._arm()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_s, self._unsent_bytes = self.loop.time(), self.transport.get_write_buffer_size()
        self._arm()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._arm()

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
        super().on_response_complete()
        self._unset_keepalive_if_required()  # ours also ends a connection that is kept busy with empty lines
        self._restart()

    # What the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._now_reading("head")

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)  # ": " and CRLF
        if self._reading == "body":
            return  # a trailer: uvicorn would slip it among the headers that were checked already
        if len(self.headers) >= self.limits.max_headers:
            raise HeadersTooLarge(f"The request has more than {self.limits.max_headers} headers.")
        if name.lower() == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise InvalidRequest("The only transfer coding that is understood is 'chunked'.")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._upgrade_offered = self.parser.should_upgrade()
        if self._upgrade_offered:
            return
        if len(self.pipeline) >= self.limits.max_pipelined:
            raise InvalidRequest("Too many requests are pipelined: wait for an answer before sending more.")
        super().on_headers_complete()
        if self._answering is None or self._answering.response_complete:
            self._answering = self.cycle
        self._now_reading("body")

    def on_body(self, body: bytes) -> None:
        self._got_somewhere = True
        self._progress_s = self.loop.time()
        self._window_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrade_offered:
            return
        super().on_message_complete()
        self._now_reading("nothing")

    def _decline_upgrade(self) -> bytes:
        """The request's head without its offer to upgrade, for a parser that then reads the body as usual.

        Java's HTTP client offers h2c with every first request, and goes on in HTTP/1.1 when nobody takes it up;
        httptools takes the body that follows for bytes of the other protocol.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(InvalidRequest("CONNECT is not supported: this is no proxy."))
            return b""
        head = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() != b"upgrade")  # noqa: PLW2901 - same header
            if name != b"upgrade":
                head.append(b"%s: %s" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        return b"\r\n".join([*head, b"", b""])

    def _count_head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > self.limits.max_head_bytes:
            raise self._head_too_large()

    def _head_too_large(self) -> ApplianceError:
        return HeadersTooLarge(f"The request's head is larger than {self.limits.max_head_bytes} bytes.")

    # Deadlines

    def _now_reading(self, part: Literal["nothing", "head", "body"]) -> None:
        self._reading = part
        self._got_somewhere = True
        self._since_s = self._progress_s = self.loop.time()
        self._window_bytes = 0

    def _restart(self) -> None:
        """Whatever the client has to do next, its time begins now."""
        self._since_s = self._progress_s = self.loop.time()
        self._window_bytes = 0
        self._arm()

    def _due(self) -> tuple[float, Callable[[], None]] | None:
        """By when the client must have done something, and what happens if not. None: it is not its turn."""
        limits, answering = self.limits, self._answering
        if self.flow.write_paused:
            return self._stalled_s + limits.stalled_reader_timeout_s, self._check_reader
        if self.transport.is_closing():  # but not closed: the last bytes of an answer are not taken
            return self._since_s + limits.stalled_reader_timeout_s, self.transport.abort
        if answering is None or answering.response_complete:
            return self._due_when_answered()
        if self._refused or self._reading != "body" or answering is not self.cycle or self.flow.read_paused:
            return None
        pause_ends_s = self._progress_s + limits.body_timeout_s
        rate_ends_s = self._since_s + limits.body_timeout_s + self._window_bytes / limits.min_bytes_per_s
        return min(pause_ends_s, rate_ends_s), self._refuse_slow_body

    def _due_when_answered(self) -> tuple[float, Callable[[], None]]:
        limits = self.limits
        if self._refused:
            return self._since_s + limits.linger_s, self.transport.abort
        if self._reading == "nothing":
            return self._since_s + limits.idle_timeout_s, self._close
        if self._reading == "head":
            return self._since_s + limits.header_timeout_s, self._refuse_slow_head
        # Answered before its body was whole: closing at once could lose the answer.
        return self._since_s + limits.linger_s, self._close

    def _arm(self) -> None:
        """Makes sure that the timer fires no later than the next deadline."""
        due = self._due()
        if due is None or (self._timer is not None and self._timer_s <= due[0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due[0]
        self._timer = self.loop.call_at(due[0], self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        due = self._due()
        if due is not None and due[0] <= self.loop.time() + 0.001:  # uvloop's clock has milliseconds
            due[1]()
        self._arm()

    def _refuse_slow_head(self) -> None:
        self._refuse(RequestTimeout(f"The request's head was not whole within {self.limits.header_timeout_s:g} s."))

    def _refuse_slow_body(self) -> None:
        self._refuse(
            RequestTimeout(
                f"The request's body paused for {self.limits.body_timeout_s:g} s, or came slower than "
                f"{self.limits.min_bytes_per_s} bytes a second."
            )
        )

    def _check_reader(self) -> None:
        """Ends a connection whose client takes nothing of its answer: it holds a slot of the engine for nobody."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes >= self._unsent_bytes:
            self.transport.abort()
        self._stalled_s, self._unsent_bytes = self.loop.time(), unsent_bytes

    def _close(self) -> None:
        self.transport.close()
        self._since_s = self.loop.time()

    # Refusals

    def _refuse(self, error: ApplianceError) -> None:
        """Reads no more; answers with `error` if it is its turn, and ends the connection."""
        self._refused = True
        self._since_s = self.loop.time()
        answering = self._answering
        if answering is None or answering.response_complete:
            self._write(error)
        elif answering is self.cycle and self._reading == "body":  # the request that is being answered is the bad one
            _abandon(answering)
            self._answering = None
            if answering.response_started:
                self.transport.abort()
            else:
                self._write(error)
        else:  # an earlier, good one is being answered: that is finished first
            answering.keep_alive = False
            self.pipeline.clear()

    def _write(self, error: ApplianceError) -> None:
        """Sends the error and the end of the stream, but reads on: closing now could lose what was just sent."""
        body = json.dumps(error.body()).encode("ascii")
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % error.retry_after_s))
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()


def _abandon(cycle: RequestResponseCycle) -> None:
    """Tells the application that nobody waits for its answer any more."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _malformed(reason: str) -> ApplianceError:
    return InvalidRequest(f"Malformed HTTP request: {reason}.")
