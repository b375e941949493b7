"""Keeps the embedding model answering: starts its worker, gives it batches, replaces it when it dies or hangs.

It runs in the daemon's event loop and never blocks it. It knows no model library and nothing of what embeddings are
for. Everything that can go wrong is one exception, since whoever asks can do without.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from runtimes.embeddings.batches import Piece, Waiting
from runtimes.embeddings.messages import Embed, Embedded, Load, LoadFailed, Ready, decode, encode
from runtimes.supervisor.backoff import Backoff
from runtimes.supervisor.process import WorkerProcess
from runtimes.supervisor.supervisor import FAST_FAILURES, State

MAX_WAITING = 256  # requests; of the shortest texts, what one thread embeds in 2 s
# Of a text the worker is sent so many: the window takes some 1,200, and 100,000 would take it 50 ms only to split.
MAX_CHARACTERS = 32_768
LOAD_TIMEOUT_S = 120.0  # 0.5 s on a CPU; TensorRT compiles first
HANG_TIMEOUT_S = 30.0  # for a batch, which takes 0.1 s on an idle machine
LONGEST_WAIT_S = 300.0  # whatever the deadline: a thousand long texts take less

logger = logging.getLogger(__name__)


class EmbeddingUnavailable(Exception):
    """There is no embedding, and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    vector: npt.NDArray[np.float32]  # of length one; read-only
    n_tokens: int  # of the text's first `MAX_CHARACTERS`, two special ones included
    truncated: bool  # the vector says nothing of the end of the text


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of the embedding model at this moment."""

    state: State
    problem: str | None  # why there is no worker
    pid: int | None
    restarts: int
    load_s: float | None
    provider: str | None  # what computes, in ONNX Runtime's words


@dataclass(slots=True, eq=False)
class _Request:
    texts: Sequence[str]
    answer: asyncio.Future[str | None]  # None: it is done; else why it will not be
    embeddings: dict[int, Embedding]


class Embedder:
    def __init__(self, model_path: Path, tokenizer_path: Path, *, threads: int, environ: Mapping[str, str]) -> None:
        self._load = Load(str(model_path), str(tokenizer_path), threads)
        self._environ = environ
        self._worker: WorkerProcess | None = None
        self._state: State = "starting"
        self._problem: str | None = None
        self._ready: Ready | None = None  # what the latest worker said
        self._hopeless = False  # no other worker could do better
        self._restarts = 0
        self._waiting = Waiting[_Request]()
        self._batch: list[Piece[_Request]] = []  # what the worker is at
        self._hang: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_alive())

    async def stop(self) -> None:
        """Ends the worker. Requests in flight and waiting get an error."""
        self._state = "stopped"
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._fail(self._waiting.drop_all(), self._why_not())

    @property
    def status(self) -> Status:
        return Status(
            state=self._state,
            problem=self._problem,
            pid=self._worker.pid if self._worker else None,
            restarts=self._restarts,
            load_s=self._ready.load_s if self._ready else None,
            provider=self._ready.provider if self._ready else None,
        )

    async def embed(self, texts: Sequence[str], deadline_s: float) -> tuple[Embedding, ...]:
        """One for each text, the empty one too. `deadline_s` is in the event loop's time.

        Raises `EmbeddingUnavailable`: at once when there is no worker and none is on its way, or when the worker dies
        over one of these texts; at the deadline when one is on its way, or this had to wait too long.
        """
        loop = asyncio.get_running_loop()
        if not texts:
            return ()
        if self._state in {"failed", "stopped"}:
            raise EmbeddingUnavailable(self._why_not())
        if len(self._waiting) >= MAX_WAITING:
            raise EmbeddingUnavailable(f"{MAX_WAITING} requests wait for embeddings, the limit")
        if deadline_s <= loop.time():
            raise EmbeddingUnavailable("its deadline has passed")
        request = _Request(texts, loop.create_future(), {})
        self._waiting.add(request, [_sent(text) for text in texts])
        self._give_next()
        try:
            async with asyncio.timeout_at(min(deadline_s, loop.time() + LONGEST_WAIT_S)):
                failure = await request.answer
        except TimeoutError:
            raise EmbeddingUnavailable("it was not done before its deadline") from None
        finally:
            self._waiting.drop(request)
        if failure is not None:
            raise EmbeddingUnavailable(failure)
        return tuple(request.embeddings[index] for index in range(len(texts)))

    def _give_next(self) -> None:
        """Whatever waits when the worker is free goes to it at once."""
        if self._worker is None or self._state != "ready" or self._batch:
            return
        self._batch = self._waiting.next_batch()
        if self._batch:
            self._worker.send(Embed(tuple(piece.text for piece in self._batch)))
            self._hang = asyncio.get_running_loop().call_later(HANG_TIMEOUT_S, self._end_hanging, self._worker)

    def _take(self, message: Any) -> None:
        assert self._worker is not None  # noqa: S101 - it is the one that speaks
        assert self._ready is not None  # noqa: S101 - it said so first
        batch = self._finish_batch()
        try:
            embeddings = _embeddings(message, batch, self._ready)
        except ValueError as error:
            logger.error("embedding worker speaks nonsense", extra={"fields": {"what": str(error)}})  # noqa: TRY400 - no traceback
            self._fail([piece.owner for piece in batch], "the embedding worker failed")
            self._replace(self._worker)
            return
        for piece, embedding in zip(batch, embeddings, strict=True):
            request = piece.owner
            request.embeddings[piece.index] = embedding
            if len(request.embeddings) == len(request.texts) and not request.answer.done():
                request.answer.set_result(None)
        self._give_next()

    def _finish_batch(self) -> list[Piece[_Request]]:
        if self._hang is not None:
            self._hang.cancel()
            self._hang = None
        batch, self._batch = self._batch, []
        return batch

    def _end_hanging(self, worker: WorkerProcess) -> None:
        logger.error("embedding worker hangs", extra={"fields": {"pid": worker.pid, "silent_s": HANG_TIMEOUT_S}})
        self._replace(worker)

    def _replace(self, worker: WorkerProcess) -> None:
        self._state = "restarting"  # now: what comes before it is seen to be dead waits for the next one
        worker.kill()

    def _fail(self, requests: Sequence[_Request], why: str) -> None:
        for request in requests:
            self._waiting.drop(request)
            if not request.answer.done():
                request.answer.set_result(why)

    def _why_not(self) -> str:
        if self._state == "stopped":
            return "the daemon is stopping"
        return f"the embedding model cannot be used: {self._problem}"

    async def _keep_alive(self) -> None:
        """One worker after another, until cancelled."""
        backoff = Backoff()
        while True:
            ready, self._problem = await self._one_worker()
            if self._hopeless:
                logger.error("embedding model cannot be loaded", extra={"fields": {"reason": self._problem}})
                self._give_up()
                return
            self._restarts += 1
            delay_s = backoff.after_ready() if ready else backoff.after_failed_start()
            if backoff.failures < FAST_FAILURES:
                self._state = "restarting"
            else:
                self._give_up()
            await asyncio.sleep(delay_s)

    async def _one_worker(self) -> tuple[bool, str]:
        """From its start to its end: whether it had become ready, and why there is none any more."""
        try:
            worker = await WorkerProcess.start(self._environ, "runtimes.embeddings", encode=encode, decode=decode)
        except OSError as error:
            return False, f"no worker can be started: {error}"
        self._worker = worker
        try:
            failed = await self._serve(worker)
        finally:
            self._worker = None
            if self._state == "ready":  # before anything is awaited: what comes now waits for the next worker
                self._state = "restarting"
            died = self._why_not() if self._state == "stopped" else "the embedding worker died over it"
            self._fail([piece.owner for piece in self._finish_batch()], died)
            ended = await _through(worker.end())
        logger.error("embedding worker ended", extra={"fields": {"how": ended}})
        return failed is None, failed or f"the worker {ended.partition(':')[0]}"

    async def _serve(self, worker: WorkerProcess) -> str | None:
        """Until this worker ends. Why it did not become ready, as far as that is known; None when it did."""
        worker.send(self._load)
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                first = await worker.first_message()
        except TimeoutError:
            return f"the model did not load within {LOAD_TIMEOUT_S:g} s"
        if isinstance(first, LoadFailed):
            self._hopeless = first.final
            return first.message
        if not isinstance(first, Ready):
            return ""
        if first.unconfined:
            logger.warning("embedding worker is not confined", extra={"fields": {"problems": first.unconfined}})
        self._ready, self._problem, self._state = first, None, "ready"
        self._give_next()
        await worker.deliver(self._take)
        return None

    def _give_up(self) -> None:
        self._state = "failed"
        self._fail(self._waiting.drop_all(), self._why_not())


def _sent(text: str) -> str:
    """What the worker gets of a text: no more than it can use, and nothing that is no Unicode."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()


def _embeddings(message: Any, batch: Sequence[Piece[_Request]], ready: Ready) -> list[Embedding]:
    """Raises ValueError for what is no answer to this batch."""
    if not isinstance(message, Embedded) or len(message.n_tokens) != len(batch):
        raise ValueError("no answer to what it was asked")
    vectors = np.frombuffer(message.vectors, np.float32)
    if vectors.size != len(batch) * ready.dimensions or not np.isfinite(vectors).all():
        raise ValueError("vectors that are none")
    rows = vectors.reshape(len(batch), ready.dimensions)
    return [
        Embedding(row, n, n > ready.window_tokens or len(piece.owner.texts[piece.index]) > MAX_CHARACTERS)
        for piece, row, n in zip(batch, rows, message.n_tokens, strict=True)
    ]


async def _through(ending: Coroutine[Any, Any, str]) -> str:
    """Awaits it to its end, whoever cancels meanwhile."""
    task = asyncio.ensure_future(ending)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
