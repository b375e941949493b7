"""Criticality, the breaker and tasks, through a running daemon."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import (
    LONG_STREAM,
    BackgroundStream,
    Daemon,
    appliance,
    chat_body,
    post_raw,
    wait_until,
)

CRITICAL = {"x-appliance-criticality": "critical"}
SHEDDABLE = {"x-appliance-criticality": "sheddable"}


@pytest.fixture
def client(daemon: Daemon) -> Iterator[httpx.Client]:
    """Of the shared daemon, whose breaker is left as it was."""
    with daemon.client() as one:
        yield one
        assert one.post("/admin/v1/breaker", json={"action": "reset"}).json() == {"state": "closed", "held": None}


def test_a_tripped_breaker_refuses_branches_at_once_and_nobody_else(client: httpx.Client) -> None:
    assert client.post("/admin/v1/breaker", json={"action": "trip"}).json() == {"state": "open", "held": "open"}
    shed = client.post("/v1/chat/completions", json=chat_body(), headers=SHEDDABLE)
    assert shed.status_code == 429
    assert shed.json()["error"]["code"] == "branch_shed"
    assert int(shed.headers["retry-after"]) >= 1
    flex = client.post("/v1/chat/completions", json=chat_body(service_tier="flex"))
    assert flex.json()["error"]["code"] == "branch_shed"
    for headers in ({}, CRITICAL):
        assert client.post("/v1/chat/completions", json=chat_body(), headers=headers).status_code == 200
    admission = client.get("/admin/v1/status").json()["admission"]
    assert admission["breaker"] == "open"
    assert admission["transitions"][-1]["reason"] == "owner"
    assert admission["refused"]["sheddable"]["branch_shed"] >= 2
    metrics = client.get("/metrics").text
    assert 'appliance_breaker_state{state="open"} 1.0' in metrics


def test_a_reset_breaker_takes_branches_again(client: httpx.Client) -> None:
    client.post("/admin/v1/breaker", json={"action": "trip"})
    client.post("/admin/v1/breaker", json={"action": "reset"})
    assert client.post("/v1/chat/completions", json=chat_body(), headers=SHEDDABLE).status_code == 200


def test_running_branches_are_ended_with_an_error_event_when_the_breaker_opens(launch: Launch) -> None:
    daemon = launch({"admission.grace_s": 0}).wait_ready()
    branches = [BackgroundStream(daemon, chat_body(**LONG_STREAM), SHEDDABLE) for _ in range(3)]
    kept = BackgroundStream(daemon, chat_body("Keep this one.", stream=True, max_tokens=60, ignore_eos=True))
    for stream in (*branches, kept):
        stream.wait_first_token()
    with daemon.client() as client:
        client.post("/admin/v1/breaker", json={"action": "trip"})
    for branch in branches:
        last = json.loads(branch.wait_end().data[-1])
        assert last["error"]["code"] == "branch_shed"
    assert kept.wait_end().data[-1] == "[DONE]"
    assert daemon.status()["admission"]["ended"] == {"sheddable": 3}


@pytest.mark.parametrize(
    "body", [{}, {"action": "open"}, {"action": None}, {"action": "trip", "why": "because"}, [], {"action": ["trip"]}]
)
def test_a_wrong_word_to_the_breaker_names_the_field_and_changes_nothing(client: httpx.Client, body: object) -> None:
    answer = client.post("/admin/v1/breaker", json=body)
    assert answer.status_code == 400
    assert client.get("/admin/v1/status").json()["admission"]["breaker"] == "closed"


def test_the_command_line_trips_and_resets(daemon: Daemon, client: httpx.Client, tmp_path: Path) -> None:
    tripped = appliance("--url", daemon.url, "breaker", "trip", home=tmp_path)
    assert (tripped.returncode, tripped.stdout.split()[0]) == (0, "open")
    assert client.get("/admin/v1/status").json()["admission"]["held_by_owner"]
    shown = appliance("--url", daemon.url, "status", home=tmp_path)
    assert shown.returncode == 0
    assert "from closed to open reason owner" in shown.stdout
    assert appliance("--url", daemon.url, "breaker", "reset", home=tmp_path).stdout == "closed\n"


def test_a_critical_request_takes_a_slot_from_others(launch: Launch) -> None:
    daemon = launch({"engine.slots": 2}).wait_ready()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(closing(post_raw(daemon, chat_body(**LONG_STREAM))))
        wait_until(lambda: (daemon.engine()["slots"]["used"], daemon.engine()["waiting"]) == (2, 1), "one waits")
        with daemon.client() as client:
            answer = client.post("/v1/chat/completions", json=chat_body(), headers=CRITICAL)
        assert answer.status_code == 200
        wait_until(lambda: daemon.engine()["counters"]["preemptions"] == 1, "a stream stood back")
    daemon.wait_idle()


def test_who_waits_is_told_how_many_went_first(launch: Launch) -> None:
    daemon = launch({"engine.slots": 1}).wait_ready()
    body = chat_body("Count.", stream=True, max_tokens=40, ignore_eos=True)
    first = BackgroundStream(daemon, body)
    first.wait_first_token()
    second = BackgroundStream(daemon, chat_body(**LONG_STREAM))
    wait_until(lambda: daemon.engine()["waiting"] == 1, "the second waits")
    queues = daemon.status()["admission"]["queues"][daemon.model_name]
    assert queues["normal"]["waiting"] == 1
    with daemon.client() as client:
        late = client.post("/v1/chat/completions", json=chat_body(), headers={"x-appliance-timeout": "0.5"})
    assert late.status_code in (503, 504)
    first.wait_end()
    second.wait_first_token()


def test_a_stream_that_waits_is_told_so_in_comments(launch: Launch) -> None:
    daemon = launch({"engine.slots": 1}).wait_ready()
    running = BackgroundStream(daemon, chat_body(**LONG_STREAM), {"x-appliance-task": "long"})
    running.wait_first_token()
    with (
        daemon.client() as client,
        client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as waiting,
    ):
        lines = waiting.iter_lines()
        first = next(lines)
        assert waiting.status_code == 200
        assert waiting.headers["x-appliance-route"] == "local"
        assert int(waiting.headers["x-appliance-queue-ms"]) > 0
        assert first.startswith(": waiting ahead=0 expected-wait-s=")
        with daemon.client() as other:
            assert other.delete("/v1/tasks/long").json()["cancelled_requests"] == 1
        rest = [line for line in lines if line and not line.startswith(":")]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[0].removeprefix("data: "))["choices"][0]["delta"]["role"] == "assistant"


def test_a_stream_that_was_told_to_wait_ends_at_its_deadline_with_an_error_event(launch: Launch) -> None:
    daemon = launch({"engine.slots": 1}).wait_ready()
    running = BackgroundStream(daemon, chat_body(**LONG_STREAM))
    running.wait_first_token()
    late = BackgroundStream(daemon, chat_body(stream=True), {"x-appliance-timeout": "7"})
    assert (late.wait_end().status, late.error()["code"]) == (200, "deadline_exceeded")


def test_a_whole_task_is_cancelled_running_and_waiting_alike(launch: Launch) -> None:
    daemon = launch({"engine.slots": 1}).wait_ready()
    mine, other = {"x-appliance-task": "report/7"}, {"x-appliance-task": "report"}
    running = BackgroundStream(daemon, chat_body(**LONG_STREAM), mine)
    running.wait_first_token()
    waiting = BackgroundStream(daemon, chat_body(**LONG_STREAM), mine)
    neighbour = BackgroundStream(daemon, chat_body(stream=True), other)
    wait_until(lambda: daemon.engine()["waiting"] == 2, "two wait")
    with daemon.client() as client:
        answer = client.delete("/v1/tasks/report%2F7")
        assert answer.json() == {"id": "report/7", "cancelled_requests": 2}
        assert client.delete("/v1/tasks/report%2F7").json()["cancelled_requests"] == 0
    assert json.loads(running.wait_end().data[-1])["error"]["code"] == "cancelled"
    assert waiting.wait_end().status == 409
    assert neighbour.wait_end().data[-1] == "[DONE]"
    daemon.wait_idle()


def test_a_key_cancels_no_task_of_another(launch: Launch) -> None:
    daemon = launch().wait_ready()
    running = BackgroundStream(daemon, chat_body(**LONG_STREAM), {"x-appliance-task": "mine"})
    running.wait_first_token()
    with daemon.client() as client:
        assert client.delete("/v1/tasks/theirs").json()["cancelled_requests"] == 0
        assert client.delete("/v1/tasks/mine").json()["cancelled_requests"] == 1


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"admission.sheddable_ceiling": 0.9}, "sheddable_ceiling"),
        ({"admission.recover_at": 1.5, "admission.trip_at": 1}, "recover_at"),
        ({"admission.normal_ceiling": 1.5}, "normal_ceiling"),
        ({"slo.queue_wait_s": 0}, "queue_wait_s"),
    ],
)
def test_limits_that_contradict_each_other_end_the_start(settings: dict[str, object], key: str, tmp_path: Path) -> None:
    ended = appliance("config", "check", home=tmp_path, settings=settings)
    assert ended.returncode == 78
    assert key in ended.stderr


def test_the_cost_curve_is_measured_once_and_kept(launch: Launch) -> None:
    first = launch().wait_ready()
    curve = first.engine()["cost_curve"]
    assert next(iter(curve["step_ms"])) == "1"
    wait_until((first.state_dir / "curves.json").exists, "the curve is kept")
    first.terminate()
    assert launch().wait_ready().engine()["cost_curve"] == curve


def test_hardware_is_in_the_status(daemon: Daemon) -> None:
    hardware = wait_until(lambda: daemon.status()["hardware"], "a sample was taken")
    assert hardware["memory_total_bytes"] > 0
    assert set(hardware["processes"]) >= {"daemon", daemon.model_name}
