"""Start, reload and stop as a service manager sees them, and the commands that talk to a running daemon."""

import json
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import (
    LONG_STREAM,
    READY_TIMEOUT_S,
    BackgroundStream,
    Daemon,
    appliance,
    chat_body,
    wait_until,
)

CHAT = "/v1/chat/completions"


class TestSigterm:
    def test_lets_a_running_stream_finish(self, launch: Launch) -> None:
        daemon = launch({"server.drain_timeout_s": 30}).wait_ready()
        stream = BackgroundStream(daemon, chat_body(stream=True, max_tokens=60, ignore_eos=True))
        stream.wait_first_token()
        began_s = time.monotonic()
        daemon.signal(signal.SIGTERM)
        stream.wait_end()
        assert stream.data[-1] == "[DONE]"
        assert stream.failure is None
        assert daemon.wait_exit() == 0
        assert time.monotonic() - began_s < 30

    def test_takes_no_new_request_while_it_drains(self, launch: Launch) -> None:
        daemon = launch({"server.drain_timeout_s": 10}).wait_ready()
        stream = BackgroundStream(daemon, chat_body(stream=True, max_tokens=150, ignore_eos=True))
        stream.wait_first_token()
        daemon.signal(signal.SIGTERM)
        daemon.log.wait_for("stopping")

        def refused() -> bool:
            late = BackgroundStream(daemon, chat_body(max_tokens=1)).wait_end(10)
            return late.failure is not None or late.status == 503

        wait_until(refused, "new requests are refused", timeout_s=5)
        assert stream.data[-1] != "[DONE]", "the stream was over too soon to show anything"
        stream.wait_end()
        assert stream.data[-1] == "[DONE]"

    def test_ends_a_stream_that_outlasts_the_drain_with_an_error_event(self, launch: Launch) -> None:
        daemon = launch({"server.drain_timeout_s": 1}).wait_ready()
        stream = BackgroundStream(daemon, chat_body(**LONG_STREAM))
        stream.wait_first_token()
        began_s = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert stream.wait_end().error()["code"] in {"engine_crashed", "overloaded"}
        assert daemon.wait_exit() == 0
        assert time.monotonic() - began_s < 25  # it would go on for minutes

    def test_while_the_model_loads_ends_at_once(self, launch: Launch) -> None:
        daemon = launch().wait_listening()
        wait_until(daemon.processes, "the worker is started")
        began_s = time.monotonic()
        assert daemon.terminate() == 0
        assert time.monotonic() - began_s < 18

    def test_with_idle_connections_ends_at_once(self, launch: Launch) -> None:
        daemon = launch({"server.drain_timeout_s": 20}).wait_ready()
        with daemon.client() as client:
            assert client.get("/healthz").status_code == 200
            began_s = time.monotonic()
            assert daemon.terminate() == 0
        assert time.monotonic() - began_s < 18


def test_sigint_stops_it_as_sigterm_does(launch: Launch) -> None:
    daemon = launch().wait_listening()
    daemon.signal(signal.SIGINT)
    assert daemon.wait_exit() == 0


def test_a_killed_daemon_leaves_no_worker_behind(launch: Launch) -> None:
    daemon = launch().wait_ready()
    assert daemon.processes()
    daemon.signal(signal.SIGKILL)
    assert daemon.wait_exit() == -signal.SIGKILL
    assert daemon.leaked() == []


