"""A constrained choice says only what it may, ends where its form ends, and disturbs nobody."""

import re
import threading
from dataclasses import replace

import pytest

from appliance.protocol import Failed, Sampling
from runtimes.constraints.grammar import Grammars
from runtimes.constraints.vocabulary import Greedy, tokenizer, vocabulary_of
from runtimes.contracts import Allowed, ConstraintError
from runtimes.engine import Job
from runtimes.fake import FakeBackend
from tests.contract.engine_driver import Drive, alone, job

VOCABULARY = vocabulary_of(FakeBackend())
GRAMMARS = Grammars(tokenizer(VOCABULARY, Greedy(VOCABULARY)), len(VOCABULARY.tokens))
ANY = Sampling(temperature=2.0, seed=3)


def constrained(name: str, pattern: str, **fields: object) -> Job:
    asked = job(name, "say", **fields)  # type: ignore[arg-type] # handed on
    return replace(asked, constraint=GRAMMARS.matcher("regex", pattern))


@pytest.mark.parametrize("sampling", [ANY, Sampling(temperature=0), Sampling(temperature=1, top_p=0.5, top_k=3)])
def test_each_choice_has_the_form_and_ends_with_it(sampling: Sampling) -> None:
    driven = Drive(slots=4).submit(constrained("a", "[0-9]{3}x+y", sampling=sampling, n=4, max_tokens=400))
    answers = driven.drain()
    assert len(answers) == 4
    for answer in answers.values():
        assert re.fullmatch("[0-9]{3}x+y", answer.text)
        assert answer.reason == "stop"


def test_an_answer_cut_short_says_so() -> None:
    answer = Drive().submit(constrained("a", "[0-9]{30}", max_tokens=12)).drain()["a", 0]
    assert re.fullmatch("[0-9]{12}", answer.text)
    assert answer.reason == "length"


def test_the_form_decides_where_the_answer_ends() -> None:
    asked = {"min_tokens": 30, "ignore_eos": True, "max_tokens": 40}
    answer = Drive().submit(constrained("a", "[0-9]{5}", **asked)).drain()["a", 0]
    assert len(answer.text) == 5
    assert answer.reason == "stop"


def test_free_streams_beside_it_say_what_they_say_alone() -> None:
    free = [job(name, f"the prompt of {name}", max_tokens=30) for name in "bcd"]
    driven = Drive(slots=4).submit(constrained("a", "[0-9]{25}", max_tokens=40), *free)
    answers = driven.drain()
    for asked in free:
        assert answers[asked.id, 0] == alone(asked)[asked.id, 0]


def test_a_form_is_followed_through_a_full_cache_and_preemptions() -> None:
    jobs = [constrained(name, "[0-9]{40}", max_tokens=60) for name in "abcd"]
    driven = Drive(slots=4, kv_tokens=110, context_tokens=100).submit(*jobs)
    answers = driven.drain()
    assert driven.engine.stats().preemptions > 0
    assert all(re.fullmatch("[0-9]{40}", answers[name, 0].text) for name in "abcd")


class Breaking:
    """A form that cannot be followed past some tokens."""

    def __init__(self, tokens_left: int) -> None:
        self._left = tokens_left

    def fork(self) -> "Breaking":
        return Breaking(self._left)

    def allowed(self) -> Allowed:
        if self._left == 0:
            raise ConstraintError("too complex, as the test ordered")
        return GRAMMARS.matcher("regex", "[a-z]*").fork().allowed()

    def accept(self, token: int) -> None:
        self._left -= 1


def test_a_form_that_cannot_be_followed_fails_its_own_request_only() -> None:
    other = job("b", "another", max_tokens=30)
    driven = Drive().submit(replace(job("a", "say", max_tokens=30), constraint=Breaking(3)), other)
    answers = driven.drain()
    last = driven.events["a", 0][-1]
    assert isinstance(last, Failed)
    assert (last.code, last.message) == ("invalid_request", "too complex, as the test ordered")
    assert answers["b", 0] == alone(other)["b", 0]
    driven.check_nothing_is_held()


def test_a_constrained_request_can_be_cancelled_at_any_step() -> None:
    for steps in range(6):
        driven = Drive().submit(constrained("a", "[0-9]{25}", max_tokens=40))
        for _ in range(steps):
            driven.step()
        driven.cancel("a")
        driven.check_nothing_is_held()


class Slow(Breaking):
    """A form that takes its time, until it is told to go on."""

    def __init__(self, go_on: threading.Event) -> None:
        super().__init__(100)
        self._go_on = go_on

    def fork(self) -> "Slow":
        return Slow(self._go_on)

    def allowed(self) -> Allowed:
        assert self._go_on.wait(30)
        return super().allowed()


def test_nobody_waits_for_a_form_that_takes_longer_than_a_step() -> None:
    go_on = threading.Event()
    other = job("b", "another", max_tokens=30)
    driven = Drive().submit(replace(job("a", "say", max_tokens=4), constraint=Slow(go_on)), other)
    while ("b", 0) not in driven.answers():
        driven.step()
    assert driven.answers()["b", 0] == alone(other)["b", 0]
    assert ("a", 0) not in driven.answers()
    go_on.set()
    assert re.fullmatch("[a-z]{0,4}", driven.drain()["a", 0].text)
    driven.check_nothing_is_held()


def test_a_slow_form_can_be_cancelled_and_its_cells_taken() -> None:
    go_on = threading.Event()
    driven = Drive(slots=2, kv_tokens=64, context_tokens=60)
    driven.submit(replace(job("a", "say", max_tokens=40), constraint=Slow(go_on)))
    for _ in range(3):
        driven.step()
    driven.submit(job("b", "x" * 55, max_tokens=4))
    for _ in range(20):
        driven.step()
    driven.cancel("a")
    assert ("b", 0) in driven.drain()
    go_on.set()
    driven.check_nothing_is_held()


def test_a_slow_form_that_had_to_step_back_is_taken_up_again() -> None:
    go_on = threading.Event()
    jobs = [replace(job(name, "say it " * 4, max_tokens=20), constraint=Slow(go_on)) for name in "ab"]
    driven = Drive(slots=4, kv_tokens=80, context_tokens=80, end_every=None)
    driven.submit(*jobs, job("c", "z", max_tokens=60))
    while ("c", 0) not in driven.answers():
        driven.step()
        if driven.engine.stats().preemptions:
            go_on.set()
    go_on.set()
    answers = driven.drain()
    assert driven.engine.stats().preemptions > 0
    assert all(re.fullmatch("[a-z]{0,20}", answers[name, 0].text) for name in "ab")
    driven.check_nothing_is_held()
