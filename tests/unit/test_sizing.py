"""How much context and cache a model gets from the memory there is."""

import pytest

from runtimes.contracts import ModelLoadError
from runtimes.llama_cpp.sizing import SHARE_OF_FREE, Sizes, plan

GB = 10**9


def planned(**changes: int | None) -> Sizes:
    asked: dict[str, int | None] = {
        "trained_context_tokens": 32_768,
        "context_tokens": None,
        "kv_tokens": None,
        "slots": 16,
        "model_bytes": GB,
        "kv_bytes_per_token": 100_000,
        "free_bytes": 100 * GB,
    } | changes
    return plan(**asked)  # type: ignore[arg-type] # the table mixes optional and required settings


def test_with_room_each_slot_has_its_share_and_one_request_its_default_context() -> None:
    assert planned() == Sizes(context_tokens=8192, kv_tokens=16_384)


def test_few_slots_still_hold_one_whole_context() -> None:
    assert planned(slots=1) == Sizes(context_tokens=8192, kv_tokens=8192)


def test_a_model_trained_on_less_gets_no_more() -> None:
    assert planned(trained_context_tokens=2048).context_tokens == 2048


def test_what_is_asked_for_is_given() -> None:
    assert planned(context_tokens=4096, kv_tokens=65_536) == Sizes(4096, 65_536)


def test_a_cache_smaller_than_the_default_context_shortens_the_context() -> None:
    assert planned(kv_tokens=2048) == Sizes(2048, 2048)


def test_little_memory_shrinks_the_cache_and_with_it_the_context() -> None:
    sizes = planned(free_bytes=2 * GB)
    assert sizes.context_tokens == sizes.kv_tokens
    assert GB + sizes.kv_tokens * 100_000 <= 2 * GB * SHARE_OF_FREE


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"context_tokens": 40_000}, "engine.context_tokens is 40000"),
        ({"context_tokens": 4096, "kv_tokens": 2048}, "engine.kv_tokens is 2048"),
        ({"free_bytes": GB}, "GB of free memory and there is 1.0 GB"),
        ({"free_bytes": 2 * GB, "kv_tokens": 16_384}, "lower engine.kv_tokens"),
        ({"free_bytes": 2 * GB, "context_tokens": 8192}, "GB of free memory"),
    ],
)
def test_what_cannot_be_had_is_refused_and_named(changes: dict[str, int], named: str) -> None:
    with pytest.raises(ModelLoadError, match=named):
        planned(**changes)
