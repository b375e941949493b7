"""Which model for which machine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.models.catalogue import RUNTIME_BYTES, SLOTS, CatalogueEntry, load_catalogue
from runtimes.models.machine import Memory
from runtimes.models.recommend import COMFORT_TOKENS, MIN_TOKENS, Recommendation, budget_bytes, recommend

GIB = 1 << 30
CATALOGUE = tuple(load_catalogue())


def on_gpu(gib: float) -> tuple[Recommendation, ...]:
    return recommend(Memory(ram_bytes=32 * GIB, gpu_bytes=int(gib * GIB), gpu_name="GPU"), CATALOGUE)


def on_cpu(gib: float) -> tuple[Recommendation, ...]:
    return recommend(Memory(ram_bytes=int(gib * GIB)), CATALOGUE)


@pytest.mark.parametrize(
    ("gib", "name"),
    [
        (8, "qwen2.5-7b-instruct"),
        (12, "qwen2.5-7b-instruct"),
        (16, "qwen2.5-7b-instruct-q6_k"),
        (24, "qwen2.5-7b-instruct-q8_0"),
        (48, "qwen2.5-7b-instruct-f16"),
    ],
)
def test_each_size_of_gpu_has_its_model(gib: int, name: str) -> None:
    assert on_gpu(gib)[0].entry.name == name


@pytest.mark.parametrize(("gib", "name"), [(2, "smollm2-135m-instruct"), (16, "qwen2.5-1.5b-instruct")])
def test_a_machine_without_gpu_gets_what_a_cpu_can_answer_with(gib: int, name: str) -> None:
    assert on_cpu(gib)[0].entry.name == name


def test_memory_does_not_make_a_cpu_faster() -> None:
    assert on_cpu(1024)[0].entry == on_cpu(16)[0].entry


def test_a_larger_gpu_gets_a_finer_quantisation_and_more_context_not_a_larger_model() -> None:
    best = [on_gpu(gib)[0] for gib in (12, 16, 24, 48)]
    assert len({recommendation.entry.parameters for recommendation in best}) == 1
    bits = [recommendation.entry.bits_per_weight for recommendation in best]
    assert bits == sorted(bits)
    tokens = [recommendation.tokens_per_slot for recommendation in best]
    assert tokens == sorted(tokens)


def test_each_family_is_named_once_and_the_largest_first() -> None:
    families = [recommendation.entry.family for recommendation in on_gpu(24)]
    assert len(families) == len(set(families))
    parameters = [recommendation.entry.parameters for recommendation in on_gpu(24)]
    assert parameters == sorted(parameters, reverse=True)


def test_embedding_and_test_models_are_never_recommended() -> None:
    assert {recommendation.entry.kind for gib in (4, 48) for recommendation in on_gpu(gib)} == {"chat"}


def test_a_machine_too_small_for_anything_gets_nothing() -> None:
    assert on_gpu(0.5) == ()
    assert on_cpu(0.5) == ()


def test_context_is_never_promised_beyond_the_model_s_own() -> None:
    for recommendation in on_gpu(200):
        assert recommendation.tokens_per_slot <= recommendation.entry.context_tokens


@settings(max_examples=300, database=None)
@given(st.integers(0, 200 * GIB), st.integers(GIB // 4, 500 * GIB))
def test_what_is_recommended_fits_with_all_slots(gpu_bytes: int, ram_bytes: int) -> None:
    memory = Memory(ram_bytes, gpu_bytes)
    for recommendation in recommend(memory, CATALOGUE):
        kv_bytes = recommendation.kv_tokens * recommendation.entry.kv_bytes_per_token
        assert recommendation.kv_tokens >= SLOTS * MIN_TOKENS
        assert recommendation.entry.size_bytes + kv_bytes <= budget_bytes(memory)


@settings(max_examples=200, database=None)
@given(st.integers(1, 100 * GIB))
def test_a_finer_quantisation_is_taken_only_with_a_whole_request_for_each_slot(gpu_bytes: int) -> None:
    coarsest: dict[str, CatalogueEntry] = {}
    for entry in CATALOGUE:
        coarsest.setdefault(entry.family, entry)  # the file is in order of size
    for recommendation in recommend(Memory(GIB, gpu_bytes), CATALOGUE):
        if recommendation.entry != coarsest[recommendation.entry.family]:
            assert recommendation.tokens_per_slot >= min(COMFORT_TOKENS, recommendation.entry.context_tokens)


def test_run_time_memory_is_kept_free_on_a_gpu() -> None:
    model = CATALOGUE[0]
    just_enough = model.memory_bytes(MIN_TOKENS)
    gpu_bytes = just_enough + GIB
    assert budget_bytes(Memory(GIB, gpu_bytes)) == just_enough
    assert [recommendation.entry for recommendation in recommend(Memory(GIB, gpu_bytes), [model])] == [model]
    assert recommend(Memory(GIB, gpu_bytes - RUNTIME_BYTES // 100), [model]) == ()
