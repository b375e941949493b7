"""The nearest texts of a fingerprint are found, by exact similarity, and none of another fingerprint or model."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cache.store import Store, Vector
from cache.store.search import coarse_rows
from cache.store.vectors import CODE_BITS, FURTHEST_BITS, LEAST_SIMILARITY, codes, cosines
from tests.bench.cache.growth import clustered, near_to
from tests.unit.cache_store_entries import (
    EMBEDDING,
    FINGERPRINT,
    NOW,
    Clock,
    entry,
    key,
    random_vectors,
    semantic,
    vector,
)

OTHER_FINGERPRINT = FINGERPRINT[:8] + b"\0" * 24  # the same in the bytes that the coarse index knows


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    made = Store(tmp_path / "cache.db", clock, max_bytes=2**30, max_entries=100_000)
    yield made
    made.close()


def texts(store: Store, query: Vector, k: int = 2, embedding: str = EMBEDDING) -> list[str]:
    return [found.text for found in store.near(FINGERPRINT, embedding, query, k)]


def test_candidates_come_best_first_with_their_exact_cosine(store: Store) -> None:
    store.put(semantic("far", [1.0, 1.0]))
    store.put(semantic("same", [1.0]))
    store.put(semantic("near", [1.0, 0.2]))
    found = store.near(FINGERPRINT, EMBEDDING, vector([1.0]), k=3)
    assert [one.text for one in found] == ["text same", "text near", "text far"]
    expected = [1.0, 1 / math.hypot(1.0, 0.2), math.sqrt(0.5)]
    assert [one.similarity for one in found] == pytest.approx(expected, abs=1e-6)
    ids = [store.get(key(name)) for name in ("same", "near", "far")]
    assert [one.id for one in found] == [stored.id for stored in ids if stored is not None]


def test_no_more_than_asked_for_are_given(store: Store) -> None:
    for i in range(5):
        store.put(semantic(str(i), [1.0, i / 10]))
    assert len(store.near(FINGERPRINT, EMBEDDING, vector([1.0]))) == 2
    assert len(store.near(FINGERPRINT, EMBEDDING, vector([1.0]), k=100_000)) == 5
    assert store.near(FINGERPRINT, EMBEDDING, vector([1.0]), k=0) == []


def test_another_fingerprint_s_texts_are_not_found_even_if_it_begins_the_same(store: Store) -> None:
    store.put(semantic("a", [1.0], fingerprint=key("another")))
    store.put(semantic("b", [1.0], fingerprint=OTHER_FINGERPRINT))
    assert store.near(FINGERPRINT, EMBEDDING, vector([1.0])) == []
    assert [found.text for found in store.near(OTHER_FINGERPRINT, EMBEDDING, vector([1.0]))] == ["text b"]


def test_vectors_of_two_embedding_models_are_never_compared(store: Store) -> None:
    store.put(semantic("a", [1.0]))
    store.put(semantic("b", [1.0], embedding="other"))
    assert texts(store, vector([1.0])) == ["text a"]
    assert texts(store, vector([1.0]), embedding="other") == ["text b"]
    assert texts(store, vector([1.0]), embedding="unknown") == []


def test_models_may_have_different_dimensions(store: Store) -> None:
    wide = random_vectors(1, seed=1, dimensions=100)[0]
    store.put(semantic("a", [1.0]))
    store.put(semantic("b", wide, embedding="wide"))
    assert texts(store, wide, embedding="wide") == ["text b"]


def test_an_expired_text_leaves_its_place_to_the_next(store: Store, clock: Clock) -> None:
    store.put(semantic("gone", [1.0], expires_at=NOW + 1.0))
    store.put(semantic("next", [1.0, 0.1]))
    clock.now = NOW + 2.0
    assert texts(store, vector([1.0]), k=1) == ["text next"]


def test_an_entry_of_the_exact_tier_is_no_candidate(store: Store) -> None:
    store.put(entry("a", text="text a"))
    store.put(semantic("b", [1.0]))
    assert texts(store, vector([1.0])) == ["text b"]


@pytest.mark.parametrize(
    "bad",
    [
        np.full(16, np.nan, dtype=np.float32),
        np.array([1.0] * 15 + [np.inf], dtype=np.float32),
        np.array([1.0] * 15 + [1e300]),
        np.zeros(16, dtype=np.float32),
        np.zeros(0, dtype=np.float32),
        np.ones((1, 16), dtype=np.float32),
        np.array(1.0, dtype=np.float32),
    ],
    ids=["NaN", "infinite", "too large", "zero", "empty", "two axes", "no axis"],
)
def test_a_vector_that_is_none_is_refused(store: Store, bad: Vector) -> None:
    with pytest.raises(ValueError, match="vector"):
        store.put(semantic("a", bad))
    with pytest.raises(ValueError, match="vector"):
        store.near(FINGERPRINT, EMBEDDING, bad)
    assert store.stats().entries == 0


def test_the_first_vector_of_a_model_decides_its_dimensions(store: Store) -> None:
    store.put(semantic("a", [1.0]))
    wrong = random_vectors(1, seed=1, dimensions=17)[0]
    with pytest.raises(ValueError, match="16 dimensions, not 17"):
        store.put(semantic("b", wrong))
    with pytest.raises(ValueError, match="16 dimensions, not 17"):
        store.near(FINGERPRINT, EMBEDDING, wrong)
    assert store.get(key("b")) is None
    assert store.stats().problem is None
    assert texts(store, vector([1.0])) == ["text a"]


def test_a_refused_replacement_leaves_the_entry_that_was_there(store: Store) -> None:
    store.put(semantic("a", [1.0]))
    with pytest.raises(ValueError, match="dimensions"):
        store.put(semantic("a", random_vectors(1, seed=1, dimensions=17)[0]))
    assert store.get(key("a")) is not None
    assert texts(store, vector([1.0])) == ["text a"]


def test_a_vector_of_another_length_has_the_cosine_of_its_direction(store: Store) -> None:
    store.put(semantic("a", vector([1.0, 1.0]) * np.float32(7.0)))
    (found,) = store.near(FINGERPRINT, EMBEDDING, vector([1.0]) * np.float32(0.01))
    assert found.similarity == pytest.approx(math.sqrt(0.5), abs=1e-6)


def test_a_float64_vector_is_taken_as_float32(store: Store) -> None:
    store.put(semantic("a", vector([1.0, 2.0]).astype(np.float64)))
    (found,) = store.near(FINGERPRINT, EMBEDDING, vector([1.0, 2.0]))
    assert found.similarity == pytest.approx(1.0)


@pytest.mark.parametrize("length", [1e-38, 3e38])
def test_a_vector_of_an_extreme_length_has_a_direction_all_the_same(store: Store, length: float) -> None:
    store.put(semantic("a", vector([1.0, 1.0]) * np.float32(length)))
    (found,) = store.near(FINGERPRINT, EMBEDDING, vector([1.0]) * np.float32(length))
    assert found.similarity == pytest.approx(math.sqrt(0.5), abs=1e-4)


# The coarse search


@pytest.mark.parametrize(("size", "mutual"), [(10, 0.8), (20, 0.8), (20, 0.9)])
def test_the_truly_best_two_are_found_among_thousands(store: Store, size: int, mutual: float) -> None:
    random = np.random.default_rng(7)
    vectors = clustered(4000, size, mutual, random)
    for i, one in enumerate(vectors):
        store.put(semantic(str(i), one))
    chosen = random.integers(0, len(vectors), 200)
    queries = near_to(vectors[chosen], random.uniform(0.75, 0.98, (200, 1)).astype(np.float32), random)
    wanted = found = 0
    for query in queries:
        similarities = vectors @ query
        best = [int(i) for i in np.argsort(-similarities)[:2] if similarities[i] >= 0.7]
        given = {one.text for one in store.near(FINGERPRINT, EMBEDDING, query)}
        wanted += len(best)
        found += sum(f"text {i}" in given for i in best)
    assert wanted > 100
    assert found / wanted >= 0.99


def test_the_truly_best_is_found_where_all_texts_are_alike(store: Store) -> None:
    random = np.random.default_rng(8)
    vectors = clustered(4000, 4000, 0.8, random)
    for i, one in enumerate(vectors):
        store.put(semantic(str(i), one))
    chosen = random.integers(0, len(vectors), 200)
    queries = near_to(vectors[chosen], 0.95, random)
    right = sum(texts(store, query, k=1) == [f"text {i}"] for i, query in zip(chosen, queries, strict=True))
    assert right / len(queries) >= 0.99


def test_a_large_store_compares_fewer_texts_exactly() -> None:
    assert [coarse_rows(stored) for stored in (0, 1000, 50_000, 100_000, 10**7)] == [64, 64, 48, 24, 16]


def test_codes_differ_in_as_many_bits_as_vectors_in_angle() -> None:
    random = np.random.default_rng(9)
    vectors = random_vectors(500, seed=10, dimensions=384)
    for cosine, are_found in ((0.95, 0.99), (0.7, 0.99), (LEAST_SIMILARITY, 0.99), (0.0, 0.0)):
        others = near_to(vectors, cosine, random)
        pairs = zip(codes(vectors), codes(others), strict=True)
        bits = [(int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).bit_count() for a, b in pairs]
        assert np.mean(bits) / CODE_BITS == pytest.approx(math.acos(cosine) / math.pi, abs=0.01)
        assert np.mean(np.array(bits) <= FURTHEST_BITS) >= are_found


def test_a_code_is_the_same_in_every_run() -> None:
    assert codes(vector([1.0, 2.0])[np.newaxis])[0].hex()[:16] == "fc37c58185f395e0"


def test_a_damaged_vector_has_no_similarity() -> None:
    query = vector([1.0])
    whole, short = query.tobytes(), query.tobytes()[:-1]
    infinite = np.full(16, np.inf, dtype=np.float32).tobytes()
    similarities = cosines(query, [whole, short, infinite])
    assert similarities[0] == pytest.approx(1.0)
    assert np.isnan(similarities[1:]).all()
    assert cosines(query, []).shape == (0,)
