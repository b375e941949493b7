# ruff: noqa: RUF001 - DeepSeek spells its marks so
"""Calls are found in a model's text however it is cut into pieces, and text that is no call stays text."""

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.protocol import Delta, Event, Finished, FinishReason, Started, TokenLogprob, ToolCallDelta
from appliance.tool_calls import ToolCallReader
from runtimes.dialects.call_forms import DEEPSEEK, HERMES, LLAMA3, MISTRAL, MISTRAL_LIST, NEUTRAL, PHI4, CallForm


def written_calls(form: CallForm, *calls: tuple[str, str]) -> str:
    """As a model of the family writes them."""
    names = [json.dumps(name, ensure_ascii=False) if form.name_is_json else name for name, _ in calls]
    texts = [name + form.before_arguments + call[1] + form.closing for name, call in zip(names, calls, strict=True)]
    return form.opening + (form.between or "").join(texts) + form.end


def call(name: str, arguments: str) -> str:
    return written_calls(NEUTRAL, (name, arguments))


def read(
    pieces: Iterable[str], reason: FinishReason = "stop", choice: int = 0, form: CallForm = NEUTRAL
) -> tuple[str, list[tuple[str, str]], str]:
    """(text, calls as (name, arguments), finish reason); checks ids and indices on the way."""
    reader, text, ids = ToolCallReader(form), "", set[str]()
    calls: list[tuple[str, str]] = []
    events: list[Event] = [Delta(choice, piece, 1) for piece in pieces]
    finish = ""
    for event in [Started(choice, 1, 0, 0.0), *events, Finished(choice, reason, 9)]:
        for news in reader.read(event):
            match news:
                case Delta():
                    text += news.text
                case ToolCallDelta(id=str() as call_id, name=str() as name):
                    assert news.index == len(calls)
                    assert call_id not in ids
                    ids.add(call_id)
                    calls.append((name, news.arguments))
                case ToolCallDelta():
                    assert (news.id, news.name) == (None, None)
                    assert news.index == len(calls) - 1
                    calls[-1] = (calls[-1][0], calls[-1][1] + news.arguments)
                case Finished():
                    finish = news.reason
    return text, calls, finish


