"""Normal work goes to the frontier while this machine has no room, as far as policy, privacy and budget allow."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.daemon_fixture import LONG_STREAM, BackgroundStream, Daemon, chat_body, wait_until
from tests.integration.frontier_fixture import ANSWER, Outcome, ask, attempts, frontier_daemon, openai_client, provider
from tests.integration.stand_in_fixture import StandIn

LOCAL_STEP = {"x-appliance-step": "chat"}
CHECKED_STEP = {"x-appliance-step": "code"}
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def saturated(model: Path, folder: Path, stand_in: StandIn, **settings: object) -> Iterator[tuple[Daemon, Any]]:
    """A daemon whose breaker is open, and a client."""
    stand_in.reset()
    given = {name.replace("__", "."): value for name, value in settings.items()}
    with (
        frontier_daemon(model, folder, [provider(stand_in, attempts=1)], given) as daemon,
        openai_client(daemon) as client,
    ):
        with daemon.client() as admin:
            admin.post("/admin/v1/breaker", json={"action": "trip"}).raise_for_status()
        yield daemon, client


@pytest.fixture(scope="module")
def shared(
    stand_in: StandIn, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Daemon, openai.OpenAI]]:
    with saturated(model_path, tmp_path_factory.mktemp("overflow"), stand_in) as both:
        yield both


def asked(client: openai.OpenAI, step: dict[str, str] = LOCAL_STEP, model: str = "auto", **fields: Any) -> Outcome:
    headers = {**step, **fields.pop("headers", {})}
    return ask(client, model=model, headers=headers, max_tokens=8, **fields)


@STREAM
@pytest.mark.parametrize("step", [LOCAL_STEP, CHECKED_STEP, {}], ids=["local", "checked", "unsaid"])
def test_a_normal_step_of_a_saturated_machine_is_answered_by_the_frontier(
    shared: tuple[Daemon, openai.OpenAI], step: dict[str, str], *, stream: bool
) -> None:
    answer = asked(shared[1], step, stream=stream)
    assert (answer.status, answer.route, answer.reason) == (200, "frontier", "saturated")
    assert answer.text == ANSWER
    assert "x-appliance-degraded" not in answer.headers
    assert [row.route for row in attempts(shared[0], answer, 1)] == ["frontier"]


@pytest.mark.parametrize(
    ("model", "headers"),
    [
        ("auto", {"x-appliance-criticality": "critical"}),
        ("auto", {"x-appliance-privacy": "local-only"}),
        ("local", {}),
    ],
)
def test_what_is_critical_or_must_stay_here_is_answered_here(
    shared: tuple[Daemon, openai.OpenAI], model: str, headers: dict[str, str]
) -> None:
    answer = asked(shared[1], model=model, headers=headers)
    assert (answer.status, answer.route) == (200, "local")


def test_a_branch_is_shed_and_not_paid_for(shared: tuple[Daemon, openai.OpenAI]) -> None:
    answer = asked(shared[1], headers={"x-appliance-criticality": "sheddable"})
    assert (answer.status, answer.code) == (429, "branch_shed")


def test_a_conversation_comes_back_when_there_is_room_again(shared: tuple[Daemon, openai.OpenAI]) -> None:
    daemon, client = shared
    said = [{"role": "user", "content": "Something that nobody asked before"}]
    first = asked(client, {}, messages=said)
    assert first.route == "frontier"
    with daemon.client() as admin:
        admin.post("/admin/v1/breaker", json={"action": "reset"}).raise_for_status()
        try:
            more = [*said, {"role": "assistant", "content": first.text}, {"role": "user", "content": "And then?"}]
            again = asked(client, {}, messages=more)
        finally:
            admin.post("/admin/v1/breaker", json={"action": "trip"}).raise_for_status()
    assert again.reason != "conversation"
    assert again.reason != "saturated"


@STREAM
def test_where_the_frontier_fails_it_is_answered_here_after_all(
    stand_in: StandIn, shared: tuple[Daemon, openai.OpenAI], *, stream: bool
) -> None:
    stand_in.control(faults=[{"kind": "status", "status": 500}])
    try:
        answer = asked(shared[1], stream=stream)
    finally:
        stand_in.reset()
    assert (answer.status, answer.route, answer.reason) == (200, "local", "step-chat")
    assert [row.route for row in attempts(shared[0], answer, 2)] == ["frontier", "local"]


def test_who_may_not_spend_waits(stand_in: StandIn, model_path: Path, tmp_path: Path) -> None:
    with saturated(model_path, tmp_path, stand_in, economics__day_budget_usd=0.0) as (_, client):
        answer = asked(client)
        assert (answer.status, answer.route) == (200, "local")
    assert not stand_in.journal()["requests"]


def test_policy_may_leave_it_to_wait(stand_in: StandIn, model_path: Path, tmp_path: Path) -> None:
    with saturated(model_path, tmp_path, stand_in, routing__saturated="wait") as (_, client):
        assert asked(client).route == "local"
    assert not stand_in.journal()["requests"]


def test_what_the_queue_has_no_place_for_goes_too(stand_in: StandIn, model_path: Path, tmp_path: Path) -> None:
    settings = {"engine__slots": 1, "engine__max_waiting": 1}
    with saturated(model_path, tmp_path, stand_in, **settings) as (daemon, client), daemon.client() as admin:
        admin.post("/admin/v1/breaker", json={"action": "reset"}).raise_for_status()
        local = chat_body(**LONG_STREAM)
        first = BackgroundStream(daemon, local, {"x-appliance-task": "t"})
        first.wait_first_token()
        BackgroundStream(daemon, local, {"x-appliance-task": "t"})
        wait_until(lambda: daemon.engine()["waiting"] == 1, "one waits")
        answer = asked(client)
        assert (answer.status, answer.route, answer.reason) == (200, "frontier", "saturated")
        named = asked(client, model="local")
        assert (named.status, named.code) == (503, "overloaded")
        admin.delete("/v1/tasks/t").raise_for_status()
