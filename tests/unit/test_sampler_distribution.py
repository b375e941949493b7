"""Draws follow the distribution that was asked for, whatever the temperature, and a seed repeats them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from appliance.protocol import Sampling
from runtimes.contracts import BackendError, Logits
from runtimes.engine.sampler import Sampler

NO_PROMPT = np.empty(0, dtype=np.int32)
LOGITS = [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0]


def logits(values: list[float]) -> Logits:
    """Read-only: a sampler that writes into the backend's buffer fails here."""
    array = np.array(values, dtype=np.float32)
    array.flags.writeable = False
    return array


def sampler(sampling: Sampling, n_vocab: int = len(LOGITS), seed: int | None = 1) -> Sampler:
    return Sampler(sampling, n_vocab, seed, NO_PROMPT, ())


def softmax(values: list[float], temperature: float) -> npt.NDArray[np.float64]:
    scaled = np.array(values, dtype=np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    probabilities: npt.NDArray[np.float64] = weights / weights.sum()
    return probabilities


def draws(values: list[float], sampling: Sampling, n: int, seed: int = 1) -> list[int]:
    source, row = sampler(sampling, len(values), seed), logits(values)
    return [source.draw(row, may_end=True) for _ in range(n)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("asked_seed", [None, 5])  # a request's own makes draws of another kind
def test_frequencies_match_the_softmax_at_each_temperature(
    temperature: float, seed: int, asked_seed: int | None
) -> None:
    n = 10_000
    sampling = Sampling(temperature=temperature, seed=asked_seed)
    counts = np.bincount(draws(LOGITS, sampling, n, seed), minlength=len(LOGITS))
    expected = softmax(LOGITS, temperature) * n
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 45  # 7 degrees of freedom: a right sampler exceeds it once in ten million


def test_the_order_of_the_vocabulary_does_not_matter() -> None:
    n = 10_000
    backwards = np.bincount(draws(LOGITS[::-1], Sampling(), n), minlength=len(LOGITS))[::-1]
    expected = softmax(LOGITS, 1.0) * n
    assert float(((backwards - expected) ** 2 / expected).sum()) < 45


@pytest.mark.parametrize("temperature", [0.0, 1e-9, 1e-5, 1e-3])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    assert set(draws([1.0, 5.0, 4.9, -3.0], Sampling(temperature=temperature), 200)) == {1}


def test_a_huge_temperature_is_uniform() -> None:
    n = 8_000
    counts = np.bincount(draws(LOGITS, Sampling(temperature=1e6), n), minlength=len(LOGITS))
    assert float(((counts - n / 8) ** 2 / (n / 8)).sum()) < 45


@pytest.mark.parametrize("temperature", [0.0, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("masked", [-np.inf, float(np.finfo(np.float32).min), -1e30])
def test_a_masked_token_is_never_drawn_and_warns_of_nothing(masked: float, temperature: float) -> None:
    """Padding of a vocabulary is masked with minus infinity or with the least float."""
    for extra in ({}, {"top_k": 3}, {"top_p": 0.99}, {"min_p": 0.01}):
        drawn = draws([masked, 1.0, 2.0, masked], Sampling(temperature=temperature, **extra), 100)
        assert set(drawn) <= {1, 2}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[np.nan, 1.0], [1.0, np.nan], [np.inf, 1.0], [-np.inf, -np.inf], [np.nan, np.inf]])
def test_logits_that_are_not_numbers_are_an_error_of_the_model(bad: list[float], temperature: float) -> None:
    with pytest.raises(BackendError, match="not numbers"):
        sampler(Sampling(temperature=temperature), 2).draw(logits(bad), may_end=True)


@pytest.mark.parametrize("value", [-1e30, 0.0, 1e30])
def test_equal_logits_are_uniform_whatever_their_size(value: float) -> None:
    counts = np.bincount(draws([value] * 4, Sampling(), 4_000), minlength=4)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 40


@pytest.mark.parametrize("fields", [{}, {"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.01}], ids=str)
def test_rounding_seldom_changes_what_a_seed_draws(fields: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 2, 5000).astype(np.float32)
    rounded = values + rng.normal(0, 0.01, 5000).astype(np.float32)
    sampling = Sampling(temperature=1.0, seed=9, **fields)
    pairs = zip(draws(list(values), sampling, 200), draws(list(rounded), sampling, 200), strict=True)
    assert sum(a == b for a, b in pairs) > 180


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(seed=3),
        Sampling(top_k=5, top_p=0.9, min_p=0.01),
        Sampling(presence_penalty=0.5, frequency_penalty=0.2, repetition_penalty=1.1, logit_bias=((3, 1.0),)),
    ],
)
def test_a_seed_repeats_its_draws_and_another_does_not(sampling: Sampling) -> None:
    assert draws(LOGITS, sampling, 60, seed=7) == draws(LOGITS, sampling, 60, seed=7)
    assert draws(LOGITS, sampling, 60, seed=7) != draws(LOGITS, sampling, 60, seed=8)


def test_without_a_seed_two_samplers_differ() -> None:
    row = logits([0.0] * 8)
    one, other = sampler(Sampling(), seed=None), sampler(Sampling(), seed=None)
    assert [one.draw(row, may_end=True) for _ in range(60)] != [other.draw(row, may_end=True) for _ in range(60)]


def test_end_tokens_are_banned_until_they_may_end() -> None:
    source = Sampler(Sampling(temperature=0.0), 4, 1, NO_PROMPT, (2, 3))
    row = logits([0.0, 1.0, 9.0, 8.0])
    assert source.draw(row, may_end=False) == 1
    assert source.draw(row, may_end=True) == 2


def test_the_ban_on_end_tokens_is_stronger_than_a_bias() -> None:
    source = Sampler(Sampling(temperature=0.0, logit_bias=((2, 100.0),)), 3, 1, NO_PROMPT, (2,))
    assert source.draw(logits([0.0, 1.0, 9.0]), may_end=False) == 1
