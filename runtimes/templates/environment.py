"""The Jinja environment that chat templates expect, closed to everything else.

What a template finds here is what Hugging Face's `apply_chat_template` gives it, and so what model authors test
against: trimmed blocks, `break` and `continue`, the `generation` tag, a `tojson` that keeps non-ASCII text,
`raise_exception` and `strftime_now`. Templates come with model files, so they are untrusted: jinja2's immutable
sandbox keeps them from attributes and mutation, there is no loader to include or import from, and time and memory are
capped by the process that this runs in (`renderer`).

One thing is added: every way by which a value can become text carries the origin of the characters along
(`provenance`). This module knows no messages.
"""

import functools
import html
import json
import string
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import jinja2.ext
from jinja2 import TemplateError, Undefined, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtimes.templates.provenance import Traced, holds_client_text, of_template, opaque, plain, splice

# Filters that hand on one of the values they were given. All others that return a string have made a new one.
SELECTORS = frozenset({"attr", "d", "default", "first", "last", "max", "min", "random"})


class RefusedError(TemplateError):
    """The template called `raise_exception`."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks what an assistant wrote, for training; here it is only a scope."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance variable

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _CodeGenerator(CodeGenerator):
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - jinja2's naming
        """`a ~ b`, which jinja2 would join into a string without origins."""
        self.write("environment.concat(map(environment.finalize, (")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write(")))")


class _Environment(ImmutableSandboxedEnvironment):
    code_generator_class = _CodeGenerator
    concat = staticmethod(splice)
    intercepted_binops = frozenset({"%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, str) and holds_client_text(right):
            left = of_template(left)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(function, "__self__", None)
        if type(owner) is str and holds_client_text((args, kwargs)):
            function = getattr(of_template(owner), function.__name__)
        result = super().call(context, function, *args, **kwargs)
        return opaque(result, ()) if type(result) is str and isinstance(owner, bytes) else result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        sandboxed = super().wrap_str_format(value)
        return sandboxed and functools.partial(_format, sandboxed, value.__self__)


def build_environment(now: Callable[[], datetime]) -> jinja2.Environment:
    """An environment without a loader. `now` is the local time that `strftime_now` shows."""

    def strftime_now(layout: str) -> str:
        text = now().strftime(plain(layout))
        return opaque(text, layout) if isinstance(layout, Traced) else text

    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=as_text,
        extensions=[_GenerationTag, jinja2.ext.loopcontrols],
    )
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": strftime_now}
    environment.filters["tojson"] = _to_json
    for name, function in environment.filters.items():
        if name not in SELECTORS:
            environment.filters[name] = _tracing(function)
    environment.filters |= {"join": _join, "string": as_text, "safe": as_text}
    environment.filters |= dict.fromkeys(("e", "escape", "forceescape"), _escape)
    return environment


def as_text(value: object) -> str:
    """What a value looks like in the prompt. Of a container it is Python's notation, as Hugging Face writes it."""
    if isinstance(value, str):
        return value if type(value) is str else of_template(value)
    text = str(value)
    if isinstance(value, Undefined) or isinstance(text, Traced) or not holds_client_text(value):
        return text
    return opaque(text, value)


def _tracing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose new strings carry the origin of what they were made from."""
    unseen = 1 if hasattr(function, "jinja_pass_arg") else 0  # jinja2's context, environment or the like comes first

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if type(args[unseen]) is str and holds_client_text((args[unseen + 1 :], kwargs)):
            args = (*args[:unseen], of_template(args[unseen]), *args[unseen + 1 :])
        result = function(*args, **kwargs)
        if isinstance(result, str) and not isinstance(result, Traced) and holds_client_text((args[unseen:], kwargs)):
            return opaque(plain(result), (args[unseen:], kwargs))
        return result

    return traced


@jinja2.pass_eval_context
def _join(eval_context: nodes.EvalContext, values: Any, d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        values = map(jinja2.filters.make_attrgetter(eval_context.environment, attribute), values)
    return of_template(as_text(d)).join(map(as_text, values))


def _escape(value: object) -> str:
    text = as_text(value)
    escaped = html.escape(plain(text))
    return opaque(escaped, text) if isinstance(text, Traced) else escaped


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates pass them by position or name, as to Hugging Face's
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> None:
    raise RefusedError(plain(as_text(message)))


def _format(sandboxed: Callable[..., str], template: str, *args: Any, **kwargs: Any) -> str:
    """`str.format`: exact for plain fields of plain templates, the client's as a whole with any other."""
    text = plain(sandboxed(*args, **kwargs))
    if not isinstance(template, Traced) and not holds_client_text((args, kwargs)):
        return text
    result = splice(_format_pieces(template, iter(args), kwargs)) if not isinstance(template, Traced) else text
    return result if result == text and isinstance(result, Traced) else opaque(text, (template, args, kwargs))


def _format_pieces(template: str, args: Iterator[Any], fields: Mapping[str, Any]) -> Iterator[str]:
    for literal, name, _, _ in string.Formatter().parse(template):
        yield literal
        if name is not None:
            yield as_text(fields.get(name, "") if name else next(args, ""))