class TestSighup:
    def test_takes_over_a_changed_limit_without_ending_a_stream(self, launch: Launch, tmp_path: Path) -> None:
        config = tmp_path / "appliance.toml"
        config.write_text("")
        daemon = launch(arguments=("--config", str(config))).wait_ready()
        made = appliance("--state-dir", daemon.state_dir, "keys", "create", "--name", "me", home=daemon.home)
        key = made.stdout.strip()
        stream = BackgroundStream(
            daemon, chat_body(stream=True, max_tokens=50, ignore_eos=True), {"authorization": f"Bearer {key}"}
        )
        stream.wait_first_token()
        config.write_text("[security]\nmax_requests_per_minute = 2\n")
        daemon.signal(signal.SIGHUP)
        daemon.log.wait_for("reloaded", 10)
        with daemon.client(key) as client:
            statuses = [client.post(CHAT, json=chat_body(max_tokens=1)).status_code for _ in range(3)]
        assert 429 in statuses
        assert stream.wait_end().data[-1] == "[DONE]"

    def test_with_a_broken_file_keeps_what_it_had_and_says_so(self, launch: Launch, tmp_path: Path) -> None:
        config = tmp_path / "appliance.toml"
        config.write_text("")
        daemon = launch(arguments=("--config", str(config))).wait_listening()
        config.write_text("[security]\nmax_request_per_minute = 2\n")
        daemon.signal(signal.SIGHUP)
        record = daemon.log.wait_for("reload_failed", 10)
        assert "max_requests_per_minute" in record["reason"]
        with daemon.client() as client:
            assert client.get("/healthz").status_code == 200


