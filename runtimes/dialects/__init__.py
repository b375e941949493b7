"""How a model family speaks: the form of its tool calls, and the marks around what it thinks before it answers.

A chat template tells the family: it writes earlier turns in the same way. Pure; no engine and no prompt is known here.
"""

from dataclasses import dataclass

from runtimes.dialects.call_forms import HARMONY, NEUTRAL, CallForm, form_in


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class Dialect:
    calls: CallForm = NEUTRAL
    is_native: bool = False  # the form of calls is the template's own
    reasoning: ReasoningMarks | None = None  # None: the model has not learnt to think aloud
    unsaid: tuple[str, ...] = ()  # what the model writes around its answer that is no part of it


_HARMONY = ReasoningMarks("<|channel|>analysis<|message|>", "<|end|>")
_UNSAID_IN_HARMONY = (
    "<|start|>assistant",
    "<|channel|>final<|message|>",
    "<|channel|>commentary<|message|>",
    "<|channel|>analysis<|message|>",
    "<|end|>",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
)
_REASONING = (ReasoningMarks("<think>", "</think>"), ReasoningMarks("[THINK]", "[/THINK]"))


def dialect_of(template: str | None) -> Dialect:
    """Of a model whose chat template this is; None for one that is spoken to through a neutral template."""
    marks = (marks for marks in _REASONING if template and marks.closing in template)
    form = form_in(template) if template else None
    if form is HARMONY:
        return Dialect(form, is_native=True, reasoning=_HARMONY, unsaid=_UNSAID_IN_HARMONY)
    return Dialect(form or NEUTRAL, form is not None, next(marks, None))


__all__ = ["CallForm", "Dialect", "ReasoningMarks", "dialect_of"]
