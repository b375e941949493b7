"""Whatever goes wrong inside the cache, a request goes on without it, and the log says so once."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.protocol import ChatPrompt, Delta, Event, Finished, Hints, Message, Request, Sampling, Started, TextPart
from cache.cache import Embedded, SemanticCache
from cache.policy import CachePolicy
from cache.second_opinion import open_pairs
from cache.store import Store
from cache.verifier.verdict import Verifier

EVENTS: tuple[Event, ...] = (Started(0, 5, 0, 0.0), Delta(0, "Paris", 1), Finished(0, "stop", 1))
ASKED = "What is the capital of France?"
AGAIN = "Hi! Could you please tell me France's capital? Thanks."
VERIFIER = Verifier()


class Fault(Exception):
    pass


def request(text: str = ASKED, **variables: Any) -> Request:
    prompt = ChatPrompt((Message("user", (TextPart(text),)),), template_kwargs=variables)
    return Request("r", "local", (prompt,), sampling=Sampling(temperature=0), hints=Hints(cache="semantic"))


async def embedded(_: str) -> Embedded:
    vector = np.zeros(4, dtype=np.float32)
    vector[0] = 1
    return Embedded(vector, whole=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache.db", lambda: 1e9, max_bytes=2**26, max_entries=100)


@pytest.fixture
def make(store: Store) -> Callable[..., SemanticCache]:
    def cache(**changed: Any) -> SemanticCache:
        parts = {"verifier": lambda: VERIFIER, "embed": embedded, **changed}
        return SemanticCache(store, policy=CachePolicy(), tag="t", realm="r", clock=lambda: 1e9, **parts)

    return cache


def fails(*_: Any, **__: Any) -> Any:
    raise Fault("broken")


async def embeds_not(_: str) -> Embedded:
    raise Fault("broken")


async def ask(cache: SemanticCache, asked: Request) -> Any:
    """What the cache says; what was generated without it is kept."""
    lookup = await cache.find(asked, "tenant")
    if lookup.hit is None:
        await cache.keep(lookup, asked, EVENTS, "small")
        return None
    return lookup.hit.tier


def faults(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_without_a_fault_both_tiers_answer(make: Callable[..., SemanticCache]) -> None:
    cache = make()
    assert [await ask(cache, request(text)) for text in (ASKED, ASKED, AGAIN)] == [None, "exact", "semantic"]


@pytest.mark.parametrize("method", ["get", "holds", "near", "entry"])
async def test_a_store_that_fails_is_a_miss(
    make: Callable[..., SemanticCache],
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    cache = make()
    await ask(cache, request())
    monkeypatch.setattr(store, method, fails)
    for text in (AGAIN, f"{AGAIN} ", f" {AGAIN}"):
        assert await ask(cache, request(text)) is None
    assert len(faults(caplog)) == 1
    assert cache.status()["failed"] >= 1
    monkeypatch.undo()
    assert await ask(cache, request()) == "exact"


async def test_what_cannot_be_stored_is_generated_again(
    make: Callable[..., SemanticCache], store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make()
    monkeypatch.setattr(store, "put", fails)
    assert [await ask(cache, request()) for _ in range(3)] == [None, None, None]
    assert len(faults(caplog)) == 1
    monkeypatch.undo()
    assert [await ask(cache, request()) for _ in range(2)] == [None, "exact"]


@pytest.mark.parametrize("changed", [{"verifier": fails}, {"embed": embeds_not}])
async def test_so_is_a_verifier_or_an_embedding_model(
    make: Callable[..., SemanticCache], caplog: pytest.LogCaptureFixture, changed: dict[str, Any]
) -> None:
    await ask(make(), request())
    cache = make(**changed)
    for _ in range(3):
        assert await ask(cache, request(AGAIN)) is None
    assert len(faults(caplog)) == 1
    assert await ask(cache, request()) == "exact"


async def test_what_is_too_deep_to_be_read_is_not_cached(
    make: Callable[..., SemanticCache], caplog: pytest.LogCaptureFixture
) -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    cache = make()
    for _ in range(2):
        assert await ask(cache, request(ASKED, x=deep)) is None
    assert len(faults(caplog)) == 1


async def test_an_answer_that_cannot_be_read_is_made_again(make: Callable[..., SemanticCache], store: Store) -> None:
    cache = make()
    await ask(cache, request())
    found = await cache.find(request(), "tenant")
    assert found.identity is not None
    stored = store.get(found.identity.key)
    assert stored is not None
    store.put(replace(stored.entry, answer=b"\xff nothing"))
    assert [await ask(cache, request()) for _ in range(2)] == [None, "exact"]


@pytest.mark.parametrize(("says", "near"), [(True, 1), (False, 0)])
async def test_a_second_opinion_makes_a_near_miss_of_what_the_rules_leave_open(
    make: Callable[..., SemanticCache], *, says: bool, near: int
) -> None:
    asked: list[tuple[str, str]] = []

    async def opinion(a: str, b: str) -> bool:
        asked.append((a, b))
        return says

    cache = make(second_opinion=opinion)
    pair = open_pairs()[0]
    await ask(cache, request(pair.a))
    lookup = await cache.find(request(pair.b), "tenant")
    assert asked == [(pair.a, pair.b)]
    assert lookup.hit is None
    assert (lookup.near is not None) == bool(near)
