"""Renders prompts through a process of its own, so that a template that loops or eats memory stops nothing else.

A template is code that came with a model file. It runs in a child (`renderer`) under a time and a memory cap; a child
that breaks a cap is killed and replaced, and only the render that broke it fails. Only a template that is known to
be harmless (`known`) renders short prompts here.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from appliance.protocol import ChatPrompt, Message, TextPart
from runtimes.sandbox.frames import pack
from runtimes.sandbox.process import SandboxProcess
from runtimes.templates.chat_template import ChatTemplate
from runtimes.templates.frames import Load, answer_from_wire, load_to_wire, render_to_wire
from runtimes.templates.known import is_known, is_short
from runtimes.templates.neutral import NeutralTemplate, neutral_template
from runtimes.templates.result import Rendered, RendererDied, Segment, TemplateError, TemplateTimeout

RENDERER = "runtimes.templates.renderer"
TIME_LIMIT_S = 2.0  # an ordinary prompt takes well under 0.01 s
OUTPUT_LIMIT_BYTES = 16 * 2**20  # four times what a context of a million tokens takes
QUEUE_LIMIT_S = 30.0  # for the renders ahead of one; each takes TIME_LIMIT_S at the most
GREETING = ChatPrompt((Message("user", (TextPart("hello"),)),))
GARBAGE = "the chat template's process answered with garbage; try again"
FRAME_LIMIT_FACTOR = 4  # segments of a prompt that is all control tokens, to the bytes of its text

__all__ = ["Rendered", "RendererDied", "Segment", "TemplateError", "TemplateRenderer", "TemplateTimeout"]


class TemplateRenderer:
    """Thread-safe; renders queue for the one process.

    `template` is what the model brings, None when it brings none. `special_tokens` are the variables that templates
    print (`bos_token`, `eos_token`, ...). `control_tokens` are the texts of every token that must never come out of a
    client's text: the vocabulary's tokens of the kinds "control" and "unknown".

    A template that is missing or does not compile is replaced with a neutral one, as llama.cpp does: the model can
    be talked to, and `problem` and `neutral`, as well as the form of each prompt, say so.
    """

    problem: str | None  # why the model's own template is not used; None also when it has none
    neutral: str | None  # the name of the template that is used in its place
    stop: tuple[str, ...]  # strings that end an answer besides the model's own end tokens

    def __init__(
        self,
        template: str | None,
        special_tokens: Mapping[str, str],
        *,
        control_tokens: Collection[str],
        time_limit_s: float = TIME_LIMIT_S,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> None:
        """Starts the process and waits until the template is compiled. Raises OSError or `RendererDied`."""
        self._time_limit_s = time_limit_s
        self._reply_limit_bytes = output_limit_bytes * FRAME_LIMIT_FACTOR + 2**16
        self._lock = threading.Lock()
        self._closed = False
        self._loaded = False
        self.problem = self.neutral = None
        self.stop = ()

        def load_frame(source: str) -> bytes:
            control = tuple(sorted(control_tokens))
            return pack(load_to_wire(Load(source, special_tokens, control, time_limit_s, output_limit_bytes)))

        self._process: SandboxProcess | None = SandboxProcess(RENDERER)
        self._known: ChatTemplate | None = None
        try:
            if template is not None:
                self.problem = self._first_load(template, load_frame)
                if self.problem is None and is_known(template):
                    self._known = ChatTemplate(
                        template, special_tokens, control_tokens, output_limit_bytes=output_limit_bytes, now=_now
                    )
            if template is None or self.problem:
                self._use_neutral(neutral_template(control_tokens, special_tokens), load_frame)
        except BaseException:
            self.close()
            raise

    def render(self, prompt: ChatPrompt, *, add_generation_prompt: bool = True) -> Rendered:
        """The prompt that the template makes of the messages. Blocks; call it from a thread.

        Raises `TemplateError` for a conversation that the template cannot take, `TemplateTimeout` when it ran too
        long, `RendererDied` when it took its process along or used up its memory.
        """
        if self._known is not None and is_short(prompt):
            return self._known.render(prompt, add_generation_prompt=add_generation_prompt)
        frame = _render_frame(prompt, add_generation_prompt=add_generation_prompt)
        if not self._lock.acquire(timeout=QUEUE_LIMIT_S):
            raise TemplateTimeout("too many prompts wait for the chat template; send fewer at once")
        try:
            rendered = self._answer(frame)
        finally:
            self._lock.release()
        if self.neutral is None:
            return rendered
        form = self.neutral if rendered.form == "as-given" else f"{self.neutral}+{rendered.form}"
        return Rendered(rendered.segments, form)

    def close(self) -> None:
        """Ends the process; a render under way fails with `RendererDied`."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            if self._process is not None:
                self._process.close()
                self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _first_load(self, template: str, load_frame: Callable[[str], bytes]) -> str | None:
        """Why the template cannot be used, or None. It is tried on a greeting: one that breaks a cap at that is no
        template; one that refuses it may want another kind of conversation."""
        try:
            self._load_frame = load_frame(template)
            self._load()
            self._answer(_render_frame(GREETING, add_generation_prompt=True))
        except UnicodeEncodeError:
            return "the chat template is not valid Unicode"
        except EOFError:
            return "the chat template's process dies while it compiles it"
        except TemplateTimeout:
            return f"the chat template takes longer than {self._time_limit_s:g} s for a greeting"
        except RendererDied:
            return "the chat template uses up its memory on a greeting"
        except TemplateError as error:
            return None if self._loaded else error.message
        return None

    def _use_neutral(self, neutral: NeutralTemplate, load_frame: Callable[[str], bytes]) -> None:
        self.neutral = neutral.name
        self.stop = neutral.stop
        self._load_frame = load_frame(neutral.source)
        try:
            self._load()
        except EOFError:
            raise RendererDied("the process for chat templates does not start; see what it wrote to the log") from None

    def _answer(self, frame: bytes) -> Rendered:
        for _ in range(2):  # a process that was killed while it was idle is not this prompt's fault
            if self._closed:
                break
            with suppress(EOFError):
                if not self._loaded:
                    self._load()
                return self._understood(self._ask(frame))
        if self._closed:
            raise RendererDied("the model is being unloaded; try again")
        raise RendererDied("the chat template's process dies of this prompt; change the messages", "messages")

    def _load(self) -> None:
        answer = self._ask(self._load_frame)
        if answer is not None:
            self._understood(answer)  # raises what is wrong with the template
        self._loaded = True

    def _understood(self, answer: Any) -> Rendered:
        try:
            return answer_from_wire(answer)
        except (KeyError, TypeError, ValueError):
            self._replace()
            raise RendererDied(GARBAGE) from None

    def _ask(self, frame: bytes) -> Any:
        """One question to the process. Raises EOFError when it is gone; whatever goes wrong, a new one is started."""
        if self._process is None:
            self._process = _started()
        try:
            answer = self._process.ask(frame, self._time_limit_s, self._reply_limit_bytes)
        except TimeoutError:
            self._replace()
            raise TemplateTimeout(
                f"the chat template took longer than {self._time_limit_s:g} s; send fewer or shorter messages",
                "messages",
            ) from None
        except ValueError:
            self._replace()
            raise RendererDied(GARBAGE) from None
        except EOFError:
            self._replace()
            raise
        if isinstance(answer, dict) and "out_of_memory" in answer:
            self._replace()
            raise RendererDied("the chat template used up its memory; send fewer or shorter messages", "messages")
        return answer

    def _replace(self) -> None:
        """Ends the process and starts the next, which gets up while nobody waits for it."""
        self._loaded = False
        if self._process is not None:
            self._process.close()
            self._process = None
        if not self._closed:
            with suppress(RendererDied):  # the next render tries again
                self._process = _started()


def _now() -> datetime:
    return datetime.now().astimezone()


def _started() -> SandboxProcess:
    try:
        return SandboxProcess(RENDERER)
    except OSError as error:
        raise RendererDied(f"the chat template's process cannot be started: {error}; try again") from error


def _render_frame(prompt: ChatPrompt, *, add_generation_prompt: bool) -> bytes:
    try:
        return pack(render_to_wire(prompt, add_generation_prompt=add_generation_prompt))
    except (ValueError, OverflowError, TypeError) as error:
        for index, message in enumerate(prompt.messages):
            try:
                pack(render_to_wire(ChatPrompt((message,)), add_generation_prompt=add_generation_prompt))
            except UnicodeEncodeError:
                where = f"messages[{index}]"
                raise TemplateError(f"{where} holds half of a surrogate pair; send valid Unicode", where) from None
        where = "chat_template_kwargs"
        raise TemplateError(f"{where} holds something that a template cannot take: {error}", where) from None
