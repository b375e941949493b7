"""The trace of agents means what it says, and a wrong answer to one of its requests is found."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.bench.cache.agents import load
from tests.bench.cache.judging import Answered, by_category, hits, saved_tokens
from tests.bench.cache.trace import CALL_TOKENS, SHARES, Step, trace
from tests.bench.cache.verifying import PAIRS

SEEDS = (1, 2, 3)
TASKS = 60


@pytest.fixture(scope="module", params=SEEDS)
def steps(request: pytest.FixtureRequest) -> Sequence[Step]:
    return list(trace(request.param, TASKS))


def test_one_seed_gives_one_trace_and_another_seed_another() -> None:
    assert list(trace(1, 10)) == list(trace(1, 10)) != list(trace(2, 10))


def test_the_families_are_many_and_nobody_else_s() -> None:
    families = [family for agent in load() for family in agent.families]
    assert len(families) >= 40
    assert all(len(family.same) >= 4 and len(family.other) >= 2 for family in families)
    for agent in load():
        texts = [text for family in agent.families for text in (*family.same, *family.other.values())]
        assert not [text for text, count in Counter([*texts, *agent.now, *agent.sampled]).items() if count > 1]
    pairs = {text for line in PAIRS.read_text().splitlines() for text in _texts(json.loads(line))}
    assert not pairs & {text for family in families for text in (*family.same, *family.other.values())}


def _texts(pair: dict[str, Any]) -> tuple[str, str]:
    return pair["a"], pair["b"]


def test_the_mix_is_the_one_that_was_asked_for(steps: Sequence[Step]) -> None:
    counts = Counter(step.category for step in steps)
    assert {name: counts[name] / len(steps) for name in SHARES} == pytest.approx(dict(SHARES), abs=0.02)
    assert len({step.agent for step in steps}) >= 7
    assert sum("x-appliance-step" in step.headers for step in steps) > len(steps) / 2


def test_each_request_is_to_the_earlier_ones_what_its_category_says(steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps):
        here = [earlier for earlier in steps[:number] if earlier.context == step.context]
        alike = [earlier for earlier in here if earlier.meaning == step.meaning]
        if step.category == "repeat":
            assert any(earlier.body == step.body for earlier in alike)
        elif step.category == "paraphrase":
            assert alike
            assert all(earlier.text != step.text for earlier in here)
        elif step.category == "trap":
            assert not alike
            assert any(earlier.family == step.family for earlier in here)
        else:
            assert not alike
        if step.category not in ("now", "sampled", "tools"):
            assert all((earlier.text != step.text) or (earlier.meaning == step.meaning) for earlier in here)


def test_conversations_grow_turn_by_turn(steps: Sequence[Step]) -> None:
    later = [step for step in steps if step.category == "multi-turn"]
    for step in later:
        before = [s for s in steps[: steps.index(step)] if s.task == step.task][-1].body["messages"]
        messages = step.body["messages"]
        assert messages[: len(before)] == before
        assert [message["role"] for message in messages[len(before) :]] == ["assistant", "user"]
    assert later


def test_requests_are_short_and_only_draws_are_drawn(steps: Sequence[Step]) -> None:
    assert all(step.body["max_tokens"] <= CALL_TOKENS for step in steps)
    assert all((step.body["temperature"] > 0) == (step.category == "sampled") for step in steps)
    assert not any("$" in json.dumps(step.body["messages"]) for step in steps)


STEP = dataclasses.replace(next(trace(1, 1)), category="fresh", context="c", meaning="m")
MADE = Answered(STEP, "local", "stop", "Yes.", prompt_tokens=100, cached_tokens=40, came_s=10.0)
OTHER = dataclasses.replace(MADE, step=dataclasses.replace(STEP, meaning="n"), answer="No.", came_s=50.0)


def hit(**fields: Any) -> Answered:
    step = dataclasses.replace(STEP, category="paraphrase", **fields)
    return Answered(step, "cache-semantic", "stop", "Yes.", 100, 100, came_s=70.0, age_s=60.0)


@pytest.mark.parametrize(
    ("earlier", "served", "wrong"),
    [
        ([MADE, OTHER], hit(), False),
        ([MADE, OTHER], dataclasses.replace(hit(), answer="No.", age_s=20.0), True),  # of another meaning
        ([MADE], hit(meaning="n"), True),
        ([MADE], hit(context="d"), True),
        ([MADE], dataclasses.replace(hit(), answer="Never said."), True),
        # Both say the same: the age tells which it was.
        ([MADE, dataclasses.replace(OTHER, answer="Yes.")], hit(meaning="n"), True),
        ([MADE, dataclasses.replace(OTHER, answer="Yes.")], dataclasses.replace(hit(meaning="n"), age_s=20.0), False),
    ],
)
def test_a_hit_is_wrong_if_no_answer_that_it_can_be_was_for_its_meaning(
    earlier: list[Answered], served: Answered, *, wrong: bool
) -> None:
    (judged,) = hits([*earlier, served])
    assert (judged.is_wrong, judged.is_certain) == (wrong, True)


def test_what_cannot_be_told_apart_is_said_to_be_uncertain() -> None:
    (judged,) = hits([MADE, dataclasses.replace(OTHER, answer="Yes.", came_s=10.5), hit()])
    assert (judged.is_wrong, judged.is_certain) == (False, False)


def test_tokens_are_counted_once_by_what_spared_them() -> None:
    exact = dataclasses.replace(hit(), route="cache-exact", prompt_tokens=70, cached_tokens=70)
    answered = [MADE, exact, hit()]
    assert saved_tokens(answered) == {"exact": 70, "semantic": 100, "prefix": 40}
    counts = {row.category: row for row in by_category(answered, list(hits(answered)))}
    paraphrases = counts["paraphrase"]
    assert (paraphrases.sent, paraphrases.exact, paraphrases.semantic, paraphrases.computed) == (2, 1, 1, 0)
    assert counts["fresh"].computed == 1
