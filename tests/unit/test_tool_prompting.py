# ruff: noqa: RUF001 - DeepSeek spells its marks so
"""Tools reach the model: through a template that knows them, else in a system message."""

import json
import re

import pytest

from appliance.protocol import ChatPrompt, Constraint, Message, TextPart, Tool, ToolUse
from runtimes.constraints.grammar import Grammars, InvalidConstraintError
from runtimes.constraints.vocabulary import Greedy, Vocabulary, tokenizer, vocabulary_of
from runtimes.dialects import dialect_of
from runtimes.dialects.call_forms import (
    DEEPSEEK,
    HERMES,
    LLAMA3,
    MISTRAL,
    MISTRAL_LIST,
    NEUTRAL,
    PHI4,
    CallForm,
)
from runtimes.dialects.tool_grammar import tool_grammar
from runtimes.dialects.tool_prompting import Way, way_of, with_tools
from runtimes.fake import FakeBackend

LOOK = Tool("look", "Looks around.", '{"type":"object","properties":{"where":{"type":"string"}},"required":["where"]}')
NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
TREE = Tool("tree", "", json.dumps({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}},
                                    "required": ["root"], "$defs": {"node": NODE}}))  # fmt: skip
USER = Message("user", (TextPart("Hi"),))


def test_a_template_that_knows_tools_gets_them_as_a_variable() -> None:
    prompt = with_tools(ChatPrompt((USER,), {"x": 1}, (LOOK,)), "variable", HERMES)
    assert prompt.messages == (USER,)
    assert prompt.template_kwargs["x"] == 1
    (described,) = prompt.template_kwargs["tools"]
    assert described["function"]["name"] == "look"
    assert described["function"]["parameters"]["required"] == ["where"]


def test_phi_gets_them_as_an_attribute_of_the_system_message() -> None:
    prompt = with_tools(ChatPrompt((USER,), tools=(LOOK,)), "attribute", PHI4)
    assert [message.role for message in prompt.messages] == ["system", "user"]
    (described,) = json.loads(prompt.messages[0].attributes["tools"])
    assert (described["name"], described["description"]) == ("look", "Looks around.")


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("form", [NEUTRAL, DEEPSEEK], ids=lambda form: form.name)
def test_other_templates_get_them_in_the_system_message(role: str, form: CallForm) -> None:
    system = Message(role, (TextPart("Be brief."),))  # type: ignore[arg-type] # a literal
    prompt = with_tools(ChatPrompt((system, USER), tools=(LOOK, TREE)), "described", form)
    assert [message.role for message in prompt.messages] == [role, "user"]
    first, second = prompt.messages[0].content
    assert first == TextPart("Be brief.")
    assert isinstance(second, TextPart)
    assert all(text in second.text for text in ("look", "Looks around.", "tree", form.opening, form.end))


def test_a_conversation_without_a_system_message_gets_one() -> None:
    prompt = with_tools(ChatPrompt((USER,), tools=(LOOK,)), "described", NEUTRAL)
    assert [message.role for message in prompt.messages] == ["system", "user"]


@pytest.mark.parametrize("way", ["variable", "attribute", "described"])
def test_no_tools_change_nothing(way: Way) -> None:
    prompt = ChatPrompt((USER,))
    assert with_tools(prompt, way, NEUTRAL) is prompt


def test_how_a_template_takes_tools_is_found_out_by_handing_it_one() -> None:
    def variable(prompt: ChatPrompt) -> str:
        return str(prompt.template_kwargs.get("tools"))

    def xml(prompt: ChatPrompt) -> str:
        return str(prompt.template_kwargs["xml_tools"])

    def attribute(prompt: ChatPrompt) -> str:
        return str([message.attributes for message in prompt.messages])

    def refuses(prompt: ChatPrompt) -> str:
        raise ValueError("no tools, please")

    ways = [way_of(renders, HERMES) for renders in (variable, xml, attribute, refuses, lambda prompt: "hello")]
    assert ways == ["variable", "variable", "attribute", "described", "described"]


@pytest.mark.parametrize(
    ("template", "form", "is_native"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES, True),
        ("<|python_tag|> {{ '\"parameters\": ' }}", LLAMA3, True),
        ("[AVAILABLE_TOOLS][TOOL_CALLS] [", MISTRAL_LIST, True),
        ("[TOOL_CALLS]{{ name }}[ARGS]", MISTRAL, True),
        ("<|tool|>{{ message.tools }}<|/tool|>", PHI4, True),
        ("<｜tool▁calls▁begin｜>", DEEPSEEK, True),
        ("{{ messages }}", NEUTRAL, False),
        (None, NEUTRAL, False),
    ],
)
def test_a_template_tells_the_form_of_calls(template: str | None, form: CallForm, is_native: bool) -> None:  # noqa: FBT001 - pytest's parameter
    dialect = dialect_of(template)
    assert (dialect.calls, dialect.is_native) == (form, is_native)


END = FakeBackend().info.end_tokens[0]
MARKS = sorted({mark for form in (HERMES, LLAMA3, MISTRAL_LIST, MISTRAL, PHI4, DEEPSEEK) for mark in form.marks})


def grammars(marks: list[str]) -> Grammars:
    """Over single bytes, and these control tokens."""
    plain = vocabulary_of(FakeBackend())
    special = [*plain.special, *range(len(plain.tokens), len(plain.tokens) + len(marks))]
    vocabulary = Vocabulary([*plain.tokens, *(mark.encode() for mark in marks)], special, plain.ends)
    return Grammars(tokenizer(vocabulary, Greedy(vocabulary)), len(vocabulary.tokens))


