"""An embedding model that runs in a process of its own, for tests to ask, kill and stop."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from runtimes.embeddings.supervisor import Embedder, Embedding

PATIENCE_S = 20.0  # far more than anything here takes


def in_s(seconds: float = PATIENCE_S) -> float:
    return asyncio.get_running_loop().time() + seconds


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what processes do raises no event here
            await asyncio.sleep(0.01)


async def asked(embedder: Embedder, *texts: str) -> "asyncio.Task[tuple[Embedding, ...]]":
    """A request that has been sent, or waits."""
    task = asyncio.create_task(embedder.embed(texts, in_s()))
    await asyncio.sleep(0)
    return task


def pid_of(embedder: Embedder) -> int:
    assert embedder.status.pid is not None
    return embedder.status.pid


@asynccontextmanager
async def started(folder: Path, environ: dict[str, str] | None = None) -> AsyncIterator[Embedder]:
    embedder = Embedder(
        folder / "model.onnx", folder / "tokenizer.json", threads=1, environ=environ or dict(os.environ)
    )
    embedder.start()
    try:
        yield embedder
    finally:
        await embedder.stop()
