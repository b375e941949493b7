"""Log-probabilities are the model's own: a log-softmax of its logits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from runtimes.contracts import Logits
from runtimes.engine.logprobs import token_logprob

ROWS = arrays(np.float32, st.integers(1, 40), elements=st.floats(-200, 200, width=32))


def name(token: int) -> bytes:
    return f"<{token}>".encode()


def log_softmax(logits: Logits) -> list[float]:
    wide = logits.astype(np.float64)
    shifted = wide - wide.max()
    return [float(value) for value in shifted - np.log(np.exp(shifted).sum())]


@settings(max_examples=200, deadline=None)
@given(ROWS, st.data())
def test_every_entry_is_the_log_softmax_of_its_token(logits: Logits, data: st.DataObject) -> None:
    logits.flags.writeable = False
    token = data.draw(st.integers(0, len(logits) - 1))
    entry = token_logprob(logits, token, len(logits), name)
    expected = log_softmax(logits)
    assert (entry.token_id, entry.token) == (token, name(token))
    assert entry.logprob == pytest.approx(expected[token], abs=1e-4)
    for listed in entry.top:
        assert listed.logprob == pytest.approx(expected[listed.token_id], abs=1e-4)
        assert listed.token == name(listed.token_id)
        assert listed.top == ()


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_the_probabilities_of_the_whole_vocabulary_sum_to_one(logits: Logits) -> None:
    entry = token_logprob(logits, 0, len(logits), name)
    assert sum(np.exp(listed.logprob) for listed in entry.top) == pytest.approx(1.0, abs=1e-4)
    assert all(listed.logprob <= 1e-6 for listed in entry.top)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.data())
def test_the_likeliest_come_first(logits: Logits, data: st.DataObject) -> None:
    top = data.draw(st.integers(1, len(logits)))
    entry = token_logprob(logits, 0, top, name)
    assert [listed.logprob for listed in entry.top] == sorted((listed.logprob for listed in entry.top), reverse=True)
    assert len({listed.token_id for listed in entry.top}) == top
    assert [logits[listed.token_id] for listed in entry.top] == sorted(logits, reverse=True)[:top]


def test_a_drawn_token_outside_the_list_keeps_its_own_entry() -> None:
    entry = token_logprob(np.array([3.0, 2.0, -5.0], dtype=np.float32), 2, 2, name)
    assert [listed.token_id for listed in entry.top] == [0, 1]
    assert entry.logprob < entry.top[-1].logprob


def test_none_are_listed_when_none_are_asked_for() -> None:
    assert token_logprob(np.array([0.0, 0.0], dtype=np.float32), 1, 0, name).top == ()


def test_a_masked_token_takes_no_part() -> None:
    entry = token_logprob(np.array([0.0, -np.inf, 0.0], dtype=np.float32), 0, 2, name)
    assert entry.logprob == pytest.approx(np.log(0.5))
    assert {listed.token_id for listed in entry.top} == {0, 2}
