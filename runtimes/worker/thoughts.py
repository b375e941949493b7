"""How one model is let to think, or kept from it: by the end of its prompt, and by what the engine is told."""

from dataclasses import replace

from appliance.protocol import Reasoning
from runtimes.contracts import Backend
from runtimes.dialects import Dialect
from runtimes.engine import Thinking
from runtimes.templates.result import Rendered, Segment


class UnboundedThoughtsError(Exception):
    """The model announces its thoughts with more than one token, so that they cannot be counted."""


class Thoughts:
    def __init__(self, backend: Backend, dialect: Dialect) -> None:
        self._backend = backend
        self._dialect = dialect
        self._thinking = self._how_it_thinks()

    @property
    def dialect(self) -> Dialect:
        """As far as this model's vocabulary has the marks for it."""
        known = self._thinking is not None or self._dialect.calls.speaks
        return self._dialect if known else replace(self._dialect, reasoning=None)

    def let(
        self, rendered: Rendered, reasoning: Reasoning, *, has_form: bool, has_tools: bool
    ) -> tuple[Rendered, Thinking | None]:
        """A prompt that ends as it should, and what the engine needs to know. `has_form`: the answer is constrained;
        `has_tools`: by the grammar of calls, which lets thoughts come first where models announce what they write.

        Raises `UnboundedThoughtsError` for a budget that cannot be kept.
        """
        if self._dialect.calls.speaks:
            return self._announced(rendered, reasoning, has_form=has_form, has_tools=has_tools), None
        marks, thinking = self._dialect.reasoning, self._thinking
        if marks is None or thinking is None:
            return rendered, None
        begun = rendered.text.rstrip().endswith(marks.opening)
        if may_think(reasoning):
            return rendered, replace(thinking, begun=begun, budget=reasoning.budget)
        if begun:
            rendered = _followed_by(f"\n\n{marks.closing}\n\n", rendered)
        # A model that begins all the same is stopped at once; one whose answer has a form cannot begin.
        return rendered, None if has_form else replace(thinking, budget=0)

    def token(self, mark: str) -> int | None:
        """The one token that a mark is in this vocabulary."""
        tokens = self._backend.tokenize(mark, add_special=False, parse_special=True)
        return tokens[0] if len(tokens) == 1 else None

    def _announced(self, rendered: Rendered, reasoning: Reasoning, *, has_form: bool, has_tools: bool) -> Rendered:
        if may_think(reasoning) and reasoning.budget is not None:
            raise UnboundedThoughtsError
        if has_tools or (may_think(reasoning) and not has_form):
            return rendered
        return _followed_by(self._dialect.calls.speaks, rendered)

    def _how_it_thinks(self) -> Thinking | None:
        marks = self._dialect.reasoning
        if marks is None:
            return None
        opening, closing = self.token(marks.opening), self.token(marks.closing)
        if opening is None or closing is None:
            return None
        before = self._backend.tokenize("\n", add_special=False, parse_special=False)
        after = self._backend.tokenize("\n\n", add_special=False, parse_special=False)
        spelled = {opening: marks.opening.encode(), closing: marks.closing.encode()}
        return Thinking(opening, closing, begun=False, farewell=(*before, closing, *after), marks=spelled)


def may_think(reasoning: Reasoning) -> bool:
    return reasoning.enabled and reasoning.budget != 0


def _followed_by(text: str, rendered: Rendered) -> Rendered:
    return replace(rendered, segments=(*rendered.segments, Segment(text, parse_special=True)))
