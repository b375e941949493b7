"""What a choice thinks first is free, may be bounded, and concerns neither the form of its answer nor its stops."""

from dataclasses import replace

import pytest

from appliance.protocol import Delta, Sampling, Started
from runtimes.constraints.grammar import Grammars
from runtimes.constraints.vocabulary import Greedy, tokenizer, vocabulary_of
from runtimes.engine import Job, Thinking
from runtimes.engine.thinking import Mind
from runtimes.fake import FakeBackend
from tests.contract.engine_driver import Answer, Clock, Drive, ScriptedBackend, job

VOCABULARY = vocabulary_of(FakeBackend())
GRAMMARS = Grammars(tokenizer(VOCABULARY, Greedy(VOCABULARY)), len(VOCABULARY.tokens))
ROUND = Thinking(ord("("), ord(")"), begun=False, farewell=(*b"..)\n",))


def answer(script: str, thinking: Thinking, *, pattern: str | None = None, **fields: object) -> Answer:
    clock = Clock()
    asked = job("a", "say", **{"max_tokens": 60, **fields})  # type: ignore[arg-type] # handed on
    backend = ScriptedBackend(script.encode(), prompt_tokens=len(asked.prompt), clock=clock, end_every=None)
    constraint = GRAMMARS.matcher("regex", pattern) if pattern else None
    driven = Drive(backend=backend).submit(replace(asked, thinking=thinking, constraint=constraint))
    return driven.drain()["a", 0]


def test_thoughts_are_free_and_the_answer_has_its_form() -> None:
    assert answer("(hm, 5?)12345", ROUND, pattern="[0-9]{5}").text == "(hm, 5?)12345"
    assert answer("12345", ROUND, pattern="[0-9]{5}").text == "12345"
    assert answer("hm)12345", replace(ROUND, begun=True), pattern="[0-9]{5}").text == "hm)12345"


def test_an_answer_that_must_come_comes_although_the_model_would_end_within_its_thoughts() -> None:
    text = answer("(hm", replace(ROUND, budget=6), pattern="[0-9]{3}", max_tokens=60).text
    assert text.startswith("(hm")
    assert text.partition(")\n")[2].isdigit()


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_ends_the_thoughts(budget: int) -> None:
    thinking = replace(ROUND, budget=budget)
    assert answer("(abcdefgh)yes", thinking, max_tokens=12).text.startswith(f"({'abcdefgh'[:budget]}..)\n")
    begun = answer("abcdefgh)yes", replace(thinking, begun=True), max_tokens=12)
    assert begun.text.startswith(f"{'abcdefgh'[:budget]}..)\n")


def test_a_budget_that_is_not_spent_changes_nothing() -> None:
    assert answer("(abc)yes", replace(ROUND, budget=4)).text == "(abc)yes"


def test_stop_strings_concern_the_answer() -> None:
    assert answer("(a; b)c; d", ROUND, stop=(";",)).text == "(a; b)c"
    assert answer("c; d", ROUND, stop=(";",)).text == "c"


def test_thoughts_cut_by_length_say_so() -> None:
    cut = answer("(abcdefgh)12", ROUND, pattern="[0-9]{2}", max_tokens=5)
    assert (cut.text, cut.reason) == ("(abcd", "length")


def test_whoever_reads_is_told_that_the_prompt_began_the_thoughts() -> None:
    driven = Drive().submit(replace(job("a", "say", max_tokens=2), thinking=replace(ROUND, begun=True)))
    driven.drain()
    assert [event.thinking for event in driven.events["a", 0] if isinstance(event, Started)] == [True]


def test_control_tokens_that_are_marks_are_shown() -> None:
    bos = FakeBackend().info.bos_id
    assert bos is not None
    asked: Job = replace(
        job("a", "say", max_tokens=3),
        sampling=Sampling(temperature=0, logit_bias=((bos, 100.0),)),
        marks={bos: b"<mark>"},
    )
    driven = Drive().submit(asked)
    driven.drain()
    assert "".join(event.text for event in driven.events["a", 0] if isinstance(event, Delta)) == "<mark>" * 3


def test_each_token_is_one_of_the_thoughts_or_of_the_answer() -> None:
    mind = Mind(replace(ROUND, budget=2))
    seen = [(token := mind.forced() or ord(written), mind.saw(token)) for written in "(abcdxyz"]
    assert "".join(chr(token) for token, _ in seen) == "(ab..)\nz"
    assert [is_answer for _, is_answer in seen] == [False] * 7 + [True]
