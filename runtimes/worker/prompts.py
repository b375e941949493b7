"""From a prompt in the canonical form to the tokens a model computes. Runs beside the step loop, never in it."""

import time
from dataclasses import dataclass, replace
from typing import Protocol

from appliance.protocol import ChatPrompt, Constraint, ErrorCode, Prompt, Reasoning, Stopping, TextPrompt, ToolUse
from runtimes.constraints import InvalidConstraintError
from runtimes.contracts import Backend, TokenConstraint
from runtimes.dialects import Dialect
from runtimes.dialects.call_forms import first_mark
from runtimes.dialects.tool_grammar import tool_grammar
from runtimes.dialects.tool_prompting import Way, way_of, with_tools
from runtimes.engine import Thinking
from runtimes.templates.result import Rendered, TemplateError
from runtimes.worker.thoughts import Thoughts, UnboundedThoughtsError, may_think

NAMING_LIMIT_S = 0.5  # for finding out which of many tools is at fault; one alone may take as long to be refused


class PromptError(Exception):
    """The prompt is at fault. `param` is the field to name to the client."""

    def __init__(self, code: ErrorCode, message: str, param: str | None) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.param = param


class Renderer(Protocol):
    @property
    def stop(self) -> tuple[str, ...]: ...

    def render(self, prompt: ChatPrompt, *, add_generation_prompt: bool = True) -> Rendered: ...