PLAIN = grammars([])
MARKED = grammars(MARKS)
CONTROL = {mark: len(vocabulary_of(FakeBackend()).tokens) + i for i, mark in enumerate(MARKS)}


def takes(
    use: ToolUse, text: str, answer: Constraint | None = None, form: CallForm = NEUTRAL, *, control: bool = False
) -> bool:
    """Whether an answer may be this text, from its first byte to its end. `control`: marks are control tokens."""
    known = CONTROL if control else {}
    grammar = tool_grammar(use, (LOOK, TREE), answer, form, known)
    matcher = (MARKED if control else PLAIN).matcher("lark", grammar).fork()
    pieces = re.split("(" + "|".join(map(re.escape, MARKS)) + ")", text) if control else [text]
    tokens = [token for piece in pieces for token in ([known[piece]] if piece in known else piece.encode())]
    for token in [*tokens, END]:
        if not matcher.allowed()[token]:
            return False
        matcher.accept(token)
    return True


LOOKING = '<tool_call>\n{"name": "look", "arguments": {"where": "here"}}\n</tool_call>'
NODES = '{"root": {"value": 1, "next": {"value": 2, "next": null}}}'
TREEING = f'<tool_call>\n{{"name": "tree", "arguments": {NODES}}}\n</tool_call>'
AUTO, REQUIRED = ToolUse("auto"), ToolUse("required")


@pytest.mark.parametrize(
    ("use", "text", "fits"),
    [
        (AUTO, "Just an answer with {} and <b>.", True),
        (AUTO, "", True),
        (AUTO, LOOKING, True),
        (AUTO, "Let me see.\n" + LOOKING, True),
        (AUTO, f"{LOOKING}\n{TREEING}\n{LOOKING}", True),
        (AUTO, "Now <tool_call>anything", False),
        (AUTO, LOOKING.replace("where", "when"), False),
        (AUTO, LOOKING.replace("look", "hook"), False),
        (AUTO, TREEING.replace("2", "true"), False),
        (REQUIRED, LOOKING, True),
        (REQUIRED, f"{LOOKING}\n{TREEING}", True),
        (REQUIRED, "Just an answer.", False),
        (REQUIRED, "", False),
        (ToolUse("required", parallel=False), LOOKING, True),
        (ToolUse("required", parallel=False), f"{LOOKING}\n{TREEING}", False),
        (ToolUse("required", "tree", parallel=False), TREEING, True),
        (ToolUse("required", "tree", parallel=False), LOOKING, False),
    ],
)
def test_what_an_answer_may_be(use: ToolUse, text: str, fits: bool) -> None:  # noqa: FBT001 - pytest's parameter
    assert takes(use, text) is fits


def test_an_answer_without_a_call_may_have_to_be_json() -> None:
    answer = Constraint("json_schema", '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}', "f")
    assert takes(AUTO, '{"a": 1}', answer)
    assert takes(AUTO, LOOKING, answer)
    assert not takes(AUTO, "free text", answer)


def test_a_schema_that_cannot_be_kept_is_an_error() -> None:
    bad = Tool("bad", "", '{"type":"object","properties":{"a":{"not":{}}}}')
    with pytest.raises(InvalidConstraintError):
        PLAIN.matcher("lark", tool_grammar(AUTO, (bad,), None, NEUTRAL, {}))


def test_arguments_are_written_on_one_line_whatever_the_schema_says() -> None:
    lax = '{"x-guidance":{"lenient":true,"whitespace_flexible":true},"type":"object","properties":{"a":{"not":{}}}}'
    with pytest.raises(InvalidConstraintError):
        PLAIN.matcher("lark", tool_grammar(AUTO, (Tool("lax", "", lax),), None, NEUTRAL, {}))
    assert not takes(REQUIRED, LOOKING.replace('{"where"', '{ "where"'))
    assert not takes(REQUIRED, LOOKING.replace('": "here"', '":\\n"here"'))


def one(form: CallForm, name: str, arguments: str) -> str:
    return (json.dumps(name) if form.name_is_json else name) + form.before_arguments + arguments + form.closing


@pytest.mark.parametrize("control", [False, True], ids=["marks-are-text", "marks-are-control-tokens"])
@pytest.mark.parametrize("form", [HERMES, LLAMA3, MISTRAL_LIST, MISTRAL, PHI4, DEEPSEEK], ids=lambda form: form.name)
def test_every_form_is_kept_to_the_letter(form: CallForm, control: bool) -> None:  # noqa: FBT001 - pytest's parameter
    def fits(use: ToolUse, text: str, answer: Constraint | None = None) -> bool:
        return takes(use, text, answer, form, control=control)

    single = form.opening + one(form, "look", '{"where": "x"}') + form.end
    between = form.between or ""
    double = form.opening + one(form, "look", '{"where": "x"}') + between + one(form, "tree", NODES) + form.end
    alone = ToolUse("required", parallel=False)
    answer = Constraint("json_schema", '{"type":"object","properties":{"a":{"type":"integer"}}}', "f")
    for use in (AUTO, REQUIRED):
        assert fits(use, single)
        assert fits(use, double)
        assert not fits(use, single.replace("where", "when"))
        assert not fits(use, single.replace("look", "hook"))
        assert fits(use, "Free text with {} and\n<b>.") is (use is AUTO)
    assert fits(alone, single)
    assert not fits(alone, double)
    assert fits(AUTO, '{"a": 1}', answer)
    assert fits(AUTO, form.prefix + single, answer)
    assert not fits(AUTO, "free", answer)
