"""What a model thought, what it says and what it calls are told apart, however its text is cut into pieces."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.answer_reader import AnswerReader, ReasoningReader
from appliance.protocol import (
    Delta,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TokenLogprob,
    ToolCallDelta,
    ToolUse,
)
from runtimes.dialects import Dialect, ReasoningMarks, dialect_of

MARKS = ReasoningMarks("<think>", "</think>")


def read(pieces: Iterable[str], *, begun: bool = False, reason: FinishReason = "stop") -> tuple[str, str]:
    """(thoughts, answer)"""
    reader, thoughts, text = ReasoningReader(MARKS), "", ""
    deltas: list[Event] = [Delta(0, piece, 1) for piece in pieces]
    for event in [Started(0, 1, 0, 0.0, thinking=begun), *deltas, Finished(0, reason, 9)]:
        for news in reader.read(event):
            match news:
                case ReasoningDelta():
                    assert not text, "thoughts come before the answer"
                    thoughts += news.text
                case Delta():
                    text += news.text
    return thoughts, text


CASES = [
    ("<think>\nHm, 5 < 6.\n</think>\n\nIt is 5.", False, ("Hm, 5 < 6.", "It is 5.")),
    ("\n<think></think>yes", False, ("", "yes")),
    ("\nHm.\n\nSo.\n</think>\n\nyes\n", True, ("Hm.\n\nSo.", "yes\n")),
    ("yes, <think> is a tag</think>", False, ("", "yes, <think> is a tag</think>")),
    ("  <thin air", False, ("", "  <thin air")),
    ("<think>a</think> b </think> c", False, ("a", "b </think> c")),
    ("", False, ("", "")),
    ("", True, ("", "")),
]


@pytest.mark.parametrize(("written", "begun", "told"), CASES)
def test_thoughts_and_answer_are_told_apart(written: str, begun: bool, told: tuple[str, str]) -> None:  # noqa: FBT001 - pytest's parameter
    assert read([written], begun=begun) == told
    assert read(written, begun=begun) == told  # a character at a time


@given(case=st.sampled_from(CASES), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_pieces_do_not_matter(case: tuple[str, bool, tuple[str, str]], cuts: list[int]) -> None:
    written, begun, told = case
    edges = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    assert read([written[a:b] for a, b in itertools.pairwise(edges)], begun=begun) == told


def test_thoughts_that_are_cut_short_are_thoughts() -> None:
    assert read(["<think>Hm, 5 </thi"], reason="length") == ("Hm, 5 </thi", "")
    assert read(["<thi"], reason="length") == ("", "")
    assert read(["<t"], reason="length") == ("", "<t")


@given(st.text("<think>/\n a", max_size=40))
def test_no_text_is_lost(written: str) -> None:
    thoughts, text = read([written])
    told = "".join((thoughts + text).split())
    assert told in (
        "".join(written.split()),
        "".join(written.replace("<think>", "", 1).replace("</think>", "", 1).split()),
    )


def test_thoughts_and_logprobs_do_not_mix_and_tokens_are_counted_once() -> None:
    reader = ReasoningReader(MARKS)
    one = (TokenLogprob(1, b"x", -0.5),)
    events = [event for text in ("<think>", "a", "</think>", "b") for event in reader.read(Delta(0, text, 1, one))]
    assert events == [ReasoningDelta(0, "a", 2), ReasoningDelta(0, "", 1), Delta(0, "b", 1, one)]


def test_no_log_probability_is_lost_while_it_is_undecided() -> None:
    reader = ReasoningReader(MARKS)
    told = [
        logprob.token_id
        for number, text in enumerate(("", "<", "th", "at>", " is"))
        for event in reader.read(Delta(0, text, 1, (TokenLogprob(number, b"x", -0.5),)))
        if isinstance(event, Delta)
        for logprob in event.logprobs
    ]
    assert told == [0, 1, 2, 3, 4]


def test_choices_do_not_mix() -> None:
    reader = ReasoningReader(MARKS)
    reader.read(Started(1, 1, 0, 0.0, thinking=True))
    assert reader.read(Delta(0, "a", 1)) == [Delta(0, "a", 1)]
    assert reader.read(Delta(1, "b", 1)) == [ReasoningDelta(1, "b", 1)]


def test_a_call_that_is_only_thought_of_is_none() -> None:
    reader = AnswerReader(Dialect(reasoning=MARKS), ToolUse("auto"))
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    events = [event for text in (f"<think>{call}", "</think>", call) for event in reader.read(Delta(0, text, 1))]
    events += reader.read(Finished(0, "stop", 3))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == call
    assert [event.name for event in events if isinstance(event, ToolCallDelta) and event.name] == ["look"]
    assert events[-1] == Finished(0, "tool_calls", 3)


HARMONY_SAYS = [
    ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>yes", "Hm.", "yes", []),
    ("<|channel|>final<|message|>a <|x|> b", "", "a <|x|> b", []),
    (("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.look "
      '<|constrain|>json<|message|>{"a": "<|end|>"}'), "", "I look.", [("look", '{"a": "<|end|>"}')]),
    ("<|channel|><|message|>a<|start|>b", "", "ab", []),  # a model that is confused
    ("<|channel|>fin", "", "", []),
    ("<|channel|>analysis<|mess", "", "", []),
    ("<|channel|>commentary to=functions.lo", "", "", []),
]  # fmt: skip


@pytest.mark.parametrize(("written", "thoughts", "text", "calls"), HARMONY_SAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_what_a_model_announces_is_not_said(
    written: str, thoughts: str, text: str, calls: list[tuple[str, str]], size: int
) -> None:
    reader = AnswerReader(dialect_of("<|start|><|channel|>"), ToolUse("auto"))
    pieces = [written[i : i + size] for i in range(0, len(written), size)]
    events = [event for piece in pieces for event in reader.read(Delta(0, piece, 1))]
    events += reader.read(Finished(0, "length", 9))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == thoughts
    assert "".join(event.text for event in events if isinstance(event, Delta)) == text
    told = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [event.name for event in told if event.name] == [name for name, _ in calls]
    assert "".join(event.arguments for event in told) == "".join(arguments for _, arguments in calls)
