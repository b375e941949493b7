"""The renderer process: `python -m runtimes.templates.renderer`, fed by `client` through its standard input.

It holds the one compiled template and answers one frame at a time. Chat templates are untrusted code: jinja2's
sandbox keeps them from Python, and this process keeps the rest out of reach. It opens no file (its descriptor limit
is what it starts with), starts no process, and has no environment but what it needs to start; its memory is capped,
and a timer ends it when it works longer than its parent allows, in case the parent is gone. It ends when the other
end of its socket closes. (Linux can end a child with its parent, but means the thread that started it, which may be
gone long before.)

Everything is imported before the limits are set: afterwards no module could be read. jinja2 and the codecs import
some of theirs at first use, so a template that uses them is rendered first.
"""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from appliance.protocol import ChatPrompt, Message
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
LAZY_IMPORTS = r"{{ '\n' | wordwrap | urlize | pprint | striptags }}{{ lipsum(1) }}{{ strftime_now('%Z') }}"
GRACE_S = 1.0  # the parent kills first; this is for when it cannot


def main() -> None:
    for ended_by_parent in (signal.SIGINT, signal.SIGTERM):  # a drain still needs templates
        signal.signal(ended_by_parent, signal.SIG_IGN)
    time.tzset()  # reads the zone file, which `strftime_now` could not do later
    _warm_up()
    _confine()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve()


def _warm_up() -> None:
    for source in (LAZY_IMPORTS, "{% if %}"):
        with contextlib.suppress(TemplateError):
            template = ChatTemplate(source, {}, (), output_limit_bytes=2**20, now=datetime.now)
            template.render(ChatPrompt((Message("user"),)), add_generation_prompt=True)


def _confine() -> None:
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 3),  # 0 to 2 are open
        (resource.RLIMIT_AS, MEMORY_BYTES),
    ):
        allowed = resource.getrlimit(kind)[1]
        lowest = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed)
        resource.setrlimit(kind, (lowest, lowest))


def _serve() -> None:
    _send(pack(READY))
    worker = _Worker()
    while True:
        answer = _next_answer(worker)
        if answer is None:  # its heap is full of holes: the next render gets a fresh process
            _send(pack({"out_of_memory": MEMORY_BYTES}))
            return
        _send(answer)


def _next_answer(worker: "_Worker") -> bytes | None:
    """The frame that answers the next one, or None when memory ran out."""
    try:
        (length,) = HEADER.unpack(_read(HEADER.size))
        return pack(worker.answer(_read(length)))
    except MemoryError:
        return None


class _Worker:
    _template: ChatTemplate
    _time_limit_s: float

    def answer(self, body: bytes) -> dict[str, Any] | None:
        try:
            question = unpack(body)
            if "load" in question:
                self._load(load_from_wire(question["load"]))
                return None
            return answer_to_wire(self._render(*render_from_wire(question["render"])))
        except TemplateError as error:
            return answer_to_wire(error)
        except (ValueError, RecursionError):  # all else in a frame is of our making
            where = "chat_template_kwargs"
            return answer_to_wire(TemplateError(f"{where} holds something that a template cannot take", where))

    def _render(self, prompt: ChatPrompt, add_generation_prompt: bool) -> Rendered:  # noqa: FBT001 - as it came
        # Half of the time is for finding a form, so that a slow search ends in an error that says why.
        stop_s = time.monotonic() + self._time_limit_s / 2
        with _timer(self._time_limit_s):
            return self._template.render(
                prompt, add_generation_prompt=add_generation_prompt, give_up=lambda: time.monotonic() > stop_s
            )

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
def _timer(limit_s: float) -> Iterator[None]:
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


def _send(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(SOCKET, view) :]


if __name__ == "__main__":
    main()
