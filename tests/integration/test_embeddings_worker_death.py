"""The embedding worker dies, hangs, speaks nonsense or never starts: requests end at once, the next one works if any
can, and nothing is left behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from runtimes.embeddings import supervisor
from runtimes.embeddings.messages import Embedded
from runtimes.embeddings.supervisor import Embedder, EmbeddingUnavailable
from tests.integration.embeddings_fixture import asked, in_s, pid_of, started, until


@pytest.fixture
async def embedder(embedding_model: Path) -> AsyncIterator[Embedder]:
    """One that is ready."""
    async with started(embedding_model) as running:
        await running.embed(["hello"], in_s())
        yield running


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts its own handle the same each time


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


async def test_killed_in_the_middle_the_next_one_works(embedding_model: Path) -> None:
    files_before, pids = open_files(), []
    async with started(embedding_model) as embedder:
        (before,) = await embedder.embed(["hello"], in_s())
        for kills in range(2):
            pids.append(pid_of(embedder))
            os.kill(pids[-1], signal.SIGSTOP)  # it will not answer before it is killed
            in_flight = await asked(embedder, "hello")
            waiting = await asked(embedder, "hello")
            os.kill(pids[-1], signal.SIGKILL)
            with pytest.raises(EmbeddingUnavailable, match="died"):
                await in_flight
            (after,) = await embedder.embed(["hello"], in_s())
            np.testing.assert_allclose(after.vector, before.vector, atol=1e-3)
            assert (await waiting)[0].n_tokens == before.n_tokens
            assert embedder.status.restarts == kills + 1
        pids.append(pid_of(embedder))
    assert len(set(pids)) == 3
    assert not any(map(psutil.pid_exists, pids))
    await until(lambda: open_files() == files_before)


async def test_one_that_hangs_is_replaced(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = pid_of(embedder)
    os.kill(hanging, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(supervisor, "HANG_TIMEOUT_S", 0.2)
        with pytest.raises(EmbeddingUnavailable, match="died"):
            await embedder.embed(["hello"], in_s())
    await embedder.embed(["hello"], in_s())
    assert not psutil.pid_exists(hanging)


async def test_one_that_speaks_nonsense_is_replaced(embedder: Embedder) -> None:
    os.kill(pid_of(embedder), signal.SIGSTOP)
    in_flight = await asked(embedder, "hello")
    embedder._take(Embedded(b"", (2,)))
    with pytest.raises(EmbeddingUnavailable, match="failed"):
        await in_flight
    assert (await embedder.embed(["hello"], in_s()))[0].n_tokens == 3
    assert embedder.status.restarts == 1


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("model.onnx", None, "No such file.*model.onnx"),
        ("tokenizer.json", None, "No such file.*tokenizer.json"),
        ("model.onnx", b"junk", "ONNX Runtime cannot load it"),
        ("tokenizer.json", b"{}", "it is no tokenizer"),
    ],
)
async def test_a_file_that_cannot_be_used_is_said_to_be_why(
    embedding_model: Path, tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    for file in ("model.onnx", "tokenizer.json"):
        if file != name:
            (tmp_path / file).symlink_to(embedding_model / file)
        elif content is not None:
            (tmp_path / file).write_bytes(content)
    async with started(tmp_path) as embedder:
        for _ in range(2):
            with pytest.raises(EmbeddingUnavailable, match=problem):
                await embedder.embed(["hello"], in_s())
        await until(lambda: embedder.status.pid is None)
        assert (embedder.status.state, embedder.status.restarts) == ("failed", 0)


async def test_without_onnx_runtime_it_says_what_to_install(embedding_model: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("onnxruntime.py").write_text("raise ImportError('No module named onnxruntime')")
    async with started(embedding_model, {**os.environ, "PYTHONPATH": str(tmp_path)}) as embedder:
        with pytest.raises(EmbeddingUnavailable, match="extra cpu or gpu"):
            await embedder.embed(["hello"], in_s())


async def test_one_that_never_gets_ready_is_given_up_on_but_tried_again(
    embedding_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtimes.supervisor.backoff.FIRST_S", 0.01)
    tmp_path.joinpath("onnxruntime.py").write_text("import os; os.abort()")
    async with started(embedding_model, {**os.environ, "PYTHONPATH": str(tmp_path)}) as embedder:
        with pytest.raises(EmbeddingUnavailable, match="SIGABRT"):
            await embedder.embed(["hello"], in_s())
        assert (embedder.status.state, embedder.status.restarts) == ("failed", 3)
        tmp_path.joinpath("onnxruntime.py").unlink()
        await until(lambda: embedder.status.state == "ready")


async def test_a_python_that_is_gone_is_said_to_be(
    embedding_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    async with started(embedding_model) as embedder:
        await until(lambda: embedder.status.problem)
        assert "no worker can be started" in str(embedder.status.problem)


@pytest.mark.parametrize("turns", [0, 1, 3, 8, 21])
async def test_it_can_be_stopped_while_it_starts(embedding_model: Path, turns: int) -> None:
    before = children()
    async with started(embedding_model) as embedder:
        waiting = await asked(embedder, "hello")
        for _ in range(turns):
            await asyncio.sleep(0)
    with pytest.raises(EmbeddingUnavailable, match="stopping"):
        await waiting
    await until(lambda: children() <= before)
