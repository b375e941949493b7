"""Requests for embeddings while no worker answers: bounded in number and in time."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from runtimes.embeddings.batches import Piece
from runtimes.embeddings.messages import Embedded, LoadFailed, Ready
from runtimes.embeddings.supervisor import MAX_WAITING, Embedder, EmbeddingUnavailable, _embeddings, _Request


def in_s(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@pytest.fixture
async def embedder() -> AsyncIterator[Embedder]:
    """One that starts for ever."""
    made = Embedder(Path("model.onnx"), Path("tokenizer.json"), threads=1, environ={})
    yield made
    await made.stop()


async def test_before_it_starts_it_says_so(embedder: Embedder) -> None:
    status = embedder.status
    assert (status.state, status.problem, status.pid, status.restarts, status.load_s) == (
        "starting",
        None,
        None,
        0,
        None,
    )


async def test_no_text_needs_no_worker(embedder: Embedder) -> None:
    assert await embedder.embed([], in_s(20)) == ()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.01])
async def test_a_request_ends_at_its_deadline(embedder: Embedder, seconds: float) -> None:
    with pytest.raises(EmbeddingUnavailable, match="deadline"):
        await embedder.embed(["hello"], in_s(seconds))


async def test_a_request_without_a_deadline_ends_too(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtimes.embeddings.supervisor.LONGEST_WAIT_S", 0.01)
    with pytest.raises(EmbeddingUnavailable, match="deadline"):
        await embedder.embed(["hello"], math.inf)


async def test_more_requests_than_the_bound_are_refused_and_room_comes_back(embedder: Embedder) -> None:
    waiting = [asyncio.create_task(embedder.embed(["hello"], in_s(20))) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(EmbeddingUnavailable, match="256 requests wait"):
        await embedder.embed(["hello"], in_s(20))
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    with pytest.raises(EmbeddingUnavailable, match="deadline"):
        await embedder.embed(["hello"], in_s(0.01))
    await embedder.stop()
    for task in waiting[1:]:
        with pytest.raises(EmbeddingUnavailable, match="stopping"):
            await task


async def test_after_it_has_stopped_requests_are_refused_at_once(embedder: Embedder) -> None:
    await embedder.stop()
    await embedder.stop()
    assert embedder.status.state == "stopped"
    with pytest.raises(EmbeddingUnavailable, match="stopping"):
        await embedder.embed(["hello"], in_s(20))


@pytest.mark.parametrize(
    "nonsense",
    [
        Embedded(b"", (2,)),
        Embedded(b"abc", (2,)),
        Embedded(bytes(16), ()),
        Embedded(bytes(16), (2, 2)),
        Embedded(np.full(4, np.nan, np.float32).tobytes(), (2,)),
        LoadFailed("what?", final=True),
    ],
    ids=["no vector", "no floats", "no count", "one too many", "no numbers", "another message"],
)
async def test_what_is_no_answer_is_not_taken_for_one(nonsense: object) -> None:
    request = _Request(["hello"], asyncio.get_running_loop().create_future(), {})
    ready = Ready(4, 256, "CPUExecutionProvider", 0.5, ())
    with pytest.raises(ValueError, match=r".+"):
        _embeddings(nonsense, [Piece(request, 0, "hello")], ready)
