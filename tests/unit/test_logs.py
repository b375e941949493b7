"""Logs are one record a line, whatever is in them, and hide what looks like a secret."""

import io
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.telemetry import logs

HOSTILE = 'first\nlevel=info forged\r\x1b[31mred\x00\u2028\u202etxt\ud800 "quoted" \\'
KEY = "sk-appl-3vQwJ0bVnK9yXh2LmPzR8sTuW1aBcDeF"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if isinstance(handler, logs._Handler):
            root.removeHandler(handler)
    logging.getLogger("uvicorn.access").disabled = False


def configured(log_format: logs.LogFormat, level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(log_format, level, stream=stream, environ={})
    return stream


def fail(message: str) -> None:
    """Log an exception with this message."""

    def raise_it() -> None:
        raise ValueError(message)

    try:
        raise_it()
    except ValueError:
        logs.get("appliance.test").exception("failed")


def records(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_record_has_its_event_and_fields_with_their_types() -> None:
    stream = configured("json")
    logs.get("appliance.test").info("loaded", tokens=3, share=0.5, ok=True, names=("a", "b"), gone=None)
    (record,) = records(stream)
    assert record.pop("time").endswith("Z")
    assert record == {
        "level": "info",
        "logger": "appliance.test",
        "event": "loaded",
        "tokens": 3,
        "share": 0.5,
        "ok": True,
        "names": ["a", "b"],
    }


def test_a_text_record_reads_as_key_and_value() -> None:
    stream = configured("text")
    logs.get("appliance.test").warning("slow_step", step_ms=12.34567891, model="a b", path="/v1/models")
    assert stream.getvalue().endswith('warning appliance.test: slow_step step_ms=12.3457 model="a b" path=/v1/models\n')


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_hostile_text_stays_on_its_line_and_shows_no_control_characters(log_format: logs.LogFormat) -> None:
    stream = configured(log_format)
    logs.get("appliance.test").info(HOSTILE, **{HOSTILE: HOSTILE})
    logging.getLogger("some.library").error("said %s", HOSTILE)
    text = stream.getvalue()
    assert text.count("\n") == 2
    assert all(char.isprintable() or char == "\n" for char in text)
    text.encode()  # a lone surrogate would not


def test_json_keeps_hostile_text_intact() -> None:
    stream = configured("json")
    logs.get("appliance.test").info("said", text=HOSTILE)
    assert records(stream)[0]["text"] == HOSTILE


def test_a_field_cannot_pass_for_a_part_of_the_record_itself() -> None:
    stream = configured("json")
    logs.get("appliance.test").info("request", time="yesterday", level="none")
    (record,) = records(stream)
    assert record["level"] == "info"
    assert record["level_"] == "none"
    assert record["time_"] == "yesterday"


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_an_exception_is_told_with_its_traceback(log_format: logs.LogFormat) -> None:
    stream = configured(log_format)
    fail("broken\n12:00:00.000 info    forged")
    text = stream.getvalue()
    assert "ValueError: broken" in text
    assert "test_logs.py" in text
    lines = text.splitlines()
    assert all(line.startswith("    | ") for line in lines[1:])
    assert len(lines) == 1 if log_format == "json" else len(lines) > 3


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (KEY, f"key {KEY}, please"),
        (KEY, f"{{'authorization': 'Bearer {KEY}'}}"),
        ("dXNlcjpwYXNz", "Authorization: Basic dXNlcjpwYXNz"),
        ("c2VjcmV0", '"authorization":"c2VjcmV0"'),
        ("abcdef123", "BEARER  abcdef123"),
        ("AbCdEfGhIjKlMnOpQrStUvWx", "hf_AbCdEfGhIjKlMnOpQrStUvWx"),
        ("AAAAbbbbCCCCddddEEEE", "sk-ant-AAAAbbbbCCCCddddEEEE"),
    ],
)
def test_secrets_are_hidden_wherever_they_stand(log_format: logs.LogFormat, secret: str, text: str) -> None:
    stream = configured(log_format)
    log = logs.get("appliance.test")
    log.info("in_field", text=text)
    log.info("nested", headers={"x": [text]})
    log.info(text)
    logging.getLogger("some.library").warning("got %r", text)
    fail(text)
    assert stream.getvalue().count("[hidden]") == 5
    assert secret not in stream.getvalue()


