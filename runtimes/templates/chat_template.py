"""One compiled chat template and the search for a form of the conversation that it renders whole.

A rendering counts when the template raised no error and every message arrived in the text: templates that drop a late
system message, or what an assistant said beside a tool call, do it without a word. When no form is kept whole the
request is refused, by the message that is lost. It is not put into some other format instead: a model answers badly
outside the format it was trained on, and nobody would know why.

This module runs untrusted code. Use it in the renderer process, or with templates of your own.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any

from appliance.protocol import ChatPrompt
from runtimes.dialects import dialect_of
from runtimes.templates.control_tokens import ControlTokens
from runtimes.templates.environment import RefusedError, build_environment
from runtimes.templates.normalize import Form, forms
from runtimes.templates.provenance import plain, runs_of, splice
from runtimes.templates.result import Rendered, TemplateError
from runtimes.templates.turns import conversation

MESSAGE_LIMIT = 500  # characters of a template's own error that go into ours


class _OutputTooLargeError(Exception):
    pass


class ChatTemplate:
    """Raises `TemplateError` when the source does not compile."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        control_tokens: Collection[str],
        *,
        output_limit_bytes: int,
        now: Callable[[], datetime],
    ) -> None:
        self._special_tokens = dict(special_tokens)
        self._control_tokens = ControlTokens({*control_tokens, *special_tokens.values()})
        self._knows_developer = "developer" in source
        self._call_form = dialect_of(source).calls
        self._output_limit_bytes = output_limit_bytes
        environment = build_environment(now)
        self._reserved = {"messages", "add_generation_prompt", *special_tokens, *environment.globals}
        try:
            self._template = environment.from_string(source)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a hostile source can make the compiler raise anything
            raise TemplateError(f"the chat template does not compile: {_describe(error)}") from None

    def render(
        self, prompt: ChatPrompt, *, add_generation_prompt: bool, give_up: Callable[[], bool] = lambda: False
    ) -> Rendered:
        """The prompt, in the first form that keeps every message; `give_up` is asked between forms.

        Raises `TemplateError`, and `MemoryError` when the template used up what the process may have.
        """
        try:
            return self._search(prompt, add_generation_prompt=add_generation_prompt, give_up=give_up)
        except (TemplateError, MemoryError):
            raise
        except _OutputTooLargeError:
            raise TemplateError(
                f"the model's chat template writes more than {self._output_limit_bytes} bytes for these messages",
                "messages",
            ) from None
        except RecursionError:
            raise TemplateError("the request is nested too deep for a chat template; make it flatter") from None

    def _search(self, prompt: ChatPrompt, *, add_generation_prompt: bool, give_up: Callable[[], bool]) -> Rendered:
        talk = conversation(prompt.messages)
        for key in prompt.template_kwargs:
            if key in self._reserved:
                where = f"chat_template_kwargs.{key}"
                raise TemplateError(f"{where} cannot be set: the server provides it", where)
        given = {key: talk.trace_all(value) for key, value in prompt.template_kwargs.items()}
        variables = {"tools": None, "documents": None, **self._special_tokens, **given}
        variables["add_generation_prompt"] = add_generation_prompt
        failure = TemplateError("the chat template cannot be used")
        for form in forms(talk.turns, knows_developer=self._knows_developer, call_form=self._call_form):
            try:
                text = self._run({**variables, "messages": form.messages})
            except (MemoryError, _OutputTooLargeError):
                raise
            except Exception as error:  # noqa: BLE001 - an untrusted template can raise anything
                failed = self._refusal(error, form)
            else:
                lost = talk.missing(runs_of(text))
                if lost is None:
                    return Rendered(self._control_tokens.segments(text), form.name)
                failed = _loss(prompt, lost)
            failure = failed if form.is_plain else failure
            if give_up():
                break
        raise failure

    def _run(self, variables: dict[str, Any]) -> str:
        """One rendering, cut off when it grows too long."""
        context = self._template.new_context(variables)
        text = splice(self._limited(self._template.root_render_func(context)))
        if len(plain(text).encode()) > self._output_limit_bytes:
            raise _OutputTooLargeError
        return text

    def _limited(self, pieces: Iterator[str]) -> Iterator[str]:
        length = 0
        for piece in pieces:
            length += len(piece)
            if length > self._output_limit_bytes:  # each character is a byte at least
                raise _OutputTooLargeError
            yield piece

    def _refusal(self, error: Exception, form: Form) -> TemplateError:
        index = _message_in_hand(error.__traceback__, form.messages)
        param = None if index is None else f"messages[{form.origins[index][0]}]"
        return TemplateError(
            f"this model's chat template refuses the conversation: {_describe(error)}", param or "messages"
        )


def _loss(prompt: ChatPrompt, index: int) -> TemplateError:
    where = f"messages[{index}]"
    role = prompt.messages[index].role
    return TemplateError(
        f"this model's chat template leaves out {where}, whose role is {role!r}; put its text into a user message",
        where,
    )


def _describe(error: BaseException) -> str:
    """What an untrusted template's error says, short and encodable."""
    text = type(error).__name__
    with suppress(Exception):  # even to print it may fail
        said = plain(str(error))[:MESSAGE_LIMIT].encode(errors="replace").decode()
        text = said if isinstance(error, RefusedError) else f"{text}: {said}"
    return text


def _message_in_hand(traceback: TracebackType | None, messages: Sequence[object]) -> int | None:
    """Which message the template's innermost frame was at: compiled loops keep it in a local variable."""
    at = {id(message): index for index, message in enumerate(messages)}
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == "<template>":
            held = [at[id(value)] for value in traceback.tb_frame.f_locals.values() if id(value) in at]
            found = held[-1] if held else found
        traceback = traceback.tb_next
    return found
