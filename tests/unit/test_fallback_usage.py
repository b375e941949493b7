"""A provider's count is believed where it can be, and ours is used, and flagged, where it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback.usage import FACTOR, SLACK_TOKENS, Counted, settled
from fallback.wire.contract import Claimed

COUNTED = Counted(1000, 500, has_images=False)
OURS = Claimed(1000, 0, 500, 0)


def claim(prompt: int = 1000, completion: int = 500, *, cached: int = 0, reasoning: int = 0) -> Claimed:
    return Claimed(prompt, cached, completion, reasoning)


@pytest.mark.parametrize(
    "claimed",
    [
        claim(),
        claim(900, 700),
        claim(2000, 1000),
        claim(500, 250),
        claim(cached=999),
        claim(completion=5000, reasoning=4500),
    ],
)
def test_a_claim_that_another_tokenizer_explains_is_believed(claimed: Claimed) -> None:
    assert settled(claimed, COUNTED, complete=True) == (claimed, ())


@pytest.mark.parametrize(
    "claimed",
    [claim(0), claim(100), claim(10_000), claim(completion=0), claim(completion=50), claim(completion=50_000)],
)
def test_a_claim_that_nothing_explains_gives_way_to_our_count(claimed: Claimed) -> None:
    assert settled(claimed, COUNTED, complete=True) == (OURS, ("usage-doubtful",))


def test_no_claim_gives_way_too() -> None:
    assert settled(None, COUNTED, complete=True) == (OURS, ("usage-missing",))
    assert settled(None, COUNTED, complete=False) == (OURS, ("usage-missing",))


def test_small_answers_may_differ_by_the_marks_around_messages() -> None:
    few = Counted(3, 1, has_images=False)
    assert settled(claim(20, 8), few, complete=True) == (claim(20, 8), ())


def test_a_claim_of_nothing_for_what_went_out_and_came_in_is_not_believed() -> None:
    few = Counted(30, 20, has_images=False)
    used, flags = settled(claim(0, 0), few, complete=True)
    assert (used.prompt_tokens, used.completion_tokens) == (30, 20)
    assert flags


def test_images_may_cost_more_than_can_be_counted_but_never_less() -> None:
    seen = Counted(1000, 500, has_images=True)
    assert settled(claim(90_000), seen, complete=True) == (claim(90_000), ())
    assert settled(claim(0), seen, complete=True)[1] == ("usage-doubtful",)


def test_thoughts_that_are_not_shown_cannot_be_counted_but_have_an_end() -> None:
    hidden = claim(completion=20_000, reasoning=19_500)
    assert settled(hidden, COUNTED, complete=True) == (hidden, ())
    absurd = claim(completion=2**39, reasoning=2**39 - 500)  # half a trillion: no budget may be spent on that
    assert settled(absurd, COUNTED, complete=True)[1] == ("usage-doubtful",)


def test_of_an_answer_that_broke_off_the_prompt_is_believed_and_what_came_is_counted() -> None:
    assert settled(claim(900, 1, cached=800), COUNTED, complete=False) == (
        claim(900, 500, cached=800),
        ("usage-missing",),
    )
    assert settled(claim(0, 1), COUNTED, complete=False) == (OURS, ("usage-missing",))


@given(
    claimed=st.builds(lambda p, c, x, y: Claimed(p, min(p, x), c, min(c, y)), *[st.integers(0, 2**40)] * 4),
    counted=st.builds(Counted, st.integers(0, 10**6), st.integers(0, 10**6), st.booleans()),
    complete=st.booleans(),
)
def test_what_is_used_is_never_far_below_our_own_count(claimed: Claimed, counted: Counted, *, complete: bool) -> None:
    used, flags = settled(claimed, counted, complete=complete)
    assert counted.prompt_tokens <= FACTOR * used.prompt_tokens + SLACK_TOKENS
    assert counted.completion_tokens <= FACTOR * used.completion_tokens + SLACK_TOKENS
    assert 0 <= used.cached_tokens <= used.prompt_tokens
    assert 0 <= used.reasoning_tokens <= used.completion_tokens
    assert flags or used == claimed
