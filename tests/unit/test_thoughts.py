"""A prompt lets its model think, ends its thoughts, or keeps it from them."""

import pytest

from appliance.protocol import Reasoning
from runtimes.dialects import Dialect, ReasoningMarks
from runtimes.dialects.call_forms import HARMONY
from runtimes.engine import Thinking
from runtimes.fake import FakeBackend
from runtimes.fake.backend import BOS, EOS
from runtimes.templates.result import Rendered, Segment
from runtimes.worker.thoughts import Thoughts, UnboundedThoughtsError

MARKED = Dialect(reasoning=ReasoningMarks("<s>", "</s>"))  # the fake vocabulary's special tokens
FAREWELL = (*b"\n", EOS, *b"\n\n")


SPELLED = {BOS: b"<s>", EOS: b"</s>"}


def let(
    dialect: Dialect, text: str, reasoning: Reasoning, *, has_form: bool = False, has_tools: bool = False
) -> tuple[str, Thinking | None]:
    rendered = Rendered((Segment(text, parse_special=True),), "as-given")
    thoughts = Thoughts(FakeBackend(), dialect)
    made, thinking = thoughts.let(rendered, reasoning, has_form=has_form, has_tools=has_tools)
    return made.text, thinking


def thinks(*, begun: bool = False, budget: int | None = None) -> Thinking:
    return Thinking(BOS, EOS, begun, budget, FAREWELL, SPELLED)


def test_a_model_that_does_not_think_is_left_alone() -> None:
    assert let(Dialect(), "hi", Reasoning(enabled=False, budget=3)) == ("hi", None)
    unknown = Dialect(reasoning=ReasoningMarks("<think>", "</think>"))  # of more than one token here
    assert let(unknown, "hi", Reasoning()) == ("hi", None)
    assert Thoughts(FakeBackend(), unknown).dialect.reasoning is None
    assert Thoughts(FakeBackend(), MARKED).dialect == MARKED


def test_whether_the_prompt_begins_the_thoughts_is_seen_at_its_end() -> None:
    assert let(MARKED, "hi", Reasoning()) == ("hi", thinks())
    assert let(MARKED, "hi<s>\n", Reasoning(budget=7)) == ("hi<s>\n", thinks(begun=True, budget=7))
    assert let(MARKED, "hi<s></s>", Reasoning())[1] == thinks()


@pytest.mark.parametrize("reasoning", [Reasoning(enabled=False), Reasoning(budget=0)])
def test_thoughts_that_are_switched_off_are_ended_and_not_begun(reasoning: Reasoning) -> None:
    assert let(MARKED, "hi<s>", reasoning) == ("hi<s>\n\n</s>\n\n", thinks(budget=0))
    assert let(MARKED, "hi", reasoning) == ("hi", thinks(budget=0))
    assert let(MARKED, "hi<s>", reasoning, has_form=True) == ("hi<s>\n\n</s>\n\n", None)


def test_a_model_that_announces_what_it_writes_is_made_to_answer_at_once() -> None:
    announcing = Dialect(calls=HARMONY)
    answer = "hi<|channel|>final<|message|>"
    assert let(announcing, "hi", Reasoning()) == ("hi", None)
    for reasoning in (Reasoning(enabled=False), Reasoning(budget=0)):
        assert let(announcing, "hi", reasoning) == (answer, None)
        assert let(announcing, "hi", reasoning, has_form=True, has_tools=True) == ("hi", None)  # it may call
    assert let(announcing, "hi", Reasoning(), has_form=True) == (answer, None)
    for has_form in (False, True):
        with pytest.raises(UnboundedThoughtsError):
            let(announcing, "hi", Reasoning(budget=5), has_form=has_form)
