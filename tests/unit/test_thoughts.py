"""A prompt lets its model think, ends its thoughts, or keeps it from them."""

from dataclasses import replace

import pytest

from appliance.protocol import Reasoning
from runtimes.dialects import Dialect, ReasoningMarks
from runtimes.dialects.call_forms import HARMONY, NEUTRAL
from runtimes.engine import Thinking
from runtimes.fake import FakeBackend
from runtimes.fake.backend import BOS, EOS
from runtimes.templates.result import Rendered, Segment
from runtimes.worker.thoughts import Thoughts, UnboundedThoughtsError

MARKED = Dialect(reasoning=ReasoningMarks("<s>", "</s>"))  # the fake vocabulary's special tokens
FAREWELL = (*b"\n", EOS, *b"\n\n")


def let(dialect: Dialect, text: str, reasoning: Reasoning, *, has_form: bool = False) -> tuple[str, Thinking | None]:
    rendered = Rendered((Segment(text, parse_special=True),), "as-given")
    made, thinking = Thoughts(FakeBackend(), dialect).let(rendered, reasoning, has_form=has_form)
    return made.text, thinking


def test_a_model_that_does_not_think_is_left_alone() -> None:
    assert let(Dialect(), "hi", Reasoning(enabled=False, budget=3)) == ("hi", None)
    unknown = Dialect(reasoning=ReasoningMarks("<think>", "</think>"))  # of more than one token here
    assert let(unknown, "hi", Reasoning()) == ("hi", None)
    assert Thoughts(FakeBackend(), unknown).dialect.reasoning is None
    assert Thoughts(FakeBackend(), MARKED).dialect == MARKED


def test_whether_the_prompt_begins_the_thoughts_is_seen_at_its_end() -> None:
    assert let(MARKED, "hi", Reasoning()) == ("hi", Thinking(BOS, EOS, begun=False, farewell=FAREWELL))
    assert let(MARKED, "hi<s>\n", Reasoning(budget=7)) == ("hi<s>\n", Thinking(BOS, EOS, True, 7, FAREWELL))  # noqa: FBT003 - a field
    assert let(MARKED, "hi<s></s>", Reasoning())[1] == Thinking(BOS, EOS, begun=False, farewell=FAREWELL)


def test_thoughts_that_are_switched_off_are_ended_and_not_begun() -> None:
    off = Thinking(BOS, EOS, begun=False, budget=0, farewell=FAREWELL)
    assert let(MARKED, "hi<s>", Reasoning(enabled=False)) == ("hi<s>\n\n</s>\n\n", off)
    assert let(MARKED, "hi", Reasoning(enabled=False)) == ("hi", off)


def test_a_model_that_announces_what_it_writes_is_made_to_answer_at_once() -> None:
    announcing = Dialect(calls=HARMONY)
    answer = "hi<|channel|>final<|message|>"
    assert let(announcing, "hi", Reasoning()) == ("hi", None)
    for reasoning in (Reasoning(enabled=False), Reasoning(budget=0)):
        assert let(announcing, "hi", reasoning) == (answer, None)
    assert let(announcing, "hi", Reasoning(), has_form=True) == (answer, None)
    with pytest.raises(UnboundedThoughtsError):
        let(announcing, "hi", Reasoning(budget=5))


def test_the_marks_are_shown_to_whoever_reads() -> None:
    assert Thoughts(FakeBackend(), MARKED).marks() == {BOS: "<s>", EOS: "</s>"}
    assert Thoughts(FakeBackend(), Dialect()).marks() == {}
    announcing = replace(NEUTRAL, speaks="<s>", marks=("<s>", "no token"))
    assert Thoughts(FakeBackend(), Dialect(announcing)).marks() == {BOS: "<s>"}