class ServiceManager:
    """The end of a notify socket that systemd holds."""

    def __init__(self, folder: str) -> None:
        self.path = str(Path(folder) / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.messages: list[dict[str, str]] = []

    def take(self) -> None:
        while select.select([self.socket], [], [], 0)[0]:
            lines = self.socket.recv(65536).decode().splitlines()
            self.messages.append(dict(line.split("=", 1) for line in lines))

    def wait_for(self, key: str, value: str | None = None, after: int = 0, timeout_s: float = READY_TIMEOUT_S) -> int:
        """The place of the first message with it, from `after` on."""

        def found() -> int | None:
            self.take()
            for place, message in enumerate(self.messages[after:], after):
                if key in message and value in (None, message[key]):
                    return place + 1
            return None

        return int(wait_until(found, f"{key}={value} comes: {self.messages}", timeout_s)) - 1


@pytest.fixture
def manager() -> Iterator[ServiceManager]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has 107 characters, pytest's folders may have more
        manager = ServiceManager(folder)
        yield manager
        manager.socket.close()


def test_the_service_manager_hears_of_each_turn(launch: Launch, manager: ServiceManager) -> None:
    daemon = launch(
        extra_environment={"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "500000"},
    ).wait_listening()
    with daemon.client() as client:
        if client.get("/readyz").status_code == 503:
            manager.take()
            unready = [message for message in manager.messages if "READY" in message]
            assert unready == [] or client.get("/readyz").status_code == 200
        ready = manager.wait_for("READY", "1")
        assert client.get("/readyz").status_code == 200
    assert daemon.url in manager.messages[ready]["STATUS"]
    assert daemon.engine()["counters"]["generated_tokens"] >= 1  # a real token was made before READY

    first = manager.wait_for("WATCHDOG", "1", after=ready)
    manager.wait_for("WATCHDOG", "1", after=first + 1, timeout_s=2)

    os.kill(daemon.worker_pid(), signal.SIGKILL)
    manager.wait_for("STATUS", "the engine is being restarted", timeout_s=10)
    back = manager.wait_for("STATUS", f"serving on {daemon.url}", after=ready + 1, timeout_s=30)

    daemon.signal(signal.SIGHUP)
    reloading = manager.wait_for("RELOADING", "1", after=back)
    assert int(manager.messages[reloading]["MONOTONIC_USEC"]) > 0
    manager.wait_for("READY", "1", after=reloading)

    assert daemon.terminate() == 0
    manager.wait_for("STOPPING", "1", timeout_s=1)


class TestWrongConfiguration:
    """Each ends with 78 (EX_CONFIG) and one message, before anything is loaded."""

    def serve(self, tmp_path: Path, model: Path, *options: str, config: str = "", **settings: object) -> str:
        (tmp_path / "appliance.toml").write_text(config)
        ended = appliance(
            "--config",
            tmp_path / "appliance.toml",
            "--state-dir",
            tmp_path / "state",
            "serve",
            "--model",
            model,
            *options,
            home=tmp_path,
            settings={key.replace("__", "."): value for key, value in settings.items()},
        )
        assert ended.returncode == 78, ended.stderr
        assert "Traceback" not in ended.stderr
        assert ended.stdout == ""
        return ended.stderr

    def test_an_unknown_key_names_the_nearest(self, tmp_path: Path, model_path: Path) -> None:
        said = self.serve(tmp_path, model_path, "--port", "0", config="[server]\nprot = 1\n")
        assert "server.prot" in said
        assert "server.port" in said

    def test_a_file_that_is_no_toml(self, tmp_path: Path, model_path: Path) -> None:
        assert "appliance.toml" in self.serve(tmp_path, model_path, config="[server\n")

    def test_a_value_of_the_wrong_type(self, tmp_path: Path, model_path: Path) -> None:
        assert "server.port" in self.serve(tmp_path, model_path, config="[server]\nport = 'many'\n")

    def test_an_environment_variable_of_the_wrong_type(self, tmp_path: Path, model_path: Path) -> None:
        said = self.serve(tmp_path, model_path, engine__slots="many")
        assert "engine.slots" in said or "APPLIANCE_ENGINE__SLOTS" in said

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        ended = appliance("--config", tmp_path / "none.toml", "serve", home=tmp_path)
        assert ended.returncode == 78
        assert "none.toml" in ended.stderr

    def test_a_port_in_use(self, tmp_path: Path, model_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            said = self.serve(tmp_path, model_path, "--port", str(port))
        assert "server.port" in said
        assert str(port) in said
        assert "in use" in said

    def test_an_address_of_another_machine(self, tmp_path: Path, model_path: Path) -> None:
        assert "server.host" in self.serve(tmp_path, model_path, server__host="192.0.2.1")

    def test_a_model_that_is_not_in_the_store(self, tmp_path: Path) -> None:
        said = self.serve(tmp_path, Path("no-such-model"))
        assert "no-such-model" in said
        assert "appliance pull" in said


def test_two_daemons_may_share_a_state_folder(launch: Launch) -> None:
    first, second = launch().wait_listening(), launch().wait_listening()
    assert first.url != second.url
    made = appliance("--state-dir", first.state_dir, "keys", "create", "--name", "me", home=first.home)
    assert made.returncode == 0
    for daemon in (first, second):
        with daemon.client() as client:
            assert client.get("/v1/models").status_code == 401
        with daemon.client(made.stdout.strip()) as client:
            assert client.get("/v1/models").status_code == 200


class TestCommands:
    def run(self, daemon: Daemon, *arguments: str) -> str:
        ended = appliance("--url", daemon.url, *arguments, home=daemon.home)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def test_status_shows_the_model(self, daemon: Daemon) -> None:
        shown = self.run(daemon, "status")
        assert daemon.model_name in shown
        assert "ready" in shown

    def test_status_as_json_is_the_snapshot(self, daemon: Daemon) -> None:
        snapshot = json.loads(self.run(daemon, "status", "--json"))
        assert snapshot["models"][daemon.model_name]["worker_pid"] == daemon.worker_pid()

    def test_chat_prints_an_answer(self, daemon: Daemon) -> None:
        assert self.run(daemon, "chat", "--max-tokens", "16", "Say hi.").strip()

    def test_a_daemon_that_is_not_there_is_said_plainly(self, daemon: Daemon) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        for command in (["status"], ["chat", "hi"]):
            ended = appliance("--url", url, *command, home=daemon.home)
            assert ended.returncode == 1
            assert url in ended.stderr
            assert "Traceback" not in ended.stderr


def test_a_stopped_daemon_leaves_its_port_free(launch: Launch) -> None:
    daemon = launch().wait_listening()
    port = int(daemon.url.rsplit(":", 1)[1])
    assert daemon.terminate() == 0
    assert not [c for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.status == "LISTEN"]
