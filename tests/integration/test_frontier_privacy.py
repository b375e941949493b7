"""What must stay on this machine stays: offline mode and privacy pins, seen from outside, where nothing arrives."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.daemon_fixture import BackgroundStream, Daemon, appliance, chat_body, wait_until
from tests.integration.frontier_fixture import (
    ANSWER,
    Outcome,
    ask,
    everything,
    frontier_daemon,
    ledger,
    openai_client,
    provider,
)
from tests.integration.stand_in_fixture import StandIn

CHAT = "/v1/chat/completions"
OFFLINE = "/admin/v1/offline"
ONLY_OPENAI: dict[str, Any] = {"seed": 1}  # what the other provider does not know
ONLY_ANTHROPIC: dict[str, Any] = {"top_k": 3}
LOCAL_ONLY = {"x-appliance-privacy": "local-only"}


@dataclass(frozen=True, slots=True)
class Frontier:
    daemon: Daemon
    stand_in: StandIn
    elsewhere: StandIn  # which no setting names

    def ask(self, **fields: Any) -> Outcome:
        with openai_client(self.daemon) as client:
            return ask(client, **fields)

    def outcomes(self) -> list[str]:
        """Of all attempts, for as long as the daemon runs."""
        return [row.outcome for row in ledger(self.daemon)]

    def goes(self, *, offline: bool) -> httpx.Response:
        with self.daemon.client() as client:
            return client.put(OFFLINE, json={"offline": offline})


def command(daemon: Daemon, *arguments: str) -> str:
    done = appliance("--state-dir", daemon.state_dir, "--url", daemon.url, *arguments, home=daemon.home)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def providers(stand_in: StandIn) -> list[dict[str, object]]:
    return [provider(stand_in, attempts=2), provider(stand_in, "claude", "anthropic", attempts=2)]


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def running(stand_in: StandIn, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontier]:
    elsewhere = StandIn()
    try:
        with frontier_daemon(model_path, tmp_path_factory.mktemp("privacy"), providers(stand_in)) as daemon:
            yield Frontier(daemon, stand_in, elsewhere)
    finally:
        elsewhere.close()


@pytest.fixture
def frontier(running: Frontier) -> Iterator[Frontier]:
    running.stand_in.reset()
    running.elsewhere.reset()
    yield running
    assert running.goes(offline=False).json() == {"offline": False, "pinned": False}


def stays(frontier: Frontier) -> bool:
    """Whether nothing of all that arrives anywhere."""
    before = frontier.stand_in.journal()
    routes = {answer.headers.get("x-appliance-route") for answer in everything(frontier.daemon)}
    return routes <= {"local", None} and frontier.stand_in.journal() == before


def test_without_a_word_of_privacy_the_same_requests_do_go_out(frontier: Frontier) -> None:
    routes = {answer.headers.get("x-appliance-route") for answer in everything(frontier.daemon)}
    assert routes == {"local", "frontier", None}
    assert len(frontier.stand_in.journal()["requests"]) > 5


@pytest.mark.parametrize(
    ("headers", "metadata"),
    [(LOCAL_ONLY, None), (None, {"privacy": "local-only"}), (LOCAL_ONLY, {"privacy": "any"})],
    ids=["header", "metadata", "both"],
)
def test_a_request_that_must_stay_stays(
    frontier: Frontier, headers: dict[str, str] | None, metadata: dict[str, str] | None
) -> None:
    answers = everything(frontier.daemon, headers, metadata)
    if headers is not None:  # completions have no metadata
        assert {answer.headers.get("x-appliance-route") for answer in answers} <= {"local", None}
    journal = frontier.stand_in.journal()
    assert journal["requests"] == []


def test_a_step_that_must_stay_is_answered_here_and_says_why(frontier: Frontier) -> None:
    for stream in (False, True):
        for fields in ({"model": "frontier"}, {"model": "auto", "metadata": {"step": "synthesize"}}):
            outcome = frontier.ask(**fields, stream=stream, headers=LOCAL_ONLY, max_tokens=2)
            assert (outcome.status, outcome.route, outcome.reason) == (200, "local", "local-only")
            assert outcome.headers["x-appliance-degraded"] == "true"
    assert frontier.stand_in.journal()["requests"] == []


@pytest.mark.parametrize("by", ["request", "command"])
def test_offline_lets_nothing_out_until_it_is_lifted(frontier: Frontier, by: str) -> None:
    assert frontier.ask().text == ANSWER
    if by == "request":
        assert frontier.goes(offline=True).json() == {"offline": True, "pinned": False}
    else:
        assert command(frontier.daemon, "offline", "on") == "offline"
        assert command(frontier.daemon, "offline", "status") == "offline"
    assert frontier.daemon.status()["offline"] is True
    assert stays(frontier)
    for stream in (False, True):
        by_name = frontier.ask(stream=stream)
        assert (by_name.status, by_name.code) == (503, "offline")
        assert int(by_name.headers["retry-after"]) > 0
        here = frontier.ask(model="auto", headers={"x-appliance-step": "synthesize"}, max_tokens=2, stream=stream)
        assert (here.route, here.reason) == ("local", "offline")
        assert here.headers["x-appliance-degraded"] == "true"
    if by == "request":
        frontier.goes(offline=False)
    else:
        assert command(frontier.daemon, "offline", "off") == "online"
    assert frontier.ask().text == ANSWER


def test_going_offline_cuts_a_running_answer(frontier: Frontier) -> None:
    frontier.stand_in.control(word_delay_s=0.01)
    frontier.stand_in.fault("endless")
    stream = BackgroundStream(frontier.daemon, chat_body(model="frontier", stream=True))
    stream.wait_first_token()
    frontier.goes(offline=True)
    assert stream.wait_end().error()["code"] == "offline"

    def billed_usd() -> float:
        return float(frontier.stand_in.journal()["billed_usd"])

    wait_until(lambda: billed_usd() == billed_usd(), "the provider has noticed that nobody listens")
    assert len(frontier.stand_in.journal()["requests"]) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_going_offline_ends_the_wait_for_an_answer(frontier: Frontier, *, stream: bool) -> None:
    frontier.stand_in.fault("slow_headers", seconds=60)
    waiting = BackgroundStream(frontier.daemon, chat_body(model="frontier", stream=stream))
    wait_until(lambda: frontier.stand_in.journal()["requests"], "the provider has been asked")
    frontier.goes(offline=True)
    assert waiting.wait_end().error()["code"] == "offline"
    assert waiting.status == 503
    assert len(frontier.stand_in.journal()["requests"]) == 1


def test_going_offline_ends_a_pause_between_two_tries(frontier: Frontier) -> None:
    frontier.stand_in.fault("status", status=503, headers={"retry-after": "50"})
    waiting = BackgroundStream(frontier.daemon, chat_body(model="frontier", **ONLY_ANTHROPIC))
    wait_until(lambda: frontier.stand_in.journal()["requests"], "the provider has been asked")
    wait_until(lambda: frontier.outcomes()[-1:] == ["failed"], "the attempt has failed")
    frontier.goes(offline=True)
    assert waiting.wait_end(10).error()["code"] == "offline"
    assert len(frontier.stand_in.journal()["requests"]) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize(
    ("path", "only"), [(CHAT, ONLY_OPENAI), ("/v1/messages", ONLY_ANTHROPIC)], ids=["openai", "anthropic"]
)
def test_a_redirect_is_not_followed(frontier: Frontier, path: str, only: dict[str, object], status: int) -> None:
    frontier.stand_in.fault("status", status=status, headers={"location": frontier.elsewhere.url + path})
    outcome = frontier.ask(marks=only)
    assert (outcome.status, outcome.code) == (502, "frontier_error")
    assert frontier.elsewhere.url not in outcome.message
    assert frontier.elsewhere.journal()["requests"] == []
    assert [request["path"] for request in frontier.stand_in.journal()["requests"]] == [path]
    assert frontier.ask(marks=only).text == ANSWER
