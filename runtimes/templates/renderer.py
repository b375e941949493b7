"""The renderer process: `python -m runtimes.templates.renderer`, fed by `client` through its standard input.

It holds the one compiled template and answers one frame at a time. Chat templates are untrusted code: jinja2's
sandbox keeps them from Python, and this process keeps the rest out of reach. It opens no file (its descriptor limit
is what it starts with), starts no process, and has no environment but what it needs to start; its memory is capped,
and a timer ends it when it works longer than its parent allows, in case the parent is gone. It ends when the other
end of its socket closes.

Everything is imported before the limits are set: afterwards no module could be read.
"""

import contextlib
import os
import resource
import signal
import sys
import time
from datetime import datetime

from runtimes.templates.chat_template import ChatTemplate
from runtimes.templates.frames import (
    HEADER,
    READY,
    Load,
    answer_to_wire,
    load_from_wire,
    pack,
    render_from_wire,
    unpack,
)
from runtimes.templates.result import Rendered, TemplateError

SOCKET = 0  # standard input is one end of a socket pair
MEMORY_BYTES = 512 * 2**20  # address space; an idle renderer has about 30 MB, a prompt of 1 MB takes 10 MB
GRACE_S = 1.0  # the parent kills first; this is for when it cannot


def main() -> None:
    for ended_by_parent in (signal.SIGINT, signal.SIGTERM):  # a drain still needs templates
        signal.signal(ended_by_parent, signal.SIG_IGN)
    time.tzset()  # reads the zone file, which `strftime_now` could not do later
    _confine()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve()


def _confine() -> None:
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 3),  # 0 to 2 are open
        (resource.RLIMIT_AS, MEMORY_BYTES),
    ):
        resource.setrlimit(kind, (limit, limit))


def _serve() -> None:
    _write(READY)
    worker = _Worker()
    while True:
        body = _read(HEADER.unpack(_read(HEADER.size))[0])
        try:
            answer = worker.answer(unpack(body))
            frame = pack(answer_to_wire(answer)) if answer else pack(None)
        except MemoryError:
            _write({"out_of_memory": MEMORY_BYTES})
            sys.exit()  # its heap is full of holes: the next render gets a fresh process
        _send(frame)


class _Worker:
    _template: ChatTemplate
    _time_limit_s: float

    def answer(self, question: dict[str, list[object]]) -> Rendered | TemplateError | None:
        try:
            if "load" in question:
                self._load(load_from_wire(question["load"]))
                return None
            prompt, add_generation_prompt = render_from_wire(question["render"])
            # Half of the time is for finding a form, so that a slow search ends in an error that says why.
            stop_s = time.monotonic() + self._time_limit_s / 2
            with _timer(self._time_limit_s):
                return self._template.render(
                    prompt,
                    add_generation_prompt=add_generation_prompt,
                    give_up=lambda: time.monotonic() > stop_s,
                )
        except TemplateError as error:
            return error

    def _load(self, load: Load) -> None:
        self._time_limit_s = load.time_limit_s
        with _timer(load.time_limit_s):
            self._template = ChatTemplate(
                load.template,
                load.special_tokens,
                load.control_tokens,
                output_limit_bytes=load.output_limit_bytes,
                now=lambda: datetime.now().astimezone(),
            )


@contextlib.contextmanager
def _timer(limit_s: float):  # type: ignore[no-untyped-def]
    signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)  # SIGALRM's default action ends the process, in C too
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _read(n_bytes: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < n_bytes:
        chunk = os.read(SOCKET, min(n_bytes - len(chunks), 2**20))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)


def _write(value: object) -> None:
    _send(pack(value))


def _send(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(SOCKET, view) :]


if __name__ == "__main__":
    main()
