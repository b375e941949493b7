"""A frontier that fails: what its clients see, what is asked again and what never, and what the ledger makes of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.daemon_fixture import Daemon, data_lines, wait_until
from tests.integration.frontier_fixture import (
    ANSWER,
    HELLO,
    PIECES,
    Groups,
    Outcome,
    ask,
    attempts,
    frontier_daemon,
    ledger,
    openai_client,
    provider,
    spent_usd,
)
from tests.integration.stand_in_fixture import StandIn

IMPATIENT: dict[str, Any] = {"first_byte_timeout_s": 0.3, "chunk_timeout_s": 0.3}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("weather", "clock")
]
KIND = pytest.mark.parametrize("kind", ["openai", "anthropic"])


@dataclass(frozen=True, slots=True)
class Frontier:
    daemon: Daemon
    client: openai.OpenAI
    groups: Groups
    first: StandIn
    second: StandIn  # always well

    def ask(self, group: str, **fields: Any) -> Outcome:
        return ask(self.client, marks=self.groups.marks(group), **fields)

    def asked(self) -> tuple[int, int]:
        """How many requests each of them has had."""
        return len(self.first.journal()["requests"]), len(self.second.journal()["requests"])

    def bill_usd(self) -> float:
        return float(self.first.journal()["billed_usd"] + self.second.journal()["billed_usd"])

    def reset(self) -> None:
        self.first.reset()
        self.second.reset()


@pytest.fixture(scope="module")
def running(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontier]:
    first, second = StandIn(), StandIn()
    well = provider(second, "second")
    brief = {kind: provider(first, kind=kind, attempts=1, **IMPATIENT) for kind in ("openai", "anthropic")}
    groups = Groups(
        {
            **{kind: [member] for kind, member in brief.items()},
            **{f"{kind} and another": [member, well] for kind, member in brief.items()},
            "stubborn": [provider(first, attempts=3)],
            "stubborn and another": [provider(first, attempts=3), well],
            "nowhere": [{**provider(first, attempts=2), "base_url": "http://127.0.0.1:9/v1"}],
        }
    )
    try:
        with (
            frontier_daemon(model_path, tmp_path_factory.mktemp("faults"), groups.providers) as daemon,
            openai_client(daemon) as client,
        ):
            yield Frontier(daemon, client, groups, first, second)
    finally:
        first.close()
        second.close()


@pytest.fixture
def frontier(running: Frontier) -> Frontier:
    running.reset()
    return running


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    fields: dict[str, object] = field(default_factory=dict)
    says: int = 0  # pieces that come before it

    def __str__(self) -> str:
        return "-".join([self.kind, *(str(value) for value in self.fields.values())])


BEFORE = [
    *(Fault("status", {"status": status}) for status in (500, 502, 503, 529, 408, 404)),
    Fault("status", {"status": 418, "body": "<html>no JSON</html>"}),
    Fault("drop"),
    Fault("empty"),
    Fault("html"),
    Fault("cut", {"after": 0}),
    Fault("half_close", {"after": 0}),
    Fault("garbage", {"after": 0}),
    Fault("error_event", {"after": 0}),
    Fault("huge_line", {"after": 0, "bytes": 1 << 20}),
    Fault("huge_line", {"after": 0, "bytes": 9 << 20}),
    Fault("slow_headers", {"seconds": 60}),
    Fault("slow_body", {"after": 0, "seconds": 60}),
]
AFTER = [
    Fault("cut", {"after": 2}, says=2),
    Fault("half_close", {"after": 2}, says=2),
    Fault("garbage", {"after": 2}, says=2),
    Fault("error_event", {"after": 2}, says=2),
    Fault("huge_line", {"after": 2, "bytes": 1 << 16}, says=2),
    Fault("slow_body", {"after": 2, "seconds": 60}, says=2),
    Fault("no_done", says=5),
    Fault("finish_error", says=5),
]


# --- Before the first piece ---


@KIND
@pytest.mark.parametrize("fault", BEFORE, ids=str)
def test_a_failure_of_the_only_provider_is_a_502_that_costs_nothing(
    frontier: Frontier, fault: Fault, kind: str
) -> None:
    for stream in (False, True):
        frontier.reset()
        frontier.first.fault(fault.kind, **fault.fields)
        outcome = frontier.ask(kind, stream=stream)
        assert (outcome.status, outcome.code) == (502, "frontier_error")
        assert "127.0.0.1" not in outcome.message
        assert frontier.asked() == (1, 0)
        rows = attempts(frontier.daemon, outcome, 1)
        assert [row.outcome for row in rows] == ["failed"]
        assert spent_usd(rows) == pytest.approx(frontier.bill_usd(), abs=1e-9)
    assert frontier.ask(kind).text == ANSWER


@KIND
@pytest.mark.parametrize("fault", BEFORE, ids=str)
def test_a_failure_is_made_good_by_the_next_provider(frontier: Frontier, fault: Fault, kind: str) -> None:
    group = f"{kind} and another"
    for stream in (False, True):
        frontier.reset()
        frontier.first.fault(fault.kind, **fault.fields)
        outcome = frontier.ask(group, stream=stream)
        assert (outcome.status, outcome.text, outcome.finish, outcome.code) == (200, ANSWER, "stop", None)
        assert outcome.route == "frontier"
        assert frontier.asked() == (1, 1)
        rows = attempts(frontier.daemon, outcome, 2)
        assert [row.outcome for row in rows] == ["failed", "completed"]
        assert spent_usd(rows) == pytest.approx(frontier.bill_usd(), abs=1e-9)
    frontier.reset()
    assert frontier.ask(group).text == ANSWER
    assert frontier.asked() == (1, 0)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_the_same_provider_is_asked_again_after_a_failure_that_may_pass(frontier: Frontier, *, stream: bool) -> None:
    frontier.first.control(faults=[{"kind": "status", "status": 503}, {"kind": "drop"}])
    outcome = frontier.ask("stubborn", stream=stream)
    assert (outcome.status, outcome.text) == (200, ANSWER)
    rows = attempts(frontier.daemon, outcome, 3)
    assert [row.outcome for row in rows] == ["failed", "failed", "completed"]
    assert spent_usd(rows) == pytest.approx(frontier.bill_usd(), abs=1e-9)


def test_a_provider_is_asked_no_more_often_than_it_may_be(frontier: Frontier) -> None:
    frontier.first.fault("status", status=500, times=3)
    outcome = frontier.ask("stubborn")
    assert (outcome.status, outcome.code) == (502, "frontier_error")
    assert frontier.asked() == (3, 0)
    assert frontier.ask("stubborn").status == 200


def test_what_no_second_try_would_mend_is_not_tried_again(frontier: Frontier) -> None:
    frontier.first.fault("status", status=404)
    assert frontier.ask("stubborn").code == "frontier_error"
    assert frontier.asked() == (1, 0)


def test_nobody_listens_where_the_provider_should_be(frontier: Frontier) -> None:
    outcome = frontier.ask("nowhere")
    assert (outcome.status, outcome.code) == (502, "frontier_error")
    assert "127.0.0.1" not in outcome.message
    assert [row.cost_usd for row in attempts(frontier.daemon, outcome, 2)] == [0, 0]


def test_a_step_of_auto_that_no_provider_answers_is_answered_here_and_says_so(frontier: Frontier) -> None:
    frontier.first.fault("drop")
    outcome = frontier.ask("openai", model="auto", headers={"x-appliance-step": "synthesize"}, max_tokens=3)
    assert (outcome.status, outcome.route, outcome.reason) == (200, "local", "frontier-failed")
    assert outcome.headers["x-appliance-degraded"] == "true"
    assert outcome.headers["x-appliance-model"] == frontier.daemon.model_name
    rows = attempts(frontier.daemon, outcome, 2)
    assert [(row.route, row.outcome) for row in rows] == [("frontier", "failed"), ("local", "completed")]


# --- After the first piece ---


@KIND
@pytest.mark.parametrize("fault", AFTER, ids=str)
def test_an_answer_that_has_begun_is_neither_made_again_nor_said_twice(
    frontier: Frontier, fault: Fault, kind: str
) -> None:
    for stream in (True, False):
        frontier.reset()
        frontier.first.fault(fault.kind, **fault.fields)
        outcome = frontier.ask(f"{kind} and another", stream=stream)
        assert (outcome.status, outcome.code, outcome.finish) == (200 if stream else 502, "frontier_error", None)
        assert outcome.text == "".join(PIECES[: fault.says] if stream else ())
        assert frontier.asked() == (1, 0)
        (row,) = attempts(frontier.daemon, outcome, 1)
        assert row.outcome == "failed"
        assert row.cost_usd is not None
        assert row.cost_usd > 0
    assert frontier.ask(f"{kind} and another").text == ANSWER


def test_nothing_is_asked_again_after_the_first_piece(frontier: Frontier) -> None:
    for stream in (True, False):
        frontier.first.fault("cut", after=1)
        frontier.ask("stubborn and another", stream=stream)
    assert frontier.asked() == (2, 0)


def test_the_error_of_a_stream_is_its_last_event(frontier: Frontier) -> None:
    frontier.first.fault("error_event", after=2)
    body = {"model": "frontier", "messages": HELLO, "stream": True, **frontier.groups.marks("openai")}
    with frontier.daemon.client() as raw, raw.stream("POST", "/v1/chat/completions", json=body) as response:
        *said, last = data_lines(response)
    assert len([data for data in said if json.loads(data)["choices"][0]["delta"].get("content")]) == 2
    error = json.loads(last)["error"]
    assert (error["code"], error["type"]) == ("frontier_error", "upstream_error")
    assert "told to fail" in error["message"]


@KIND
def test_calls_with_one_id_get_an_id_each(frontier: Frontier, kind: str) -> None:
    for stream in (True, False):
        frontier.reset()
        frontier.first.control(calls=2)
        frontier.first.fault("duplicate_ids")
        outcome = frontier.ask(kind, stream=stream, tools=TOOLS)
        assert [name for _, name, _ in outcome.calls] == ["weather", "clock"]
        assert len({call_id for call_id, _, _ in outcome.calls}) == 2
        assert outcome.finish == "tool_calls"
        rows = attempts(frontier.daemon, outcome, 1)
        assert spent_usd(rows) == pytest.approx(frontier.bill_usd(), abs=1e-9)


@KIND
@pytest.mark.parametrize(
    ("fault", "name", "arguments"),
    [("bad_arguments", "weather", '{"these": are no JSON'), ("unknown_tool", "no_such_tool", "{}")],
)
def test_a_call_is_shown_as_the_model_made_it(
    frontier: Frontier, fault: str, name: str, arguments: str, kind: str
) -> None:
    for stream in (True, False):
        frontier.reset()
        frontier.first.fault(fault)
        outcome = frontier.ask(kind, stream=stream, tools=TOOLS)
        assert [call[1:] for call in outcome.calls] == [(name, arguments)]
        rows = attempts(frontier.daemon, outcome, 1)
        assert spent_usd(rows) == pytest.approx(frontier.bill_usd(), abs=1e-9)


@KIND
@pytest.mark.parametrize(
    ("fault", "flag"),
    [(Fault("wrong_usage", {"factor": 10_000}), "usage-doubtful"), (Fault("no_usage"), "usage-missing")],
    ids=str,
)
def test_a_usage_that_cannot_be_is_counted_here(frontier: Frontier, fault: Fault, flag: str, kind: str) -> None:
    for stream in (True, False):
        frontier.first.fault(fault.kind, **fault.fields)
        outcome = frontier.ask(kind, stream=stream)
        assert (outcome.status, outcome.text) == (200, ANSWER)
        (row,) = attempts(frontier.daemon, outcome, 1)
        assert (row.outcome, row.flags) == ("completed", flag)
        assert 0 < row.prompt_tokens < 50
        assert 0 < row.completion_tokens < 50
        assert outcome.usage is not None
        assert outcome.usage["prompt_tokens"] == row.prompt_tokens
        assert outcome.usage["cost_usd"] == pytest.approx(row.cost_usd)


@KIND
def test_an_answer_that_never_ends_ends_with_its_client(frontier: Frontier, kind: str) -> None:
    frontier.first.fault("endless")
    frontier.first.control(word_delay_s=0.001)
    with frontier.client.chat.completions.create(
        model="frontier", messages=HELLO, stream=True, extra_body=frontier.groups.marks(kind)
    ) as chunks:
        for _ in range(20):
            next(chunks)
    wait_until(
        lambda: "cancelled" in [row.outcome for row in ledger(frontier.daemon)[-1:]], "the attempt is in the ledger"
    )
    (row,) = ledger(frontier.daemon)[-1:]
    assert row.cost_usd is not None
    assert row.cost_usd > 0
    wait_until(lambda: frontier.bill_usd() == frontier.bill_usd(), "the provider has noticed that nobody listens")
    assert frontier.ask(kind).text == ANSWER
