"""top_k, top_p and min_p leave the tokens that a naive implementation leaves."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.protocol import Sampling
from runtimes.contracts import Logits
from runtimes.engine.sampler import FIRST_HEAD_TOKENS, Sampler, _nucleus

NO_PROMPT = np.empty(0, dtype=np.int32)
DRAWS = 400
# Distinct and well apart, so that no filter's edge hangs on the last bit of a float.
VALUES = st.lists(st.integers(-8, 8), min_size=2, max_size=9, unique=True).map(lambda xs: [x * 0.37 for x in xs])


def naive(values: list[float], sampling: Sampling) -> dict[int, float]:
    """Token: probability, by definition. Temperature, then min_p, top_k, top_p, each on what the last one left."""
    scaled = np.array(values, dtype=np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled.max())
    left = {i: float(w) for i, w in enumerate(weights) if w >= sampling.min_p}  # the likeliest weighs 1
    order = sorted(left, key=lambda i: -left[i])
    if sampling.top_k:
        order = order[: sampling.top_k]
    total, mass, kept = sum(left[i] for i in order), 0.0, []
    for i in order:
        kept.append(i)
        mass += left[i] / total
        if mass >= sampling.top_p:
            break
    return {i: left[i] / sum(left[j] for j in kept) for i in kept}


def drawn(values: list[float], sampling: Sampling, n: int, seed: int = 3) -> npt.NDArray[np.int64]:
    row: Logits = np.array(values, dtype=np.float32)
    row.flags.writeable = False
    sampler = Sampler(sampling, len(values), seed, NO_PROMPT, ())
    return np.bincount([sampler.draw(row, may_end=True) for _ in range(n)], minlength=len(values))


@settings(max_examples=120, deadline=None)
@given(
    VALUES,
    st.sampled_from([0.4, 1.0, 2.5]),
    st.sampled_from([0, 1, 2, 4, 50]),
    st.sampled_from([1.0, 0.913, 0.617, 0.207, 1e-6, 0.0]),
    st.sampled_from([0.0, 0.0113, 0.1571, 1.0]),
)
def test_the_tokens_left_are_those_of_the_definition(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    expected = naive(values, sampling)
    counts = drawn(values, sampling, DRAWS)
    assert set(np.flatnonzero(counts)) <= set(expected)
    for token, probability in expected.items():
        # A right sampler misses a token of 6 % once in 5e10 runs of 400 draws.
        assert probability < 0.06 or counts[token], f"token {token} of probability {probability} was never drawn"


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=3),
        Sampling(top_p=0.8),
        Sampling(min_p=0.2),
        Sampling(temperature=0.7, top_k=6, top_p=0.95, min_p=0.02),
    ],
)
def test_what_is_left_keeps_its_proportions(sampling: Sampling) -> None:
    values, n = [1.9, 1.2, 0.9, 0.3, -0.4, -1.1, -2.3], 10_000
    expected = naive(values, sampling)
    counts = drawn(values, sampling, n)
    chi_square = sum((counts[token] - p * n) ** 2 / (p * n) for token, p in expected.items())
    assert chi_square < 45


def test_top_p_holds_the_fewest_tokens_that_reach_it_exactly() -> None:
    weights = np.array([0.25, 0.5, 0.125, 0.125])
    assert sorted(_nucleus(weights, 0.5)) == [1]
    assert sorted(_nucleus(weights, 0.75)) == [0, 1]
    assert len(_nucleus(weights, 0.76)) == 3
    assert len(_nucleus(weights, 1.0 - 1e-17)) == 4


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 5.0])
@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9, 0.999999])
def test_a_flat_distribution_over_a_large_vocabulary_is_cut_at_the_same_mass(spread: float, top_p: float) -> None:
    n_vocab = FIRST_HEAD_TOKENS * 60
    weights = np.exp(np.random.default_rng(5).normal(size=n_vocab) * spread)
    kept = _nucleus(weights, top_p)
    mass = np.sort(weights)[::-1].cumsum()
    fewest = int((mass < top_p * weights.sum() * (1 - 1e-12)).sum()) + 1
    assert abs(len(kept) - fewest) <= 1  # sums in another order differ in their last bit
    assert len(set(kept)) == len(kept)
    assert weights[kept].min() >= np.delete(weights, kept).max(initial=0.0)


def test_top_k_of_more_than_the_vocabulary_and_min_p_of_one() -> None:
    assert set(np.flatnonzero(drawn([0.0, 0.0, 0.0], Sampling(top_k=999), 300))) == {0, 1, 2}
    assert set(np.flatnonzero(drawn([2.0, 2.0, 1.9], Sampling(min_p=1.0), 300))) == {0, 1}
