"""A client that goes away frees what it held within one step, wherever its request was.

The proof is `/admin/v1/status`: slots, queue and the count of the engine's steps.
"""

from contextlib import closing
from typing import Any

import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import LONG_STREAM, BackgroundStream, Daemon, chat_body, post_raw, wait_until

# The step that runs when the client goes, and the one that drops it; two more may pass on the way: while the status
# that the count is read from is under way, and while the daemon notices the closed connection.
STEPS = 4
LONG_PROMPT = " ".join(f"word{number}" for number in range(1300))  # about 6,000 tokens: dozens of steps of prefill


def steps(daemon: Daemon) -> int:
    return int(daemon.engine()["counters"]["steps"])


def used(daemon: Daemon, slots: int) -> None:
    wait_until(lambda: daemon.engine()["slots"]["used"] == slots, f"{slots} slots are used", timeout_s=20)


def freed_within_a_step(daemon: Daemon, before_steps: int) -> None:
    used(daemon, 0)
    assert steps(daemon) - before_steps <= STEPS


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_in_decode(daemon: Daemon, stream: bool) -> None:  # noqa: FBT001 - pytest's parameter
    body = chat_body(**{**LONG_STREAM, "stream": stream})
    generated = daemon.engine()["counters"]["generated_tokens"]
    with closing(post_raw(daemon, body)):
        wait_until(lambda: daemon.engine()["counters"]["generated_tokens"] > generated + 2, "it decodes", timeout_s=20)
        assert daemon.engine()["slots"]["used"] == 1
        before = steps(daemon)
    freed_within_a_step(daemon, before)
    after: dict[str, Any] = daemon.engine()
    assert after["requests_in_flight"] == 0
    assert after["counters"]["generated_tokens"] < generated + 400


def test_every_choice_of_it(daemon: Daemon) -> None:
    with closing(post_raw(daemon, chat_body(**LONG_STREAM, n=4))):
        used(daemon, 4)
        before = steps(daemon)
    freed_within_a_step(daemon, before)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_in_prefill(daemon: Daemon, stream: bool) -> None:  # noqa: FBT001 - pytest's parameter
    computed = daemon.engine()["counters"]["computed_prompt_tokens"]
    generated = daemon.engine()["counters"]["generated_tokens"]
    # Another first word each: what an earlier test has left in the cache is of no use.
    with closing(post_raw(daemon, chat_body(f"{stream} {LONG_PROMPT}", stream=stream))):
        wait_until(
            lambda: daemon.engine()["counters"]["computed_prompt_tokens"] > computed + 10, "it prefills", timeout_s=20
        )
        before = steps(daemon)
    freed_within_a_step(daemon, before)
    counters = daemon.engine()["counters"]
    assert counters["computed_prompt_tokens"] < computed + 5000, "the whole prompt was computed"
    assert counters["generated_tokens"] == generated


def test_in_the_queue(launch: Launch) -> None:
    daemon = launch({"engine.slots": 2}).wait_ready()
    running = [BackgroundStream(daemon, chat_body(**LONG_STREAM)) for _ in range(2)]
    for stream in running:
        stream.wait_first_token()
    with closing(post_raw(daemon, chat_body(**LONG_STREAM))), closing(post_raw(daemon, chat_body())):
        wait_until(lambda: daemon.engine()["waiting"] == 2, "two requests wait")
        assert daemon.engine()["slots"]["used"] == 2
        before = steps(daemon)
    wait_until(lambda: daemon.engine()["waiting"] == 0, "nobody waits")
    assert steps(daemon) - before <= STEPS
    assert daemon.engine()["slots"]["used"] == 2
    assert daemon.engine()["requests_in_flight"] == 2
    written = [len(stream.data) for stream in running]
    wait_until(lambda: all(len(s.data) > count for s, count in zip(running, written, strict=True)), "the others go on")


def test_a_hundred_clients_that_come_and_go_leave_nothing(daemon: Daemon) -> None:
    files = daemon.open_files()
    connections = []
    for number in range(100):
        connections.append(post_raw(daemon, chat_body(f"Number {number}", **LONG_STREAM)))
        if len(connections) > 20:
            connections.pop(0).close()
    for connection in connections:
        connection.close()
    daemon.wait_idle()
    wait_until(lambda: daemon.open_files() <= files, f"{files} open files are left")
    with daemon.client() as client:
        assert client.post("/v1/chat/completions", json=chat_body()).status_code == 200