def test_fields_named_after_secrets_are_hidden_whatever_they_hold() -> None:
    stream = configured("json")
    logs.get("appliance.test").info("x", api_key="short", Password="p", prompt_tokens=5)
    (record,) = records(stream)
    assert (record["api_key"], record["Password"], record["prompt_tokens"]) == ("[hidden]", "[hidden]", 5)


def test_ordinary_words_are_not_taken_for_secrets() -> None:
    stream = configured("text")
    logs.get("appliance.test").info("x", a="hf_hub_download", b="task-queue-of-the-engine", c="sk-short")
    assert "[hidden]" not in stream.getvalue()


def test_values_that_json_cannot_hold_are_told_as_text() -> None:
    class Rude:
        def __str__(self) -> str:
            raise RuntimeError

    stream = configured("json")
    logs.get("appliance.test").info("x", nan=float("nan"), rude=Rude(), raw=b"\xff", map={1: {2}})
    (record,) = records(stream)
    assert record["nan"] == "nan"
    assert record["rude"] == "<Rude>"
    assert record["raw"] == "b'\\xff'"
    assert record["map"] == {"1": [2]}


def test_a_library_record_whose_arguments_do_not_fit_is_still_told() -> None:
    stream = configured("text")
    (handler,) = (each for each in logging.getLogger().handlers if isinstance(each, logs._Handler))
    handler.handle(logging.LogRecord("some.library", logging.ERROR, "x.py", 1, "%d and %d", ("one",), None))
    assert "%d and %d" in stream.getvalue()


def test_levels_below_the_set_one_are_silent() -> None:
    stream = configured("json", "warning")
    logs.get("appliance.test").info("quiet")
    logs.get("appliance.test").error("loud")
    assert [record["event"] for record in records(stream)] == ["loud"]


def test_configuring_again_replaces_what_was_configured_before() -> None:
    first = configured("json")
    second = configured("json")
    logs.get("appliance.test").info("once")
    assert first.getvalue() == ""
    assert len(records(second)) == 1


def test_uvicorn_speaks_in_our_form_and_leaves_requests_to_us() -> None:
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(io.StringIO()))
    stream = configured("json")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.access").info("GET /")
    logs.request_line({"method": "GET", "status": 200, "model": None})
    started, request = records(stream)
    assert started["event"] == "Started server process"
    assert (request["logger"], request["event"], request["status"]) == ("appliance.request", "request", 200)
    assert "model" not in request


def test_auto_means_text_on_a_terminal_and_json_elsewhere() -> None:
    assert configured("auto").isatty() is False
    stream = configured("auto")
    logs.get("appliance.test").info("x")
    assert records(stream)[0]["event"] == "x"
    controller, terminal = os.openpty()
    with open(terminal, "w") as screen:  # noqa: PTH123 - it has no path
        logs.configure("auto", "info", stream=screen, environ={})
        logs.get("appliance.test").info("y")
        assert os.read(controller, 1000).decode().rstrip().endswith("appliance.test: y")
    os.close(controller)


def test_the_journal_is_told_the_level_of_each_line() -> None:
    with tempfile.TemporaryFile("w+") as stream:
        status = os.fstat(stream.fileno())
        journal = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        logs.configure("text", "debug", stream=stream, environ=journal)
        logs.get("appliance.test").error("bad")
        fail("worse")
        logs.configure("text", "debug", stream=stream, environ={"JOURNAL_STREAM": "0:1"})
        logs.get("appliance.test").error("elsewhere")
        stream.seek(0)
        *ours, last = stream.read().splitlines()
    assert len(ours) > 3
    assert all(line.startswith("<3>") for line in ours)
    assert not last.startswith("<")
