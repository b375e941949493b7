"""The renderer process: `python -m runtimes.templates.renderer`, fed by `client` through its standard input.

It holds the one compiled template and answers one frame at a time. Chat templates are untrusted code: jinja2's
sandbox keeps them from Python, and this process keeps the rest out of reach (`runtimes.sandbox.child`). A timer ends it
when it works longer than its parent allows, in case the parent is gone.

jinja2 and the codecs import some modules at first use, so a template that uses them is rendered before the limits.
"""

import contextlib
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from appliance.protocol import ChatPrompt, Message
from runtimes.sandbox.child import send, serve
from runtimes.sandbox.frames import pack, unpack
from runtimes.templates.chat_template import ChatTemplate
from runtimes.templates.frames import Load, answer_to_wire, load_from_wire, render_from_wire
from runtimes.templates.result import Rendered, TemplateError

MEMORY_BYTES = 512 * 2**20  # address space; an idle renderer has about 30 MB, a prompt of 1 MB takes 10 MB
LAZY_IMPORTS = r"{{ '\n' | wordwrap | urlize | pprint | striptags }}{{ lipsum(1) }}{{ strftime_now('%Z') }}"
GRACE_S = 1.0  # the parent kills first; this is for when it cannot


def main() -> None:
    time.tzset()  # reads the zone file, which `strftime_now` could not do later
    _warm_up()
    worker = _Worker()
    try:
        serve(lambda body: pack(worker.answer(body)), MEMORY_BYTES)
    except MemoryError:  # its heap is full of holes: the next render gets a fresh process
        send(pack({"out_of_memory": MEMORY_BYTES}))


def _warm_up() -> None:
    for source in (LAZY_IMPORTS, "{% if %}"):
        with contextlib.suppress(TemplateError):
            template = ChatTemplate(source, {}, (), output_limit_bytes=2**20, now=datetime.now)
            template.render(ChatPrompt((Message("user"),)), add_generation_prompt=True)


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


if __name__ == "__main__":
    main()
