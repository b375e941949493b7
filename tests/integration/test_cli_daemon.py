"""`appliance status` and `appliance chat` against a daemon: here a stand-in that answers what a test tells it to."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

SNAPSHOT = {
    "version": "0.1.0",
    "uptime_s": 93784.5,
    "ready": True,
    "problem": None,
    "requests": {"finished": 12345, "failed": 0},
    "models": {
        "smol\x1b[31m": {
            "state": "ready",
            "worker_pid": 12345,
            "load_s": 1.5,
            "slots": {"used": 3, "total": 16},
            "model": {"size_bytes": 98_000_000, "share": 0.25},
            "step_ms": 12.345,
        }
    },
}


class Daemon:
    """Answers each request with `reply`; keeps what was asked."""

    def __init__(self) -> None:
        self.reply: Callable[[BaseHTTPRequestHandler, Any], None] = lambda handler, _: send(handler, 200, SNAPSHOT)
        self.asked: list[Any] = []
        self.keys: list[str | None] = []
        self.hold = threading.Event()  # set: whoever waits for it may go on
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                daemon.answer(self, None)

            def do_POST(self) -> None:
                daemon.answer(self, json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        self.asked.append(body)
        self.keys.append(handler.headers["authorization"])
        try:
            self.reply(handler, body)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True  # the client went away, as some tests want it to


def send(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def stream(handler: BaseHTTPRequestHandler, *events: Any) -> None:
    """Server-sent events; the connection's end is the stream's."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("connection", "close")
    handler.end_headers()
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        handler.wfile.write(f": a comment\r\n\r\ndata: {data}\r\n\r\n".encode())
        handler.wfile.flush()
    handler.close_connection = True


def piece(text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}]}


def saying(*pieces: str, finish: str = "stop") -> Callable[[BaseHTTPRequestHandler, Any], None]:
    events = (piece(""), *map(piece, pieces), piece(finish=finish), {"choices": [], "usage": {}}, "[DONE]")
    return lambda handler, _: stream(handler, *events)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    thread = threading.Thread(target=daemon.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield daemon
    daemon.hold.set()
    daemon.server.shutdown()
    thread.join()
    daemon.server.server_close()


def environment(home: Path, **environ: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("APPLIANCE_")}
    return {**inherited, "HOME": str(home), "TERM": "dumb", **environ}


def appliance(
    home: Path, daemon: Daemon, *arguments: str, stdin: bytes = b"", **environ: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "appliance", "--url", daemon.url, *arguments],
        env=environment(home, **environ),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


class Terminal:
    """The command on a terminal, as a person has it."""

    def __init__(self, home: Path, daemon: Daemon, *arguments: str) -> None:
        self.controller, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "appliance", "--url", daemon.url, *arguments],
            env=environment(home),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.controller)

    def type(self, text: str) -> None:
        os.write(self.controller, text.encode())

    def wait_for(self, text: str) -> str:
        """What was shown until and with `text`."""
        while text not in self.seen:
            readable, _, _ = select.select([self.controller], [], [], 30)
            assert readable, f"{text!r} was not shown; shown was {self.seen!r}"
            self.seen += os.read(self.controller, 4096).decode()
        before, _, self.seen = self.seen.partition(text)
        return before + text


def test_status_reads_well_and_leaves_nothing_out(tmp_path: Path, daemon: Daemon) -> None:
    told = appliance(tmp_path, daemon, "status")
    assert told.stderr == b""
    assert told.stdout.decode() == (
        "version  0.1.0\n"
        "uptime   1 d 2 h\n"
        "ready    yes\n"
        "\n"
        "requests\n"
        "  finished  12,345\n"
        "  failed    0\n"
        "\n"
        "models\n"
        "  smol [31m\n"
        "    state       ready\n"
        "    worker pid  12345\n"
        "    load        1.50 s\n"
        "    slots       3 of 16\n"
        "    step        12.3 ms\n"
        "    model\n"
        "      size   98 MB\n"
        "      share  0.25\n"
    )


def test_status_as_json_is_the_snapshot_itself(tmp_path: Path, daemon: Daemon) -> None:
    told = appliance(tmp_path, daemon, "status", "--json")
    assert json.loads(told.stdout) == SNAPSHOT


def test_the_key_comes_from_the_environment(tmp_path: Path, daemon: Daemon) -> None:
    appliance(tmp_path, daemon, "status")
    appliance(tmp_path, daemon, "status", APPLIANCE_API_KEY="sk-appl-abc")
    assert daemon.keys == [None, "Bearer sk-appl-abc"]


def test_a_refused_key_is_told_with_what_to_do(tmp_path: Path, daemon: Daemon) -> None:
    body = {"error": {"message": "A key is needed.", "code": "invalid_api_key"}}
    daemon.reply = lambda handler, _: send(handler, 401, body)
    for command in (["status"], ["chat", "hi"]):
        told = appliance(tmp_path, daemon, *command)
        assert told.returncode == 1
        assert told.stderr == b"appliance: A key is needed. Put a key into $APPLIANCE_API_KEY.\n"