class Constraints(Protocol):
    def compile(self, constraint: Constraint) -> TokenConstraint: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt to generate from."""

    tokens: tuple[int, ...]
    thinking: Thinking | None = None


class Prompts:
    def __init__(
        self, backend: Backend, renderer: Renderer, constraints: Constraints, dialect: Dialect | None = None
    ) -> None:
        self._backend = backend
        self._constraints = constraints
        self._info = backend.info
        self._renderer = renderer
        dialect = dialect or Dialect()
        self._thoughts = Thoughts(backend, dialect)
        self._call_form = dialect.calls
        self._call_marks = {
            mark: token
            for mark in dialect.calls.marks
            if (token := self._thoughts.token(mark)) is not None and not backend.piece(token)
        }
        self._way: Way = "described"
        if dialect.is_native:
            self._way = way_of(lambda prompt: renderer.render(prompt).text, dialect.calls)

    @property
    def dialect(self) -> Dialect:
        return self._thoughts.dialect

    def tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """The prompt's tokens, however many. Raises `PromptError`."""
        if isinstance(prompt, ChatPrompt):
            return self._chat_tokens(self._rendered(prompt))
        if isinstance(prompt, TextPrompt):
            self._refuse_hopeless(len(prompt.text.encode()), "prompt")
            tokens = self._backend.tokenize(prompt.text, add_special=prompt.add_special, parse_special=True)
            return tuple(tokens)
        for i, token in enumerate(prompt.tokens):
            if not 0 <= token < self._info.n_vocab:
                raise PromptError(
                    "invalid_request",
                    f"prompt[{i}] is {token}; this model's tokens are 0 to {self._info.n_vocab - 1}",
                    "prompt",
                )
        return prompt.tokens

    def prepared(self, prompt: Prompt, reasoning: Reasoning, *, has_form: bool) -> Prepared:
        """A prompt of one token at least, and shorter than the context. `has_form`: the answer is constrained.

        Raises `PromptError`.
        """
        if not isinstance(prompt, ChatPrompt):
            return Prepared(self._bounded(self.tokens(prompt), "prompt"))
        try:
            rendered, thinking = self._thoughts.let(
                self._rendered(prompt), reasoning, has_form=has_form, has_tools=bool(prompt.tools)
            )
        except UnboundedThoughtsError:
            field = "thinking_token_budget"
            message = f"'{field}' cannot be kept by this model: leave it out, or send 0 or a 'reasoning_effort'"
            raise PromptError("invalid_request", message, field) from None
        return Prepared(self._bounded(self._chat_tokens(rendered), "messages"), thinking)

    def marks(self, prompt: Prompt, use: ToolUse | None) -> dict[int, bytes]:
        """Control tokens that whoever reads the answer must see."""
        if not isinstance(prompt, ChatPrompt):
            return {}
        if use is None and not self._call_form.speaks:
            return {}
        return {token: mark.encode() for mark, token in self._call_marks.items()}

    def stops_until(self, constraint: Constraint | None, use: ToolUse | None) -> str | None:
        """Where stop strings lose their say: they would cut calls, and answers that must have a form."""
        if use is None:
            return None if constraint is None else ""
        if use.choice == "required" or constraint is not None:
            return ""
        return self._call_form.opening if self._call_form.speaks else first_mark(self._call_form)

    def _bounded(self, tokens: tuple[int, ...], field: str) -> tuple[int, ...]:
        if not tokens:
            if self._info.bos_id is None:
                raise PromptError(
                    "invalid_request", "prompt is empty; this model needs a token to start from", "prompt"
                )
            tokens = (self._info.bos_id,)
        if len(tokens) >= self._info.context_tokens:
            raise self._too_long(f"{len(tokens)}", field)
        return tokens

    def stopping(self, prompts: tuple[Prompt, ...], stopping: Stopping) -> Stopping:
        """With the strings that end an answer where the template's own end token is missing."""
        if not self._renderer.stop or not any(isinstance(prompt, ChatPrompt) for prompt in prompts):
            return stopping
        return replace(stopping, stop=(*stopping.stop, *self._renderer.stop))

    def form(
        self, prompts: tuple[Prompt, ...], constraint: Constraint | None, use: ToolUse | None, reasoning: Reasoning
    ) -> TokenConstraint | None:
        """What the answer must look like, calls of tools included. Raises `PromptError` for what cannot be kept."""
        if use is None:
            return self.constraint(constraint)
        tools = tuple(tool for prompt in prompts if isinstance(prompt, ChatPrompt) for tool in prompt.tools)
        try:
            form = self._call_form if may_think(reasoning) else replace(self._call_form, thought=None)
            grammar = tool_grammar(use, tools, constraint, form, self._call_marks)
            return self.constraint(Constraint("lark", grammar, "tools"))
        except PromptError:  # whichever part is at fault alone is named, if that does not take too long
            stop_s = time.monotonic() + NAMING_LIMIT_S
            self.constraint(constraint)
            for i, tool in enumerate(tools):
                if time.monotonic() > stop_s:
                    break
                self.constraint(Constraint("json_schema", tool.parameters, f"tools[{i}].function.parameters"))
            raise

    def constraint(self, constraint: Constraint | None) -> TokenConstraint | None:
        """Raises `PromptError` for one that cannot be kept."""
        if constraint is None:
            return None
        try:
            return self._constraints.compile(constraint)
        except InvalidConstraintError as error:
            message = f"'{constraint.field}' cannot be kept: {error}"
            raise PromptError("invalid_request", message, constraint.field) from None

    def check_logit_bias(self, bias: tuple[tuple[int, float], ...]) -> None:
        for token, _ in bias:
            if not 0 <= token < self._info.n_vocab:
                raise PromptError(
                    "invalid_request",
                    f"logit_bias: {token} is no token of this model; they are 0 to {self._info.n_vocab - 1}",
                    "logit_bias",
                )

    def _rendered(self, prompt: ChatPrompt) -> Rendered:
        prompt = with_tools(prompt, self._way, self._call_form)
        size = sum(len(part.text.encode()) for m in prompt.messages for part in m.content if hasattr(part, "text"))
        self._refuse_hopeless(size, "messages")
        try:
            rendered = self._renderer.render(prompt)
        except TemplateError as error:
            raise PromptError("invalid_request", str(error), error.param or "messages") from error
        self._refuse_hopeless(sum(len(s.text.encode()) for s in rendered.segments), "messages")
        return rendered

    def _chat_tokens(self, rendered: Rendered) -> tuple[int, ...]:
        tokens = [
            token
            for s in rendered.segments
            for token in self._backend.tokenize(s.text, add_special=False, parse_special=s.parse_special)
        ]
        if self._info.adds_bos and self._info.bos_id is not None and tokens[:1] != [self._info.bos_id]:
            tokens.insert(0, self._info.bos_id)
        return tuple(tokens)

    def _refuse_hopeless(self, text_bytes: int, param: str) -> None:
        """Spares the tokenizer a text that cannot fit, which it may take seconds for."""
        least = self._backend.least_tokens(text_bytes)
        if least >= self._info.context_tokens:
            raise self._too_long(f"at least {least}", param)

    def _too_long(self, count: str, param: str) -> PromptError:
        return PromptError(
            "context_length_exceeded",
            f"This model's maximum context length is {self._info.context_tokens} tokens, and your {param} came to "
            f"{count} tokens; shorten it: at least one token must be left for the answer",
            param,
        )
