"""A running daemon as its users see it: the `appliance` command, its URL, its log, its processes.

Knows the public interface only: the command line, HTTP, signals, `/admin/v1/status` and `/proc`.
"""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

APPLIANCE = Path(sys.executable).with_name("appliance")
READY_TIMEOUT_S = 60.0  # the model loads in 2 to 4 s; a machine that is busy with other tests takes longer
POLL_S = 0.01

# One thread: two that share their cores with other work wait for each other at every layer, ten times slower.
# A short drain: what a test leaves running is nothing to wait for. No cache: who asks twice wants two answers here.
# A breaker that opens by word alone: what shares the machine with a test would open it now and then.
DEFAULTS: Mapping[str, object] = {
    "telemetry.log_format": "json",
    "engine.threads": 1,
    "server.drain_timeout_s": 1,
    "cache.enabled": False,
    "admission.trip_at": 1_000_000,
}
_INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


class DaemonEnded(Exception):
    """The daemon's process ended while a test waited for something else; the message has its log."""


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 10.0) -> Any:
    """The condition's first true value. `what` completes the sentence "did not happen: ..."."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"did not happen within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)
    return value


def environment(home: Path, settings: Mapping[str, object], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The least that a daemon needs, an empty home, and the settings by dotted key ("engine.slots")."""
    said = {
        "APPLIANCE_" + key.upper().replace(".", "__"): value if isinstance(value, str) else json.dumps(value)
        for key, value in {**DEFAULTS, **settings}.items()
    }
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**kept, "HOME": str(home), **said, **(extra or {})}


def appliance(
    *arguments: str | Path,
    home: Path,
    settings: Mapping[str, object] | None = None,
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end; never raises for its exit code."""
    return subprocess.run(
        [APPLIANCE, *arguments],
        env=environment(home, settings or {}),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        check=False,
    )


class Log:
    """The daemon's standard error, line by line, as it comes."""

    def __init__(self, stream: Any) -> None:
        self.lines: list[str] = []
        self._grew = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._follow, args=(stream,), daemon=True)
        self._thread.start()

    def _follow(self, stream: Any) -> None:
        with stream:
            for line in stream:
                with self._grew:
                    self.lines.append(line.rstrip("\n"))
                    self._grew.notify_all()
        with self._grew:
            self._ended = True
            self._grew.notify_all()

    def records(self) -> Iterator[dict[str, Any]]:
        for line in list(self.lines):
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record

    def wait_for(self, event: str, timeout_s: float = READY_TIMEOUT_S, **fields: object) -> dict[str, Any]:
        """The first record of that event with those fields. Raises `DaemonEnded` when the log ends without it."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            with self._grew:
                for record in self.records():
                    if record.get("event") == event and fields.items() <= record.items():
                        return record
                if self._ended:
                    raise DaemonEnded("\n".join(self.lines))
                if not self._grew.wait(deadline_s - time.monotonic()):
                    raise AssertionError(f"no {event!r} in the log within {timeout_s:g} s:\n" + "\n".join(self.lines))

    def join(self) -> None:
        self._thread.join(timeout=10)


class Daemon:
    """One `appliance serve`. Ends with the test that started it, whatever happened to it."""

    def __init__(
        self,
        model: Path,
        state_dir: Path,
        home: Path,
        settings: Mapping[str, object],
        *,
        arguments: tuple[str, ...] = (),
        extra_environment: Mapping[str, str] | None = None,
        more_models: Sequence[str] = (),
    ) -> None:
        more = [argument for path in more_models for argument in ("--model", path)]
        self.model_name = model.name.removesuffix(".gguf")
        self.state_dir = state_dir
        self.home = home
        self.process = subprocess.Popen(
            [APPLIANCE, "--state-dir", state_dir, *arguments, "serve", "--model", model, *more, "--port", "0"],
            env=environment(home, settings, extra_environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.log = Log(self.process.stderr)
        self._seen: dict[int, psutil.Process] = {}
        self.url = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_listening(self) -> "Daemon":
        self.url = str(self.log.wait_for("listening")["url"])
        return self

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> "Daemon":
        self.wait_listening()
        self.log.wait_for("ready", timeout_s)
        return self

    def client(self, key: str | None = None, timeout_s: float = 60.0) -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # Nothing is encrypted: `verify` only saves the loading of certificates, which takes longer than a request.
        return httpx.Client(base_url=self.url, timeout=timeout_s, headers=headers, trust_env=False, verify=False)

    def async_client(self, timeout_s: float = 60.0, connections: int = 256) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        return httpx.AsyncClient(base_url=self.url, timeout=timeout_s, limits=limits, trust_env=False, verify=False)

    def status(self, key: str | None = None) -> dict[str, Any]:
        with self.client(key) as client:
            response = client.get("/admin/v1/status")
        assert response.status_code == 200, response.text
        snapshot: dict[str, Any] = response.json()
        return snapshot

    def engine(self) -> dict[str, Any]:
        """The one model's part of the status."""
        engine: dict[str, Any] = self.status()["models"][self.model_name]
        return engine

    def worker_pid(self) -> int:
        pid = self.engine()["worker_pid"]
        assert isinstance(pid, int)
        self.processes()
        return pid

    def is_idle(self) -> bool:
        engine = self.engine()
        return bool(
            engine["state"] == "ready"
            and engine["requests_in_flight"] == 0
            and engine["slots"]["used"] == 0
            and engine["waiting"] == 0
        )

    def wait_idle(self, timeout_s: float = 15.0) -> None:
        wait_until(self.is_idle, f"the engine has no request left: {self.engine()}", timeout_s)

    def processes(self) -> list[psutil.Process]:
        """What the daemon has started and still lives. Remembered, to see later that nothing outlived it."""
        try:
            living = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            living = []
        self._seen.update({process.pid: process for process in living})
        return living

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - /proc is no ordinary folder: entries vanish

    def signal(self, number: signal.Signals) -> None:
        self.processes()
        self.process.send_signal(number)

    def wait_exit(self, timeout_s: float = 30.0) -> int:
        code = self.process.wait(timeout=timeout_s)
        self.log.join()
        return code

    def terminate(self, timeout_s: float = 30.0) -> int:
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait_exit(timeout_s)

    def leaked(self, timeout_s: float = 5.0) -> list[str]:
        """Processes of this daemon that live on after its end."""
        _, alive = psutil.wait_procs(list(self._seen.values()), timeout=timeout_s)
        described = []
        for process in alive:
            with suppress(psutil.Error):
                described.append(f"{process.pid} {process.cmdline()}")
        return described

    def close(self) -> None:
        """Ends it and all that it started. Raises when it had to be killed, or left something behind."""
        problems = []
        try:
            self.terminate()
        except subprocess.TimeoutExpired:
            problems.append("it did not end within 30 s of SIGTERM")
            self.process.kill()
            self.wait_exit()
        if leaked := self.leaked():
            problems.append(f"it left processes behind: {leaked}")
            for process in self._seen.values():
                with suppress(psutil.Error):
                    process.kill()
        assert not problems, "; ".join(problems) + "\n" + "\n".join(self.log.lines[-50:])


