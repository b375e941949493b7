"""How long the frontier is waited for, when it is asked again, and when it is left alone: pauses that it asks for, the
request's own deadline, breakers and refused keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.daemon_fixture import Daemon, wait_until
from tests.integration.frontier_fixture import (
    ANSWER,
    Groups,
    Outcome,
    ask,
    attempts,
    frontier_daemon,
    ledger,
    openai_client,
    provider,
)
from tests.integration.stand_in_fixture import StandIn

KEY = "sk-of-the-stand-in-0123456789"
WRONG_KEY = "sk-that-was-revoked-0123456789"
FAILURES_TO_OPEN = 5
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


@dataclass(frozen=True, slots=True)
class Frontier:
    daemon: Daemon
    client: openai.OpenAI
    groups: Groups
    first: StandIn
    second: StandIn  # always well
    keyed: StandIn  # takes `KEY` alone
    key_file: Path

    def ask(self, group: str, timeout_s: float | None = None, **fields: Any) -> Outcome:
        hints = {} if timeout_s is None else {"x-appliance-timeout": f"{timeout_s:g}"}
        headers = {**fields.pop("headers", {}), **hints}
        return ask(self.client, marks=self.groups.marks(group), headers=headers, **fields)

    def asked(self) -> tuple[int, int, int]:
        """How many requests each of them has had."""
        first, second, keyed = (len(each.journal()["requests"]) for each in (self.first, self.second, self.keyed))
        return first, second, keyed

    def breaker(self, group: str) -> str:
        return str(self.daemon.status()["frontier"]["providers"][self.groups.called(group)]["breaker"])


@pytest.fixture(scope="module")
def running(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontier]:
    folder = tmp_path_factory.mktemp("patience")
    key_file = folder / "key"
    first, second, keyed = StandIn(), StandIn(), StandIn(KEY)
    alone, well = provider(first), provider(second, "second")
    groups = Groups(
        {
            "any": [alone],
            "pause": [alone],
            "long pause": [alone],
            "long pause, other": [alone, well],
            "broken": [{**alone, "attempts": 1}],
            "broken, other": [{**alone, "attempts": 1}, well],
            "at fault": [{**alone, "attempts": 1}],
            "at fault, other": [alone, well],
            "refused": [provider(keyed, key=f"file:{key_file}")],
            "refused, other": [provider(keyed, key=f"file:{key_file}"), well],
        }
    )
    try:
        with (
            frontier_daemon(model_path, folder, groups.providers) as daemon,
            openai_client(daemon) as client,
        ):
            yield Frontier(daemon, client, groups, first, second, keyed, key_file)
    finally:
        for stand_in in (first, second, keyed):
            stand_in.close()


@pytest.fixture
def frontier(running: Frontier) -> Frontier:
    for stand_in in (running.first, running.second, running.keyed):
        stand_in.reset()
    running.key_file.write_text(f"{KEY}\n")
    return running


# --- Pauses that a provider asks for ---


@pytest.mark.parametrize(
    ("fields", "least_s"),
    [
        ({"status": 429, "headers": {"retry-after": "1"}}, 1.0),
        ({"status": 429, "headers": {"retry-after-ms": "300"}}, 0.3),
        ({"status": 503, "headers": {"retry-after": "0.4"}}, 0.4),
        ({"status": 429, "body": {"error": {"message": "Slow down.", "retry_after": 0.4}}}, 0.4),
        ({"status": 429, "body": {"error": {"message": "Slow down.", "details": [{"retryDelay": "0.4s"}]}}}, 0.4),
    ],
    ids=["seconds", "milliseconds", "busy", "body", "Google's body"],
)
def test_the_pause_that_a_provider_asks_for_is_kept(
    frontier: Frontier, fields: dict[str, object], least_s: float
) -> None:
    frontier.first.fault("status", **fields)
    outcome = frontier.ask("pause")
    assert (outcome.status, outcome.text) == (200, ANSWER)
    before, after = attempts(frontier.daemon, outcome, 2)
    assert before.outcome == ("limited" if fields["status"] == 429 else "failed")
    assert after.outcome == "completed"
    assert after.at - before.at >= least_s


def test_a_pause_that_outlasts_the_deadline_is_not_waited_for(frontier: Frontier) -> None:
    frontier.first.fault("status", status=429, headers={"retry-after": "1000"})
    for stream in (False, True):
        outcome = frontier.ask("long pause", 5, stream=stream)
        assert (outcome.status, outcome.code) == (502, "frontier_error")
        assert 900 < int(outcome.headers["retry-after"]) <= 1000
    assert frontier.asked() == (1, 0, 0)


def test_a_long_pause_is_not_waited_for_beside_another_provider(frontier: Frontier) -> None:
    frontier.first.fault("status", status=429, headers={"retry-after": "1000"})
    assert [frontier.ask("long pause, other").text for _ in range(3)] == [ANSWER] * 3
    assert frontier.asked() == (1, 3, 0)


# --- The request's own deadline ---


@STREAM
@pytest.mark.parametrize(
    "fault", [{"kind": "slow_headers"}, {"kind": "slow_body", "after": 0}], ids=["headers", "first piece"]
)
def test_a_deadline_before_the_first_piece_is_a_504(
    frontier: Frontier, fault: dict[str, object], *, stream: bool
) -> None:
    frontier.first.control(faults=[{**fault, "seconds": 60}])
    outcome = frontier.ask("any", 0.4, stream=stream)
    assert (outcome.status, outcome.code) == (504, "deadline_exceeded")
    assert frontier.asked() == (1, 0, 0)
    assert [row.outcome for row in attempts(frontier.daemon, outcome, 1)] == ["expired"]
    assert frontier.breaker("any") == "closed"


@pytest.mark.parametrize(
    "fault", [{"kind": "slow_body", "seconds": 60, "after": 2}, {"kind": "endless"}], ids=["slow", "endless"]
)
def test_a_deadline_holds_for_the_rest_of_the_answer_too(frontier: Frontier, fault: dict[str, object]) -> None:
    frontier.first.control(faults=[{**fault, "times": 2}], word_delay_s=0.01)
    streamed = frontier.ask("any", 1, stream=True)
    assert (streamed.status, streamed.code) == (200, "deadline_exceeded")
    assert streamed.text.startswith("You said:")
    plain = frontier.ask("any", 1)
    assert (plain.status, plain.code) == (504, "deadline_exceeded")
    assert frontier.asked() == (2, 0, 0)


def test_a_deadline_is_never_taken_for_a_failure_of_the_provider(frontier: Frontier) -> None:
    frontier.first.fault("slow_headers", seconds=60, times=-1)
    codes = {frontier.ask("any", 0.1 + 0.0007 * i).code for i in range(12)}  # timers have a resolution of their own
    assert codes == {"deadline_exceeded"}


def test_tries_and_pauses_together_keep_the_deadline(frontier: Frontier) -> None:
    frontier.first.fault("status", status=503, times=2)
    frontier.first.fault("slow_headers", seconds=60)
    outcome = frontier.ask("any", 2)
    assert (outcome.status, outcome.code) == (504, "deadline_exceeded")
    rows = attempts(frontier.daemon, outcome, 3)
    assert [row.outcome for row in rows] == ["failed", "failed", "expired"]


def test_no_local_answer_is_begun_after_the_deadline(frontier: Frontier) -> None:
    frontier.first.fault("slow_headers", seconds=60)
    outcome = frontier.ask("any", 0.4, model="auto", headers={"x-appliance-step": "synthesize"}, max_tokens=2)
    assert (outcome.status, outcome.code) == (504, "deadline_exceeded")
    assert [row.route for row in attempts(frontier.daemon, outcome, 1)] == ["frontier"]


# --- Breakers ---


def test_a_provider_that_keeps_failing_is_left_alone_and_then_tried_again(frontier: Frontier) -> None:
    frontier.first.fault("status", status=500, times=FAILURES_TO_OPEN)
    assert {frontier.ask("broken").code for _ in range(FAILURES_TO_OPEN)} == {"frontier_error"}
    assert frontier.breaker("broken") == "open"
    held_back = frontier.ask("broken")
    assert (held_back.status, held_back.code) == (502, "frontier_error")
    assert int(held_back.headers["retry-after"]) >= 1
    assert frontier.asked() == (FAILURES_TO_OPEN, 0, 0)
    assert held_back.request not in {row.request for row in ledger(frontier.daemon)}
    wait_until(lambda: frontier.ask("broken").text == ANSWER, "the provider is asked again")
    assert frontier.breaker("broken") == "closed"
    assert frontier.asked() == (FAILURES_TO_OPEN + 1, 0, 0)


def test_a_provider_that_keeps_failing_is_passed_over(frontier: Frontier) -> None:
    frontier.first.fault("status", status=500, times=-1)
    texts = [frontier.ask("broken, other").text for _ in range(FAILURES_TO_OPEN + 2)]
    assert texts == [ANSWER] * (FAILURES_TO_OPEN + 2)
    assert frontier.asked() == (FAILURES_TO_OPEN, FAILURES_TO_OPEN + 2, 0)


def test_a_request_that_is_at_fault_is_not_held_against_the_provider(frontier: Frontier) -> None:
    times = FAILURES_TO_OPEN + 1
    frontier.first.fault("status", status=400, times=times)
    for _ in range(times):
        outcome = frontier.ask("at fault")
        assert (outcome.status, outcome.code) == (400, "invalid_request")
        assert "told to fail" in outcome.message
    assert frontier.breaker("at fault") == "closed"
    assert frontier.ask("at fault").text == ANSWER
    assert frontier.asked() == (times + 1, 0, 0)


def test_what_one_provider_does_not_take_another_may(frontier: Frontier) -> None:
    frontier.first.fault("status", status=400)
    assert frontier.ask("at fault, other").text == ANSWER
    assert frontier.asked() == (1, 1, 0)


# --- Keys ---


@STREAM
def test_a_refused_key_is_not_sent_again_until_it_has_changed(frontier: Frontier, *, stream: bool) -> None:
    frontier.key_file.write_text(f"{WRONG_KEY}{stream}\n")
    for _ in range(3):
        outcome = frontier.ask("refused", stream=stream)
        assert (outcome.status, outcome.code) == (502, "frontier_error")
        assert "key" in outcome.message
        assert WRONG_KEY not in outcome.message
    assert frontier.asked() == (0, 0, 1)
    assert frontier.breaker("refused") == "open"
    frontier.key_file.write_text(f"{KEY}\n")
    assert frontier.ask("refused", stream=stream).text == ANSWER
    assert frontier.breaker("refused") == "closed"
    assert frontier.asked() == (0, 0, 2)


def test_a_key_that_is_forbidden_is_refused_too(frontier: Frontier) -> None:
    frontier.keyed.fault("status", status=403)
    assert [frontier.ask("refused").code for _ in range(2)] == ["frontier_error"] * 2
    assert frontier.asked() == (0, 0, 1)
    frontier.key_file.write_text(f"{WRONG_KEY}\n")  # another one, whatever it is
    assert frontier.ask("refused").code == "frontier_error"
    frontier.key_file.write_text(f"{KEY}\n")
    assert frontier.ask("refused").text == ANSWER


def test_without_its_key_a_provider_is_not_asked(frontier: Frontier) -> None:
    frontier.key_file.unlink()
    outcome = frontier.ask("refused")
    assert (outcome.status, outcome.code) == (502, "frontier_error")
    assert frontier.ask("refused, other").text == ANSWER
    assert frontier.asked() == (0, 1, 0)
    assert frontier.breaker("refused") == "open"
    frontier.key_file.write_text(f"{KEY}\n")
    assert frontier.ask("refused").text == ANSWER


def test_a_provider_whose_key_is_refused_is_passed_over(frontier: Frontier) -> None:
    frontier.key_file.write_text(f"{WRONG_KEY}\n")
    assert [frontier.ask("refused, other").text for _ in range(3)] == [ANSWER] * 3
    assert frontier.asked() == (0, 3, 1)
