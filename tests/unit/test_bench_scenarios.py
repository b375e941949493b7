"""The pure parts of the other benchmarks: prompts, time bounds, token counts, overhead, tables."""

import itertools
import random

import pytest

from tests.bench.bounds import TimeBound
from tests.bench.measurement import Noise
from tests.bench.overhead import Timing, summarise
from tests.bench.prefix import PrefixRun, claims, fewest_tokens
from tests.bench.prompts import system_prompt, user_prompts
from tests.bench.report import table


def test_prompts_differ_within_one_series_and_between_seeds() -> None:
    some = list(itertools.islice(user_prompts("a"), 500))
    others = list(itertools.islice(user_prompts("b"), 500))
    assert len({prompt[:8] for prompt in some + others}) == 1000


def test_one_seed_gives_every_server_the_same_prompts() -> None:
    assert list(itertools.islice(user_prompts("a"), 20)) == list(itertools.islice(user_prompts("a"), 20))
    assert system_prompt("a", 36) == system_prompt("a", 36)
    assert system_prompt("a", 36)[:20] != system_prompt("b", 36)[:20]


class _Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_round_that_would_end_too_late_is_not_begun() -> None:
    clock = _Clock()
    bound = TimeBound(100, clock)
    begun = 0
    while bound.allows("round"):
        begun += 1
        clock.now_s += 30
    assert (begun, clock.now_s) == (3, 90)


def test_a_shorter_kind_of_round_may_still_fit() -> None:
    clock = _Clock()
    bound = TimeBound(100, clock)
    for kind, seconds in (("long", 60), ("short", 10)):
        assert bound.allows(kind)
        clock.now_s += seconds
    assert not bound.allows("long")
    assert bound.allows("short")


def test_the_first_round_of_a_kind_may_begin_until_the_time_is_up() -> None:
    clock = _Clock()
    bound = TimeBound(100, clock)
    assert bound.allows("a")
    clock.now_s += 99
    assert bound.allows("b")
    clock.now_s += 1
    assert not bound.allows("c")


def test_the_fewest_tokens_are_one_whole_prompt_and_the_others_suffixes() -> None:
    assert fewest_tokens([1040, 1050, 1045], 1000) == 1000 + 40 + 50 + 45


def test_the_prefix_claim_is_about_our_daemon_only() -> None:
    ours = PrefixRun("appliance", 8, 40, 1000, 42_000, 3_000, 3_150, 20.0, Noise(0, 0, 0))
    theirs = PrefixRun("llama-server", 8, 40, 1000, 42_000, 3_000, 10_000, 60.0, Noise(0, 0, 0))
    silent = PrefixRun("appliance", 8, 40, 1000, 42_000, 3_000, None, 20.0, Noise(0, 0, 0))
    (claim,) = claims([ours, theirs, silent])
    assert claim.measured == pytest.approx(1.05)
    assert claim.holds


def test_overhead_is_the_median_of_the_differences_of_pairs() -> None:
    rng = random.Random(1)
    pairs = []
    for _ in range(51):  # the prefill varies by far more than what the daemon adds
        ttft_s, token_s = rng.uniform(0.03, 0.3), rng.uniform(0.007, 0.02)
        pairs.append((Timing(40, ttft_s + 0.002, token_s + 0.0005), Timing(40, ttft_s, token_s)))
    overhead = summarise(pairs, elsewhere=0.0)
    assert overhead.added_ttft_s.median == pytest.approx(0.002)
    assert overhead.added_token_s.median == pytest.approx(0.0005)
    assert overhead.pairs == 51


def test_a_table_lines_its_columns_up() -> None:
    assert table(("", "ms"), [("short", "1.0"), ("much longer", "100.0")]) == [
        "                ms",
        "------------------",
        "short          1.0",
        "much longer  100.0",
    ]
