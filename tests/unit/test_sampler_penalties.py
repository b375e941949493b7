"""Penalties and bias as OpenAI and vLLM define them, against a naive model of both."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from appliance.protocol import Sampling
from runtimes.contracts import Logits
from runtimes.engine.sampler import Sampler

N_VOCAB = 6
PROMPT = [0, 0, 4]


def row(values: list[float]) -> Logits:
    array = np.array(values, dtype=np.float32)
    array.flags.writeable = False
    return array


def naive_greedy(rows: list[Logits], sampling: Sampling, prompt: list[int]) -> list[int]:
    """vLLM's order: bias, repetition (over prompt and output), frequency and presence (over the output)."""
    output: list[int] = []
    for logits in rows:
        values = [float(value) for value in logits]
        for token, bias in sampling.logit_bias:
            values[token] += bias
        for token in {*prompt, *output}:
            factor = sampling.repetition_penalty
            values[token] = values[token] / factor if values[token] > 0 else values[token] * factor
        for token in set(output):
            values[token] -= sampling.frequency_penalty * output.count(token) + sampling.presence_penalty
        best, second = sorted(values, reverse=True)[:2]
        assume(best - second > 1e-3)  # nearer ones may come in another order in float32
        output.append(values.index(best))
    return output


def greedy(rows: list[Logits], sampling: Sampling, prompt: list[int]) -> list[int]:
    sampler = Sampler(sampling, N_VOCAB, 1, np.array(prompt, dtype=np.int32), ())
    return [sampler.draw(logits, may_end=True) for logits in rows]


LOGITS = st.lists(st.integers(-30, 30).map(lambda i: i * 0.4142), min_size=N_VOCAB, max_size=N_VOCAB, unique=True)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(LOGITS, min_size=1, max_size=8),
    st.sampled_from([0.0, 0.317, 1.9, -1.3]),
    st.sampled_from([0.0, 0.231, 1.7, -0.9]),
    st.sampled_from([1.0, 1.13, 1.9, 0.77]),
    st.sampled_from([(), ((1, 2.357),), ((0, -100.0), (5, 1.113)), ((2, 100.0),)]),
    st.sampled_from([[], PROMPT]),
)
def test_greedy_draws_are_those_of_the_definition(
    values: list[list[float]],
    presence: float,
    frequency: float,
    repetition: float,
    bias: tuple[tuple[int, float], ...],
    prompt: list[int],
) -> None:
    sampling = Sampling(
        temperature=0.0,
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=bias,
    )
    rows = [row(each) for each in values]
    assert greedy(rows, sampling, prompt) == naive_greedy(rows, sampling, prompt)


def test_the_prompt_counts_for_repetition_and_not_for_presence_or_frequency() -> None:
    rows = [row([1.0, 0.9, 0, 0, 0, 0])]
    assert greedy(rows, Sampling(temperature=0.0, presence_penalty=2.0, frequency_penalty=2.0), [0, 0]) == [0]
    assert greedy(rows, Sampling(temperature=0.0, repetition_penalty=1.5), [0]) == [1]


def test_a_frequency_penalty_grows_with_each_use_and_a_presence_penalty_does_not() -> None:
    rows = [row([2.0, 1.0, -9, -9, -9, -9])] * 6
    assert greedy(rows, Sampling(temperature=0.0, frequency_penalty=0.4), []) == [0, 0, 0, 1, 0, 1]
    assert greedy(rows, Sampling(temperature=0.0, presence_penalty=0.4), []) == [0, 0, 0, 0, 0, 0]


def test_a_repetition_penalty_makes_a_negative_logit_less_likely_too() -> None:
    rows = [row([-1.0, -1.5, -9, -9, -9, -9])]
    assert greedy(rows, Sampling(temperature=0.0, repetition_penalty=2.0), [0]) == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_a_bias_of_100_forces_and_of_minus_100_forbids(temperature: float) -> None:
    rows = [row([3.0, 2.0, 1.0, 0.0, -1.0, -2.0])] * 50
    forced = Sampling(temperature=temperature, logit_bias=((5, 100.0),))
    forbidden = Sampling(temperature=temperature, logit_bias=((0, -100.0),))
    assert set(greedy(rows, forced, [])) == {5}
    assert 0 not in greedy(rows, forbidden, [])


def test_a_bias_comes_before_the_repetition_penalty_as_in_vllm() -> None:
    """A token with logit 1 and bias 3, seen before: (1 + 3) / 2 is below 2.2, 1 / 2 + 3 would be above."""
    sampling = Sampling(temperature=0.0, repetition_penalty=2.0, logit_bias=((0, 3.0),))
    assert greedy([row([1.0, 2.2, -9, -9, -9, -9])], sampling, [0]) == [1]


def test_penalties_shift_the_probabilities_of_random_draws() -> None:
    """Two equal tokens: after the first draw the penalty makes the other e times as likely."""
    rows = [row([0.0, 0.0, -99, -99, -99, -99])] * 2
    changed = 0
    n = 4_000
    for seed in range(n):
        sampler = Sampler(Sampling(presence_penalty=1.0), N_VOCAB, seed, np.empty(0, dtype=np.int32), ())
        first, second = (sampler.draw(each, may_end=True) for each in rows)
        changed += first != second
    assert abs(changed / n - np.e / (1 + np.e)) < 0.045  # six standard deviations