CASES: list[tuple[str, str, list[tuple[str, str]]]] = [
    (call("look", "{}"), "", [("look", "{}")]),
    ("I look.\n" + call("look", '{"a": "}"}'), "I look.", [("look", '{"a": "}"}')]),
    (
        call("a", '{"x": {"y": [1, {"z": "]}"}]}}') + "\n" + call("b", r'{"q": "\"}\\"}'),
        "",
        [("a", '{"x": {"y": [1, {"z": "]}"}]}}'), ("b", r'{"q": "\"}\\"}')],
    ),
    (call('näme "q"', '{"ü": "🙂</tool_call>"}'), "", [('näme "q"', '{"ü": "🙂</tool_call>"}')]),
    ('<tool_call>\n{"name": "x", "arg": {}}', '<tool_call>\n{"name": "x", "arg": {}}', []),
    ("just text\n\n", "just text\n\n", []),
    ("a < b and <tool_ and <tool_cal", "a < b and <tool_ and <tool_cal", []),
    ("<tool_call>no call</tool_call> more", "<tool_call>no call</tool_call> more", []),
    ('<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
    ("<tool_call>", "<tool_call>", []),
    ("", "", []),
]


@pytest.mark.parametrize(("written", "text", "calls"), CASES, ids=[repr(case[0][:30]) for case in CASES])
def test_text_and_calls_are_told_apart(written: str, text: str, calls: list[tuple[str, str]]) -> None:
    expected = (text, calls, "tool_calls" if calls else "stop")
    assert read([written]) == expected
    assert read(written) == expected  # a character at a time
    assert read(["", written, ""]) == expected


@given(
    case=st.sampled_from(CASES),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_pieces_do_not_matter(case: tuple[str, str, list[tuple[str, str]]], cuts: list[int]) -> None:
    written, text, calls = case
    edges = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    pieces = [written[a:b] for a, b in itertools.pairwise(edges)]
    assert read(pieces) == (text, calls, "tool_calls" if calls else "stop")


FORMS = (HERMES, LLAMA3, MISTRAL_LIST, MISTRAL, PHI4, DEEPSEEK)
ARGUMENTS = ("{}", '{"a": "}, {\\"name\\": "}', '{"x": [{"y": "]}"}, 1.5, null]}')


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@given(
    calls=st.lists(st.tuples(st.sampled_from(("look", "get_weather-2")), st.sampled_from(ARGUMENTS)), min_size=1),
    before=st.sampled_from(("", "Let me see.")),
    cuts=st.lists(st.integers(0, 300), max_size=12),
)
def test_calls_are_read_in_the_form_of_each_family(
    form: CallForm, calls: list[tuple[str, str]], before: str, cuts: list[int]
) -> None:
    before = "" if form.only_first else before
    written = before + written_calls(form, *calls)
    edges = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    pieces = [written[a:b] for a, b in itertools.pairwise(edges)]
    assert read(pieces, form=form) == (before, calls, "tool_calls")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@given(text=st.text('<|tolcal_>[TOLCAS] {"name: pr\n;}｜▁', max_size=40))
def test_no_text_is_lost_in_any_form(form: CallForm, text: str) -> None:
    told, calls, _ = read(text, form=form)
    if not calls:
        assert told == text


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_call_cut_short_anywhere_shows_no_piece_of_its_form(form: CallForm) -> None:
    written = written_calls(form, ("look", '{"a": 1}'))
    first_mark = next((mark for mark in form.marks if form.opening.startswith(mark)), form.opening)
    for length in range(len(first_mark), len(written)):
        text, calls, reason = read([written[:length]], "length", form=form)
        assert (text, reason) == ("", "length")
        assert all(name == "look" and '{"a": 1}'.startswith(arguments) for name, arguments in calls)


def test_json_that_comes_after_text_is_no_call_in_llamas_form() -> None:
    written = 'See: {"name": "look", "parameters": {}}'
    assert read(written, form=LLAMA3) == (written, [], "stop")


def test_llamas_mark_may_stand_before_a_call() -> None:
    written = "<|python_tag|>" + written_calls(LLAMA3, ("look", "{}"))
    assert read(written, form=LLAMA3) == ("", [("look", "{}")], "tool_calls")


@given(st.text('<tol_ca>/\n{}"nme: arguts,x', max_size=60))
def test_no_text_is_lost_or_breaks_it(written: str) -> None:
    text, calls, _ = read(written)
    if not calls:
        assert text == written


def test_an_answer_cut_short_keeps_its_reason_and_what_came() -> None:
    cut = call("look", '{"city": "Par')[: -len("}\n</tool_call>")]
    assert read([cut], "length") == ("", [("look", '{"city": "Par')], "length")


@pytest.mark.parametrize("begun", ["\n", "\n<tool_", "\n<tool_call>", '\n<tool_call>\n{"name": "lo'])
def test_a_call_that_is_cut_short_before_its_name_is_no_text(begun: str) -> None:
    assert read([call("look", "{}"), begun], "length") == ("", [("look", "{}")], "length")
    assert read(["<tool_call>\n{"], "length") == ("", [], "length")
    assert read(["a <"], "length") == ("a <", [], "length")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_nothing_but_calls_is_shown_when_there_must_be_one(form: CallForm) -> None:
    written = written_calls(form, ("look", '{"a": 1}'))
    for length in range(1, len(written)):
        reader = ToolCallReader(form, must_call=True)
        events = [*reader.read(Delta(0, written[:length], 1)), *reader.read(Finished(0, "length", 1))]
        assert not any(isinstance(event, Delta) for event in events)


def test_a_mark_that_was_cut_is_no_text_and_two_characters_may_be() -> None:
    assert read(["so <tool"], "length") == ("so ", [], "length")
    assert read(["so <t"], "length") == ("so <t", [], "length")
    assert read(["so <tool"], "stop") == ("so <tool", [], "stop")


def test_log_probabilities_are_those_of_the_text() -> None:
    reader = ToolCallReader(NEUTRAL)
    pieces = ["Hm", " <", "b>", "<tool", '_call>\n{"name": ', '"look", "arguments": {', '"a": 1}', "}\n</tool_call>"]
    events = [
        event
        for number, piece in enumerate(pieces)
        for event in reader.read(Delta(0, piece, 1, (TokenLogprob(number, piece.encode(), -1.0),)))
    ]
    told = [logprob.token_id for event in events if isinstance(event, Delta) for logprob in event.logprobs]
    assert told == [0, 1, 2]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "Hm <b>"


def test_text_is_not_held_back_longer_than_it_may_become_a_call() -> None:
    reader = ToolCallReader(NEUTRAL)
    assert reader.read(Delta(0, "Hello <", 1)) == [Delta(0, "Hello ", 1)]
    assert reader.read(Delta(0, "b>", 1)) == [Delta(0, "<b>", 1)]


def test_choices_do_not_mix() -> None:
    reader = ToolCallReader(NEUTRAL)
    assert reader.read(Delta(0, "<tool_", 1)) == []
    assert reader.read(Delta(1, "plain", 1)) == [Delta(1, "plain", 1)]
    assert reader.read(Finished(1, "stop", 1)) == [Finished(1, "stop", 1)]
    assert reader.read(Finished(0, "stop", 1)) == [Delta(0, "<tool_", 0), Finished(0, "stop", 1)]
