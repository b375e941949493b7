"""Keeps one model answering: starts its worker, watches it, replaces it when it dies or hangs.

Requests in flight in a worker that dies get `engine_crashed`; new ones wait for the next worker, within bounds.
It knows no HTTP and no keys; it runs in the daemon's event loop and never blocks it.
"""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.protocol import ErrorCode, Event, Failed, Finished, Prompt
from runtimes.contracts import ModelInfo
from runtimes.dialects import Dialect
from runtimes.engine import CostCurve, EngineStats
from runtimes.supervisor.backoff import Backoff
from runtimes.supervisor.process import WorkerProcess
from runtimes.worker.messages import (
    Cancel,
    Detokenize,
    Generate,
    Load,
    LoadFailed,
    Ping,
    Pong,
    Ready,
    Refused,
    Stepped,
    Text,
    Tokenize,
    Tokens,
)

State = Literal["starting", "ready", "restarting", "failed", "stopped"]
PING_EVERY_S = 5.0  # of an idle worker
# A request that finds the model (re)starting waits this long for it: longer than a restart of a small model takes.
WAIT_FOR_MODEL_S = 30.0
STOPPING = "the daemon is stopping; try another one, or again soon"
FAST_FAILURES = 3  # starts that fail in a row before requests are refused at once; the attempts go on

logger = logging.getLogger(__name__)