@pytest.mark.parametrize("status", [200, 404])
def test_something_else_that_answers_is_not_taken_for_a_daemon(tmp_path: Path, daemon: Daemon, status: int) -> None:
    daemon.reply = lambda handler, _: send(handler, status, "<html>")
    told = appliance(tmp_path, daemon, "status")
    assert told.returncode == 1
    assert told.stderr.startswith(b"appliance: ")
    assert told.stderr.count(b"\n") == 1


def test_a_question_is_answered_on_standard_output(tmp_path: Path, daemon: Daemon) -> None:
    daemon.reply = saying("Hé", "llo\x1b[31m", "!")
    told = appliance(tmp_path, daemon, "chat", "hi", "--model", "local", "--system", "Be kind.", "--max-tokens", "9")
    assert told.stderr == b""
    assert told.stdout.decode() == "Héllo\x1b[31m!\n"
    assert daemon.asked == [
        {
            "model": "local",
            "max_tokens": 9,
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
            "stream": True,
        }
    ]


def test_what_is_piped_in_is_added_to_the_question(tmp_path: Path, daemon: Daemon) -> None:
    daemon.reply = saying("ok")
    appliance(tmp_path, daemon, "chat", stdin=b"only piped\n")
    appliance(tmp_path, daemon, "chat", "Sum up:", stdin="naïve \udcff".encode(errors="surrogateescape"))
    assert [body["messages"][0]["content"] for body in daemon.asked] == ["only piped", "Sum up:\n\nnaïve \ufffd"]


def test_an_answer_that_was_cut_says_so_beside_the_answer(tmp_path: Path, daemon: Daemon) -> None:
    daemon.reply = saying("and so", finish="length")
    told = appliance(tmp_path, daemon, "chat", "hi")
    assert told.returncode == 0
    assert told.stdout == b"and so\n"
    assert b"cut" in told.stderr


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([piece("so far"), {"error": {"message": "The engine stopped."}}], b"The engine stopped."),
        ([piece("so far")], b"broke off"),
        ([piece("so far"), "{"], b"no JSON"),
    ],
)
def test_an_answer_that_ends_in_an_error_is_a_failure(
    tmp_path: Path, daemon: Daemon, events: list[Any], message: bytes
) -> None:
    daemon.reply = lambda handler, _: stream(handler, *events)
    told = appliance(tmp_path, daemon, "chat", "hi")
    assert told.returncode == 1
    assert told.stdout.startswith(b"so far")
    assert message in told.stderr
    assert b"Traceback" not in told.stderr


def test_an_interrupt_ends_the_command_quietly(tmp_path: Path, daemon: Daemon) -> None:
    def begin(handler: BaseHTTPRequestHandler, _: Any) -> None:
        stream(handler, piece("begun"))
        daemon.hold.wait(30)

    daemon.reply = begin
    command = [sys.executable, "-m", "appliance", "--url", daemon.url, "chat", "hi"]
    with subprocess.Popen(
        command,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"begun"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_a_conversation_remembers_what_was_said(tmp_path: Path, daemon: Daemon) -> None:
    daemon.reply = saying("First ", "answer")
    with Terminal(tmp_path, daemon, "chat", "--system", "Be brief.") as terminal:
        terminal.wait_for("> ")
        terminal.type("one\n")
        terminal.wait_for("First answer")
        terminal.wait_for("> ")
        terminal.type("\n")  # nothing is asked
        terminal.wait_for("> ")
        terminal.type("two\n")
        terminal.wait_for("First answer")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.process.wait(30) == 0
    roles = [[message["role"] for message in body["messages"]] for body in daemon.asked]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    assert daemon.asked[1]["messages"][2]["content"] == "First answer"


def test_a_conversation_goes_on_after_an_interrupted_and_a_failed_answer(tmp_path: Path, daemon: Daemon) -> None:
    def first(handler: BaseHTTPRequestHandler, _: Any) -> None:
        stream(handler, piece("on and on"))
        daemon.hold.wait(30)

    daemon.reply = first
    with Terminal(tmp_path, daemon, "chat") as terminal:
        terminal.wait_for("> ")
        terminal.type("one\n")
        terminal.wait_for("on and on")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("(interrupted)")
        daemon.reply = lambda handler, _: send(handler, 400, {"error": {"message": "Too long."}})
        terminal.wait_for("> ")
        terminal.type("two\n")
        terminal.wait_for("Too long.")
        daemon.reply = saying("fine")
        terminal.wait_for("> ")
        terminal.type("three\n")
        terminal.wait_for("fine")
    assert [message["content"] for message in daemon.asked[-1]["messages"]] == ["three"]


def test_a_model_cannot_steer_the_terminal(tmp_path: Path, daemon: Daemon) -> None:
    daemon.reply = saying("red: \x1b[31m\x9b2J\x07 end")
    with Terminal(tmp_path, daemon, "chat", "hi") as terminal:
        shown = terminal.wait_for("end")
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\x07" not in shown