def chat_body(text: str = "Say hello.", **fields: object) -> dict[str, Any]:
    """A greedy, short chat request; `fields` are added or override."""
    messages = [{"role": "user", "content": text}]
    return {"model": "auto", "messages": messages, "max_tokens": 4, "temperature": 0, **fields}


LONG_STREAM: Mapping[str, Any] = {"stream": True, "max_tokens": 4000, "ignore_eos": True}
"""Fields of a request that streams for longer than any test: it ends because something happens to it."""


def data_lines(response: httpx.Response) -> Iterator[str]:
    """The data of server-sent events."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


async def data_lines_async(response: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: ")]


def post_raw(daemon: Daemon, body: Mapping[str, Any], path: str = "/v1/chat/completions") -> socket.socket:
    """A connection on which a request was sent and no answer read; closing it is the client going away."""
    content = json.dumps(body).encode()
    url = httpx.URL(daemon.url)
    assert url.port is not None
    connection = socket.create_connection((url.host, url.port), timeout=20)
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nhost: {url.host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n".encode()
        + content
    )
    return connection


class BackgroundStream:
    """A streamed request that a thread reads to its end, so that a test can act while it runs."""

    def __init__(self, daemon: Daemon, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.status: int | None = None
        self.failure: Exception | None = None
        self.data: list[str] = []
        self.text = ""
        self._first: queue.Queue[None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(daemon, body, headers), daemon=True)
        self._thread.start()

    def _run(self, daemon: Daemon, body: dict[str, Any], headers: Mapping[str, str] | None) -> None:
        try:
            with (
                daemon.client() as client,
                client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response,
            ):
                self.status = response.status_code
                if response.status_code != 200:
                    self.text = response.read().decode()
                    return
                for data in data_lines(response):
                    self.data.append(data)
                    if '"content":' in data:
                        self._first.put(None)
        except Exception as error:  # noqa: BLE001 - the test looks at whatever it was
            self.failure = error
        finally:
            self._first.put(None)

    def wait_first_token(self, timeout_s: float = 30.0) -> None:
        self._first.get(timeout=timeout_s)
        assert self.data, f"the stream gave no token: {self.status} {self.text} {self.failure!r}"

    def wait_end(self, timeout_s: float = 30.0) -> "BackgroundStream":
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"the stream did not end within {timeout_s:g} s"
        return self

    def error(self) -> dict[str, Any]:
        """The error that ended it, in the body or as the last event."""
        assert self.failure is None, f"the connection broke: {self.failure!r}"
        said = self.data[-1] if self.status == 200 else self.text
        error: dict[str, Any] = json.loads(said)["error"]
        return error
