"""The worker is killed, crashes or hangs: requests get a typed error, the daemon replaces it and leaks nothing."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import LONG_STREAM, BackgroundStream, Daemon, chat_body, wait_until

CHAT = "/v1/chat/completions"
STREAMS = 8
CHILDREN = 4  # the worker; its template renderer; its constraint checker, and the fork of that which works
KILLS = int(os.environ.get("APPLIANCE_TEST_WORKER_KILLS", "5"))


@pytest.fixture(scope="module")
def doomed(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose worker is killed again and again."""
    daemon = Daemon(model_path, tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("home"), {})
    try:
        daemon.wait_ready()
        with daemon.client() as client:
            assert client.post(CHAT, json=chat_body()).status_code == 200
        yield daemon
    finally:
        daemon.close()


@pytest.fixture(scope="module")
def footprint(doomed: Daemon) -> tuple[int, int]:
    """Open files and child processes before the first death."""
    doomed.wait_idle()
    wait_until(lambda: len(doomed.processes()) == CHILDREN, f"there are {CHILDREN} children: {doomed.processes()}")
    return doomed.open_files(), CHILDREN


def streams(daemon: Daemon, count: int = STREAMS) -> list[BackgroundStream]:
    started = [BackgroundStream(daemon, chat_body(f"Count from {n}", **LONG_STREAM)) for n in range(count)]
    for stream in started:
        stream.wait_first_token()
    return started


def check_answers(daemon: Daemon) -> None:
    with daemon.client() as client:
        answer = client.post(CHAT, json=chat_body())
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("kill", range(KILLS))
def test_killed_under_eight_streams(doomed: Daemon, footprint: tuple[int, int], kill: int) -> None:
    restarts = doomed.engine()["restarts"]
    worker = doomed.worker_pid()
    running = streams(doomed)
    os.kill(worker, signal.SIGKILL)
    for stream in running:
        error = stream.wait_end(10).error()
        assert error["code"] == "engine_crashed"
        assert error["type"] == "server_error"
        assert error["message"]
    assert doomed.process.poll() is None
    check_answers(doomed)  # as soon as the next worker is there
    engine = doomed.engine()
    assert engine["restarts"] == restarts + 1
    assert engine["worker_pid"] != worker
    assert not psutil.pid_exists(worker)
    doomed.wait_idle()
    files, children = footprint
    wait_until(lambda: doomed.open_files() <= files, f"{files} files are open, not {doomed.open_files()}")
    wait_until(lambda: len(doomed.processes()) == children, f"there are {children} children: {doomed.processes()}")


def test_killed_while_whole_answers_are_awaited(doomed: Daemon) -> None:
    worker = doomed.worker_pid()
    whole = [
        BackgroundStream(doomed, chat_body(f"Count from {n}", **{**LONG_STREAM, "stream": False})) for n in range(3)
    ]
    wait_until(lambda: doomed.engine()["slots"]["used"] == 3, "three requests run")
    os.kill(worker, signal.SIGKILL)
    for request in whole:
        request.wait_end(10)
        assert request.status == 500
        assert request.error()["code"] == "engine_crashed"
    check_answers(doomed)


def test_readiness_is_truthful_between_two_workers(doomed: Daemon) -> None:
    with doomed.client() as client:
        assert client.get("/readyz").status_code == 200
        os.kill(doomed.worker_pid(), signal.SIGKILL)
        unready = wait_until(
            lambda: (response := client.get("/readyz")).status_code == 503 and response, "readiness says 503"
        )
        assert int(unready.headers["retry-after"]) >= 1
        assert unready.json()["error"]["code"] == "model_loading"
        assert client.get("/healthz").status_code == 200
        wait_until(lambda: client.get("/readyz").status_code == 200, "readiness comes back", timeout_s=20)
        assert client.post(CHAT, json=chat_body()).status_code == 200


def test_requests_sent_during_a_restart_wait_for_the_new_worker(doomed: Daemon) -> None:
    os.kill(doomed.worker_pid(), signal.SIGKILL)
    wait_until(lambda: doomed.engine()["state"] != "ready", "the death is seen")
    waiting = [BackgroundStream(doomed, chat_body(stream=True)) for _ in range(4)]
    for request in waiting:
        request.wait_end(20)
        assert (request.status, request.data[-1:]) == (200, ["[DONE]"]), request.text


def test_a_request_that_comes_just_after_the_death_is_not_given_to_the_dead(doomed: Daemon) -> None:
    doomed.wait_idle()
    worker = psutil.Process(doomed.worker_pid())
    worker.kill()
    with suppress(psutil.NoSuchProcess):  # dead, whether or not the daemon has taken note of it
        wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE, "the worker is dead")
    check_answers(doomed)


def test_killed_while_it_loads(doomed: Daemon) -> None:
    os.kill(doomed.worker_pid(), signal.SIGKILL)
    loading = wait_until(
        lambda: (e := doomed.engine())["state"] != "ready" and e["worker_pid"], "another worker is started"
    )
    os.kill(loading, signal.SIGKILL)
    check_answers(doomed)


def test_a_crash_in_native_code_is_a_death_too(doomed: Daemon) -> None:
    running = streams(doomed, 2)
    os.kill(doomed.worker_pid(), signal.SIGSEGV)
    for stream in running:
        assert stream.wait_end(10).error()["code"] == "engine_crashed"
    check_answers(doomed)
    doomed.log.wait_for("engine worker ended", 1)


def test_a_worker_that_hangs_under_load_is_replaced(launch: Launch) -> None:
    daemon = launch({"engine.hang_timeout_s": 2}).wait_ready()
    worker = daemon.worker_pid()
    running = streams(daemon, 2)
    os.kill(worker, signal.SIGSTOP)
    for stream in running:
        assert stream.wait_end(10).error()["code"] == "engine_crashed"
    check_answers(daemon)
    assert not psutil.pid_exists(worker)
    daemon.wait_idle()


def test_an_idle_worker_that_hangs_is_replaced(launch: Launch) -> None:
    daemon = launch({"engine.hang_timeout_s": 2}).wait_ready()
    worker = daemon.worker_pid()
    os.kill(worker, signal.SIGSTOP)
    wait_until(lambda: daemon.engine()["worker_pid"] not in {worker, None}, "another worker is started", timeout_s=15)
    check_answers(daemon)


def test_a_slow_prefill_is_not_taken_for_a_hang(launch: Launch) -> None:
    daemon = launch({"engine.hang_timeout_s": 1}).wait_ready()
    worker = daemon.worker_pid()
    with daemon.client() as client:
        answer = client.post(CHAT, json=chat_body("word " * 500, max_tokens=1))
    assert answer.status_code == 200, answer.text
    assert daemon.worker_pid() == worker
