"""The backends that every contract test runs on, each loaded once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.contracts import Backend
from runtimes.fake import FakeBackend
from runtimes.llama_cpp import LlamaCppBackend, LoadOptions, Sizes

SLOTS = 8
CONTEXT_TOKENS = 256
CELLS = {"fake": 512, "llama_cpp": 256}  # soon full: a real model takes its time; the fake has more tokens in a text
THREADS = 1  # more would wait for each other on a busy machine


@pytest.fixture(scope="session", params=["fake", "llama_cpp"])
def loaded(request: pytest.FixtureRequest) -> Iterator[Backend]:
    backend: Backend
    cells = CELLS[request.param]
    if request.param == "fake":
        backend = FakeBackend(kv_tokens=cells, context_tokens=CONTEXT_TOKENS, max_sequences=SLOTS * 3)
    else:
        path: Path = request.getfixturevalue("model_path")
        backend = LlamaCppBackend(LoadOptions(path, Sizes(CONTEXT_TOKENS, cells), slots=SLOTS, threads=THREADS))
    yield backend
    backend.close()


@pytest.fixture
def backend(loaded: Backend) -> Backend:
    """A loaded backend whose cache is empty."""
    for sequence in range(loaded.info.max_sequences):
        loaded.truncate(sequence, 0)
    return loaded
