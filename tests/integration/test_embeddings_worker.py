"""The embedding model answers from a process of its own, which knows and can do no more than it must."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from runtimes.embeddings.batches import MAX_TEXTS
from runtimes.embeddings.messages import Embed
from runtimes.embeddings.supervisor import MAX_CHARACTERS, Embedder, EmbeddingUnavailable
from tests.integration.embeddings_fixture import PATIENCE_S, asked, in_s, pid_of, started

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def embedder(embedding_model: Path) -> AsyncIterator[Embedder]:
    """One that is ready."""
    async with started(embedding_model) as running:
        await running.embed(["hello"], in_s())
        yield running


async def test_texts_become_unit_vectors(embedder: Embedder) -> None:
    assert await embedder.embed([], in_s()) == ()
    first, second, empty, wild = await embedder.embed(
        ["The weather is lovely today.", "It's so sunny outside!", "", "\ud800\0"], in_s()
    )
    assert first.vector @ second.vector == pytest.approx(0.666, abs=0.02)
    assert (first.n_tokens, first.truncated) == (8, False)
    assert (empty.n_tokens, empty.truncated) == (2, False)
    assert wild.vector @ wild.vector == pytest.approx(1, abs=1e-5)
    for embedding in (first, empty):
        assert embedding.vector.shape == (384,)
        assert embedding.vector.dtype == np.dtype(np.float32)
    status = embedder.status
    assert (status.state, status.problem, status.restarts) == ("ready", None, 0)
    assert status.provider == "CPUExecutionProvider"
    assert status.load_s is not None


async def test_a_text_longer_than_the_window_says_so(embedder: Embedder) -> None:
    fits, long, huge, blank = await embedder.embed(
        ["word " * 254, "word " * 255, "word " * 1_000_000, "word" + " " * MAX_CHARACTERS + "more"], in_s()
    )
    assert (fits.n_tokens, fits.truncated) == (256, False)
    assert (long.n_tokens, long.truncated) == (257, True)
    assert huge.truncated
    assert 6_000 < huge.n_tokens <= MAX_CHARACTERS
    assert blank.truncated  # what comes after so much of nothing was not read
    assert fits.vector @ huge.vector == pytest.approx(1, abs=1e-3)


async def test_requests_that_wait_go_together(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, batches = embedder._worker, list[Embed]()
    assert worker is not None
    send = worker.send

    def noted(message: object) -> None:
        assert isinstance(message, Embed)
        batches.append(message)
        send(message)

    monkeypatch.setattr(worker, "send", noted)
    os.kill(worker.pid, signal.SIGSTOP)  # the first one keeps it busy
    tasks = [await asked(embedder, f"text number {n}") for n in range(MAX_TEXTS + 5)]
    os.kill(worker.pid, signal.SIGCONT)
    answers = [(await task)[0] for task in tasks]
    assert [len(batch.texts) for batch in batches] == [1, MAX_TEXTS, 4]
    for n in (0, 1, MAX_TEXTS + 4):
        (alone,) = await embedder.embed([f"text number {n}"], in_s())
        np.testing.assert_allclose(alone.vector, answers[n].vector, atol=1e-3)


async def test_many_texts_of_one_request_come_back_in_order(embedder: Embedder) -> None:
    texts = [f"number {n} " * (n % 9) for n in range(50)]
    together = await embedder.embed(texts, in_s())
    (alone,) = await embedder.embed([texts[37]], in_s())
    np.testing.assert_allclose(alone.vector, together[37].vector, atol=1e-3)
    assert [embedding.n_tokens for embedding in together[:3]] == [2, 4, 6]


async def test_a_request_that_was_given_up_disturbs_no_other(embedder: Embedder) -> None:
    (expected,) = await embedder.embed(["three"], in_s())
    os.kill(pid_of(embedder), signal.SIGSTOP)
    with pytest.raises(EmbeddingUnavailable, match="deadline"):
        await embedder.embed(["one " * 50], in_s(0.05))
    left = await asked(embedder, "two")
    left.cancel()
    next_one = await asked(embedder, "three")
    os.kill(pid_of(embedder), signal.SIGCONT)
    np.testing.assert_allclose((await next_one)[0].vector, expected.vector, atol=1e-3)
    assert embedder.status.restarts == 0


async def test_the_worker_can_do_little(embedding_model: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HF_TOKEN": "secret"}
    async with started(embedding_model, environ) as embedder:
        await embedder.embed(["hello"], in_s())
        check_confined(Path(f"/proc/{pid_of(embedder)}"), embedding_model)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - ONNX Runtime's telemetry would have left its device's identity


def check_confined(process: Path, model: Path) -> None:
    assert b"secret" not in process.joinpath("environ").read_bytes()
    status = dict(line.split(":", 1) for line in process.joinpath("status").read_text().splitlines())
    assert status["NoNewPrivs"].strip() == "1"
    limits = {line[:26].strip(): line[26:47].strip() for line in process.joinpath("limits").read_text().splitlines()}
    assert (limits["Max open files"], limits["Max core file size"]) == ("3", "0")
    open_files = [os.readlink(link) for link in process.joinpath("fd").iterdir()]  # noqa: PTH115 - as text
    assert [name for name in open_files if name.startswith(str(model))] == []


PARENT = """
import asyncio, os, sys
from pathlib import Path
from runtimes.embeddings.supervisor import Embedder

async def main():
    embedder = Embedder(Path(sys.argv[1]), Path(sys.argv[2]), threads=1, environ=os.environ)
    embedder.start()
    await embedder.embed(["hello"], asyncio.get_running_loop().time() + 20)
    print(embedder.status.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_the_worker_does_not_outlive_the_daemon(embedding_model: Path) -> None:
    files = (str(embedding_model / name) for name in ("model.onnx", "tokenizer.json"))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *files], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    deadline_s = time.monotonic() + PATIENCE_S
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
