# ruff: noqa: RUF001 - DeepSeek spells its marks so
"""The forms in which model families call tools, each with what stands around names and arguments.

A form is followed to the letter by the grammar (`tool_grammar`) and read to the letter by `appliance.tool_calls`. Which
one a model was trained on is told by its chat template, which writes earlier calls in the same form.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallForm:
    name: str
    evidence: tuple[str, ...]  # what all templates of this form hold
    opening: str  # up to the first call's name
    before_arguments: str
    closing: str  # after the arguments
    between: str | None  # from one call to the next one's name; None: there is one call only
    end: str = ""  # after the last call
    marks: tuple[str, ...] = ()  # those parts of the above that may be control tokens of the model
    name_is_json: bool = True  # else it stands as it is
    only_first: bool = False  # a call is one only at the very beginning of an answer
    prefix: str = ""  # a mark that may stand before `opening`; it tells a call from other JSON
    # Of families that announce all they write: around thoughts, which may come first, and before an answer.
    thought: tuple[str, str] | None = None
    speaks: str = ""


HERMES = CallForm(
    name="hermes",
    evidence=("<tool_call>",),
    opening='<tool_call>\n{"name": ',
    before_arguments=', "arguments": ',
    closing="}\n</tool_call>",
    between='\n<tool_call>\n{"name": ',
    marks=("<tool_call>", "</tool_call>"),
)
LLAMA3 = CallForm(
    name="llama3",
    evidence=("<|python_tag|>", '"parameters": '),
    opening='{"name": ',
    before_arguments=', "parameters": ',
    closing="}",
    between='; {"name": ',
    marks=("<|python_tag|>",),
    only_first=True,
    prefix="<|python_tag|>",
)
# Of Mistral's tokenizers up to the seventh version; later ones write the name before the JSON.
MISTRAL_LIST = CallForm(
    name="mistral-list",
    evidence=("[TOOL_CALLS]",),
    opening='[TOOL_CALLS] [{"name": ',
    before_arguments=', "arguments": ',
    closing="}",
    between=', {"name": ',
    end="]",
    marks=("[TOOL_CALLS]",),
)
MISTRAL = CallForm(
    name="mistral",
    evidence=("[TOOL_CALLS]", "[ARGS]"),
    opening="[TOOL_CALLS]",
    before_arguments="[ARGS]",
    closing="",
    between="[TOOL_CALLS]",
    marks=("[TOOL_CALLS]", "[ARGS]"),
    name_is_json=False,
)
PHI4 = CallForm(
    name="phi4",
    evidence=("<|tool|>",),
    opening='<|tool_call|>[{"name": ',
    before_arguments=', "arguments": ',
    closing="}",
    between=', {"name": ',
    end="]<|/tool_call|>",
    marks=("<|tool_call|>", "<|/tool_call|>"),
)
DEEPSEEK = CallForm(
    name="deepseek",
    evidence=("<｜tool▁calls▁begin｜>",),
    opening="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    before_arguments="\n```json\n",
    closing="\n```<｜tool▁call▁end｜>",
    between="\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    end="<｜tool▁calls▁end｜>",
    marks=(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    name_is_json=False,
)
HARMONY = CallForm(
    name="harmony",
    evidence=("<|channel|>", "<|start|>"),
    opening="<|channel|>commentary to=functions.",
    before_arguments=" <|constrain|>json<|message|>",
    closing="",
    between=None,  # the token after a call ends the turn
    marks=("<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|start|>"),
    name_is_json=False,
    thought=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    speaks="<|channel|>final<|message|>",
)
NEUTRAL = HERMES  # most models have met it; for those whose template has no form of its own

# The telling ones first: a template may mention another family's form too.
_IN_TEMPLATES = (HARMONY, MISTRAL, MISTRAL_LIST, DEEPSEEK, PHI4, HERMES, LLAMA3)


def first_mark(form: CallForm) -> str:
    """What a call begins with: the form's mark, or its opening where it has none."""
    return next((mark for mark in form.marks if form.opening.startswith(mark)), form.opening)


def form_in(template: str) -> CallForm | None:
    """The form that a chat template writes calls in, if it is a known one."""
    found = (form for form in _IN_TEMPLATES if all(text in template for text in form.evidence))
    return next(found, None)