class EngineError(Exception):
    """A request that no event can answer: refused before it began, or there is no engine."""

    def __init__(self, code: ErrorCode, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a model's engine at this moment."""

    state: State
    pid: int | None
    restarts: int
    load_s: float | None
    problem: str | None  # why there is no engine, or what is odd about the one there is
    info: ModelInfo | None
    stats: EngineStats | None
    in_flight: int
    curve: CostCurve | None  # measured, or as it was given
    silent_s: float  # since it was heard of, while it had work


@dataclass(frozen=True, slots=True)
class Limits:
    max_in_flight: int  # requests in the engine and its queue; one more is refused
    hang_timeout_s: float
    load_timeout_s: float


class Interruption:
    """Ends one request from outside, with an error for its client."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] | None = None
        self._ended: _Ended | None = None

    def interrupt(self, code: ErrorCode, message: str) -> None:
        """At any time; after its end it has no effect."""
        self._ended = _Ended(code, message)
        if self._queue is not None:
            self._queue.put_nowait(self._ended)

    def attach(self, queue: "asyncio.Queue[Any]") -> None:
        self._queue = queue
        if self._ended is not None:
            queue.put_nowait(self._ended)


class Supervisor:
    def __init__(self, load: Load, limits: Limits, environ: Mapping[str, str]) -> None:
        self._load = load
        self._limits = limits
        self._environ = environ
        self._worker: WorkerProcess | None = None
        self._state: State = "starting"
        self._problem: str | None = None
        self._info: ModelInfo | None = None
        self.dialect = Dialect()  # the model's, once it is loaded
        self._stats: EngineStats | None = None
        self.curve = load.curve
        self._load_s: float | None = None
        self._hopeless = False  # no other worker could do better
        self._restarts = 0
        self._changed = asyncio.Event()  # set and replaced at each change of state
        self._ids = itertools.count(1)
        self._flights: dict[str, asyncio.Queue[Any]] = {}
        self._last_news_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_alive())

    async def stop(self) -> None:
        """Ends the worker. Requests in flight get an error."""
        self._set_state("stopped")
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def status(self) -> Status:
        worker = self._worker
        return Status(
            state=self._state,
            pid=worker.pid if worker else None,
            restarts=self._restarts,
            load_s=self._load_s,
            problem=self._problem,
            info=self._info,
            stats=self._stats if self._state == "ready" else None,
            in_flight=len(self._flights),
            curve=self.curve,
            silent_s=asyncio.get_running_loop().time() - self._last_news_s if self._flights else 0.0,
        )

    def worker_pid(self) -> int | None:
        """From any thread."""
        worker = self._worker
        return worker.pid if worker is not None else None

    async def wait_ready(self, deadline_s: float = math.inf) -> ModelInfo:
        """Waits for the model, within bounds. Raises `EngineError`."""
        if self._state == "ready" and self._info is not None:
            return self._info
        patience_s = asyncio.get_running_loop().time() + WAIT_FOR_MODEL_S
        try:
            async with asyncio.timeout_at(min(patience_s, deadline_s)):
                while self._state in {"starting", "restarting"}:
                    await self._changed.wait()
        except TimeoutError:
            if deadline_s <= patience_s:
                raise EngineError(_EXPIRED.code, _EXPIRED.message) from None
            raise EngineError("model_loading", "the model is still loading; try again soon") from None
        if self._state == "stopped":
            raise EngineError("overloaded", STOPPING)
        if self._state != "ready" or self._info is None:
            raise EngineError("model_loading", f"the model cannot be loaded: {self._problem}")
        return self._info

    async def generate(
        self, generate: Callable[[str], Generate], deadline_s: float, interruption: Interruption | None = None
    ) -> AsyncGenerator[Event, None]:
        """Events of a request, until every choice is finished; leaving the iteration cancels it.

        At `deadline_s`, in the event loop's time, what is not finished fails with `deadline_exceeded`.

        `generate` makes the message from an id of the supervisor's. Raises `EngineError` instead of a first event
        when the request is refused; a crash after that is a `Failed` for each choice that is not finished.
        """
        interruption = interruption or Interruption()
        try:
            async with aclosing(self._attempt(generate, deadline_s, interruption, retriable=True)) as events:
                async for event in events:
                    yield event
        except _DiedUntouched:  # the engine had not begun with it: another one can
            async with aclosing(self._attempt(generate, deadline_s, interruption, retriable=False)) as events:
                async for event in events:
                    yield event

    async def _attempt(
        self,
        generate: Callable[[str], Generate],
        deadline_s: float,
        interruption: Interruption,
        *,
        retriable: bool,
    ) -> AsyncGenerator[Event, None]:
        await self.wait_ready(deadline_s)
        if len(self._flights) >= self._limits.max_in_flight:
            raise EngineError("overloaded", f"{len(self._flights)} requests are in flight or waiting, the limit")
        with self._flight() as (flight, queue):
            message = generate(flight)
            interruption.attach(queue)
            open_choices = set(range(message.n * len(message.prompts)))
            self._send(message)
            expiry = asyncio.get_running_loop().call_at(deadline_s, queue.put_nowait, _EXPIRED)
            try:
                while open_choices:
                    news = await queue.get()
                    if isinstance(news, Refused):
                        raise EngineError(news.code, news.message, news.param)
                    if isinstance(news, _Ended):
                        if retriable and news.code == "engine_crashed":
                            raise _DiedUntouched
                        for choice in sorted(open_choices):
                            yield Failed(choice, news.code, news.message)
                        return
                    retriable = False
                    for event in news:
                        if isinstance(event, Finished | Failed):
                            open_choices.discard(event.choice)
                        yield event
            finally:
                expiry.cancel()
                if open_choices:  # whoever asked has left
                    self._send(Cancel(flight))

    async def tokenize(self, prompt: Prompt, *, with_text: bool = False) -> Tokens:
        """Raises `EngineError`."""
        reply = await self._ask(lambda flight: Tokenize(flight, prompt, with_text))
        assert isinstance(reply, Tokens)  # noqa: S101 - what a worker answers to Tokenize
        return reply

    async def detokenize(self, tokens: tuple[int, ...]) -> str:
        """Raises `EngineError`."""
        reply = await self._ask(lambda flight: Detokenize(flight, tokens))
        assert isinstance(reply, Text)  # noqa: S101 - what a worker answers to Detokenize
        return reply.text

    async def _ask(self, message: Callable[[str], object]) -> Any:
        await self.wait_ready()
        with self._flight() as (flight, queue):
            self._send(message(flight))
            reply = await queue.get()
        if isinstance(reply, Refused):
            raise EngineError(reply.code, reply.message, reply.param)
        if isinstance(reply, _Ended):
            raise EngineError(reply.code, reply.message)
        return reply

    @contextlib.contextmanager
    def _flight(self) -> Any:
        flight, queue = str(next(self._ids)), asyncio.Queue[Any]()
        if not self._flights:
            self._last_news_s = asyncio.get_running_loop().time()  # an idle worker owes no news
        self._flights[flight] = queue
        try:
            yield flight, queue
        finally:
            del self._flights[flight]

    def _send(self, message: object) -> None:
        if self._worker is not None:
            self._worker.send(message)

    def _set_state(self, state: State) -> None:
        self._state = state
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep_alive(self) -> None:
        """One worker after another, until cancelled."""
        backoff = Backoff()
        while True:
            try:
                self._worker = await WorkerProcess.start(self._environ)
            except OSError as error:
                self._problem = f"no worker can be started: {error}"
                self._set_state("restarting")
                await asyncio.sleep(backoff.after_failed_start())
                continue
            try:
                ready = await self._serve(self._worker)
            finally:
                worker, self._worker = self._worker, None
                if self._state == "ready":  # before anything is awaited: what comes now waits for the next worker
                    self._set_state("restarting")
                self._fail_flights()
                ended = await asyncio.shield(worker.end())
            if self._hopeless:
                return
            self._restarts += 1
            self._problem = f"the worker {ended.partition(':')[0]}"
            delay_s = backoff.after_ready() if ready else backoff.after_failed_start()
            logger.error("engine worker ended", extra={"fields": {"how": ended, "restart_in_s": delay_s}})
            self._set_state("restarting" if backoff.failures < FAST_FAILURES else "failed")
            await asyncio.sleep(delay_s)

    async def _serve(self, worker: WorkerProcess) -> bool:
        """Until this worker ends. Whether it had become ready."""
        worker.send(self._load)
        try:
            async with asyncio.timeout(self._limits.load_timeout_s):
                first = await worker.first_message()
        except TimeoutError:
            self._problem = f"the model did not load within {self._limits.load_timeout_s:g} s"
            return False
        if isinstance(first, LoadFailed):
            self._problem = first.message
            if first.final:
                self._hopeless = True
                logger.error("model cannot be loaded", extra={"fields": {"reason": first.message}})
                self._set_state("failed")
            return False
        if not isinstance(first, Ready):
            return False
        self._info, self._stats, self._load_s = first.info, first.stats, first.load_s
        self.dialect = first.dialect
        self.curve = first.curve
        self._load = replace(self._load, curve=first.curve)  # the next worker need not measure it
        self._problem = first.template_problem
        if first.unconfined:
            logger.warning("engine worker is not confined", extra={"fields": {"problems": first.unconfined}})
        self._last_news_s = asyncio.get_running_loop().time()
        self._set_state("ready")
        watchdog = asyncio.create_task(self._watch(worker))
        try:
            await worker.deliver(self._take)
        finally:
            watchdog.cancel()
        return True

    def _take(self, message: Any) -> None:
        self._last_news_s = asyncio.get_running_loop().time()
        match message:
            case Stepped(events=events, stats=stats):
                self._stats = stats or self._stats
                news: dict[str, list[Event]] = {}
                for flight, event in events:
                    news.setdefault(flight, []).append(event)
                for flight, of_flight in news.items():
                    if queue := self._flights.get(flight):
                        queue.put_nowait(of_flight)
            case Pong(stats=stats):
                self._stats = stats
            case Tokens(id=flight) | Text(id=flight) | Refused(id=flight):
                if queue := self._flights.get(flight):
                    queue.put_nowait(message)

    async def _watch(self, worker: WorkerProcess) -> None:
        """Kills a worker that makes no progress: no news while requests are in flight, or no answer to a ping."""
        loop = asyncio.get_running_loop()
        limit_s = self._limits.hang_timeout_s
        pinged = False
        while True:
            await asyncio.sleep(min(PING_EVERY_S, limit_s / 4))
            silent_s = loop.time() - self._last_news_s
            if silent_s > limit_s and (pinged or self._flights):
                logger.error(
                    "engine worker hangs", extra={"fields": {"pid": worker.pid, "silent_s": round(silent_s, 1)}}
                )
                worker.kill()
                return
            pinged = silent_s > min(PING_EVERY_S, limit_s / 4)
            if pinged:
                worker.send(Ping("watchdog"))

    def _fail_flights(self) -> None:
        died = _Ended("engine_crashed", "the engine died while it worked on this request; it is being restarted")
        if self._state == "stopped":
            died = _Ended("overloaded", STOPPING)
        for queue in self._flights.values():
            queue.put_nowait(died)


@dataclass(frozen=True, slots=True)
class _Ended:
    """What a request's queue holds when no more will come: the worker is gone, or the time is up."""

    code: ErrorCode
    message: str


_EXPIRED = _Ended("deadline_exceeded", "the request did not finish before its deadline")


class _DiedUntouched(Exception):
    """The worker died before anything came of the request."""
