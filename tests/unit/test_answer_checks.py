"""A local answer that will not do is found out, and why; a good one passes, for an escalation costs money."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.answer_checks import failed_check
from appliance.protocol import (
    ChatPrompt,
    Constraint,
    Delta,
    Event,
    Finished,
    FinishReason,
    Message,
    ReasoningDelta,
    Request,
    Started,
    StepKind,
    TextPart,
    Tool,
    ToolCallDelta,
    ToolUse,
)

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOK = Tool("look", "", json.dumps(CITY))


def asked(text: str = "Hi.", *, form: Any = None, tools: tuple[Tool, ...] = (), use: ToolUse | None = None) -> Request:
    constraint = None if form is None else Constraint("json_schema", json.dumps(form), "response_format")
    prompt = ChatPrompt((Message("user", (TextPart(text),)),), {}, tools)
    return Request("r", "auto", (prompt,), constraint=constraint, tool_use=use)


def answer(*pieces: str, reason: FinishReason = "stop", margin: float | None = None, choice: int = 0) -> list[Event]:
    deltas: list[Event] = [Delta(choice, piece, 1) for piece in pieces]
    return [Started(choice, 5, 0, 0.0), *deltas, Finished(choice, reason, len(pieces), margin)]


def calls(*said: tuple[str, str], text: str = "") -> list[Event]:
    events: list[Event] = [Started(0, 5, 0, 0.0)]
    if text:
        events.append(Delta(0, text, 1))
    for index, (name, arguments) in enumerate(said):
        events.append(ToolCallDelta(0, index, f"call_{index}", name, ""))
        events += [ToolCallDelta(0, index, None, None, piece) for piece in arguments]
    return [*events, Finished(0, "tool_calls", 9)]


def wrong(events: list[Event], request: Request | None = None, step: StepKind | None = None) -> str | None:
    return failed_check(request or asked(), step, events, 0.0)


# Answers that must pass

GOOD = [
    "Paris.",
    "42",
    "No.",
    "I can help with that: first, open the lid.",
    "I can access the file; it holds three lines.",
    "The guard said: I'm sorry, I can't help you.",
    "I'm sorry to hear that. Try to restart the router first.",
    "I am afraid of heights, the boy wrote.",
    "I am not sorry, she said.",
    "Unfortunate events followed.",
    "def f():\n    return [\n        0,\n        0,\n        0,\n    ]\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "Ha ha ha ha ha ha ha!",
    "1. One\n2. Two\n3. Three\n4. Four\n5. Five\n6. Six\n7. Seven\n8. Eight",
    "一二三四五",
    "x" * 40,
    "Done" + "\n" * 500,
]


@pytest.mark.parametrize("text", GOOD, ids=[text[:25] for text in GOOD])
def test_a_good_answer_passes(text: str) -> None:
    for step in (None, "extract", "chat"):
        assert wrong(answer(text), step=step) is None
    assert wrong(answer(*text)) is None  # a character at a time


# Answers that must not


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "incomplete"),
        ([Started(0, 5, 0, 0.0)], "incomplete"),
        ([Started(0, 5, 0, 0.0), Delta(0, "Par", 1)], "incomplete"),
        (answer("Par", reason="length"), "length"),
        (answer(), "empty"),
        (answer(" \n"), "empty"),
        ([Started(0, 5, 0, 0.0), ReasoningDelta(0, "Hm.", 1), Finished(0, "stop", 1)], "empty"),
    ],
)
def test_what_is_no_answer_does_not(events: list[Event], why: str) -> None:
    assert wrong(events) == why


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I\u2019m sorry, but I can\u2019t help with that.",
        "I am unable to do that.",
        '"Sorry, I cannot do that."',
        "I cannot assist with this request.",
        "I can't access the internet.",
        "I don't have access to real-time data.",
        "Unfortunately, I do not know.",
        "As an AI language model, I have no opinion.",
        "AS A LARGE LANGUAGE MODEL I cannot",
    ],
)
def test_a_refusal_at_the_beginning_does_not(text: str) -> None:
    assert wrong(answer(text)) == "refusal"
    assert wrong(answer("The letter says: " + text)) is None


@pytest.mark.parametrize(
    "text",
    ["ha " * 40, "The list: " + "item, item, " * 20, "A" * 100, "One line.\n" * 12, "ok" + "\u0301e" * 60, "abc" * 400],
)
def test_an_answer_that_goes_round_and_round_does_not(text: str) -> None:
    assert wrong(answer(text)) == "loop"
    assert wrong(answer(text + " \n")) == "loop"
    assert wrong(answer(text + "And that is how the story ends, after all.")) is None


@given(start=st.text(max_size=20), unit=st.text(min_size=1, max_size=30), times=st.integers(1, 60))
def test_whatever_is_repeated_the_check_ends_and_says_what_it_knows(start: str, unit: str, times: int) -> None:
    assert wrong(answer(start + unit * times)) in (None, "loop", "empty", "refusal")


# Forms


@pytest.mark.parametrize(("text", "why"), [
    ('{"city": "Rome"}', None), (' {"city": "Rome"}\n', None), ('{"city": 5}', "wrong-form"), ("{}", "wrong-form"),
    ('{"city": "Rome"', "wrong-form"), ('{"city": "Rome"} or so', "wrong-form"), ("Rome", "wrong-form"), ("", "empty"),
    ("[" * 50_000, "wrong-form"), ('{"city": NaN}', "wrong-form"), ("1" * 5000, "wrong-form"),
])  # fmt: skip
def test_an_answer_must_have_the_form_that_was_asked_for(text: str, why: str | None) -> None:
    assert wrong(answer(text), asked(form=CITY)) == why


def test_words_within_a_form_are_no_refusal() -> None:
    assert wrong(answer('"Sorry, we are closed."'), asked(form={"type": "string"})) is None


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"required": 5}, {"pattern": "("}, {"$ref": "#/nowhere"}, 5, None, []]
)
def test_a_schema_that_is_none_is_not_the_answer_s_fault(schema: Any) -> None:
    request = asked(tools=(Tool("look", "", json.dumps(schema)),), use=ToolUse("auto"))
    assert wrong(calls(("look", '{"city": 5}')), request) is None


@pytest.fixture
def visitors() -> Iterator[tuple[str, list[str]]]:
    """An address on this machine that serves a schema, and what it was asked for."""
    asked_for: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_for.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "object"}')

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked_for
        server.shutdown()
        thread.join()


def test_a_schema_that_refers_to_an_address_opens_no_connection(visitors: tuple[str, list[str]]) -> None:
    address, asked_for = visitors
    for schema in (
        {"$ref": f"{address}/ref"},
        {"properties": {"city": {"$ref": f"{address}/in"}}},
        {"$schema": f"{address}/meta"},
    ):
        wrong(answer('{"city": "x"}'), asked(form=schema))
        wrong(
            calls(("look", '{"city": "x"}')), asked(tools=(Tool("look", "", json.dumps(schema)),), use=ToolUse("auto"))
        )
    assert asked_for == []


def test_a_schema_that_refers_to_a_file_reads_none(tmp_path: Path) -> None:
    (tmp_path / "number.json").write_text('{"type": "number"}', encoding="utf-8")
    form = {"$ref": (tmp_path / "number.json").as_uri()}
    outcomes = {wrong(answer(text), asked(form=form)) for text in ("5", '"five"')}
    assert len(outcomes) == 1  # or it tells what is in the file


# Calls


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((("look", '{"city": "Rome"}'),), None),
        ((("look", '{"city": "Rome"}'), ("look", '{"city": "Oslo"}')), None),
        ((("look", '{"city": "Rome"}'), ("look", "{}")), "wrong-arguments"),
        ((("look", '{"city": 5}'),), "wrong-arguments"),
        ((("look", '{"city"'),), "wrong-arguments"),
        ((("look", ""),), "wrong-arguments"),
        ((("see", '{"city": "Rome"}'),), "unknown-tool"),
        ((("", "{}"),), "unknown-tool"),
    ],
)
def test_calls_must_be_of_tools_that_there_are_with_arguments_that_they_take(
    said: tuple[tuple[str, str], ...], why: str | None
) -> None:
    request = asked(tools=(LOOK,), use=ToolUse("auto"))
    assert wrong(calls(*said), request) == why
    assert wrong(calls(*said, text="I look."), request) == why


def test_a_call_that_was_required_must_be_there() -> None:
    must, may = (asked(tools=(LOOK,), use=ToolUse(choice)) for choice in ("required", "auto"))
    assert wrong(answer("Rome."), must) == "no-tool-call"
    assert wrong(answer("Rome."), may) is None
    assert wrong(calls(("look", '{"city": "Rome"}')), must) is None


# Sources

SOURCE = "Please extract: Dr. Anna-Maria O'Neil lives\nin São Paulo since 2019."


@pytest.mark.parametrize(
    ("extracted", "why"),
    [
        ({"name": "Anna-Maria O'Neil", "city": "São Paulo"}, None),
        ({"name": "anna maria oneil", "city": "SÃO PAULO"}, None),
        ({"name": "Dr. Anna-Maria O'Neil lives in São Paulo"}, None),  # over a line break
        ({"name": "Anna", "born": 1970, "married": None, "tags": []}, None),
        ({"name": "Bob"}, "not-in-source"),
        ({"people": [{"name": "Anna"}, {"name": "Bob Smith"}]}, "not-in-source"),
        ({"initials": "AM", "sign": "!"}, None),  # too short to say anything
        ("Anna", None),
        (["Anna", "Bob"], "not-in-source"),
    ],
)
def test_what_was_extracted_must_stand_in_the_source(extracted: Any, why: str | None) -> None:
    text = json.dumps(extracted, ensure_ascii=False)
    assert wrong(answer(text), asked(SOURCE), "extract") == why
    assert wrong(answer(text), asked(SOURCE), "transform") is None


def test_words_that_the_form_itself_names_need_not() -> None:
    form = {"type": "object", "properties": {"kind": {"enum": ["person", "company"]}}}
    assert wrong(answer('{"kind": "person"}'), asked(SOURCE, form=form), "extract") is None


def test_prose_is_not_held_to_its_words() -> None:
    assert wrong(answer("It is about Bob Smith."), asked(SOURCE), "extract") is None


# Confidence


@pytest.mark.parametrize(
    ("margin", "least", "why"),
    [(1.0, 2.0, "low-confidence"), (2.0, 2.0, None), (None, 2.0, None), (0.0, 0.0, None), (-1.0, 0.0, None)],
)
def test_an_answer_of_which_the_model_was_not_sure_fails_where_that_is_asked(
    margin: float | None, least: float, why: str | None
) -> None:
    assert failed_check(asked(), None, answer("Rome.", margin=margin), least) == why


def test_one_bad_choice_of_several_is_enough() -> None:
    assert wrong([*answer("Rome."), *answer("Oslo.", choice=1)]) is None
    assert wrong([*answer("Rome."), *answer("", choice=1)]) == "empty"
    assert wrong([*answer("Rome."), Started(1, 5, 0, 0.0)]) == "incomplete"
