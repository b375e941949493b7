"""Tools reach the model: through a template that knows them, else in a system message."""

import json

import pytest

from appliance.protocol import ChatPrompt, Constraint, Message, TextPart, Tool, ToolUse
from runtimes.constraints.grammar import Grammars, InvalidConstraintError
from runtimes.constraints.vocabulary import Greedy, tokenizer, vocabulary_of
from runtimes.fake import FakeBackend
from runtimes.tools.grammar import tool_grammar
from runtimes.tools.prompting import knows_tools, with_tools

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
    prompt = with_tools(ChatPrompt((USER,), {"x": 1}, (LOOK,)), template_knows=True)
    assert prompt.messages == (USER,)
    assert prompt.template_kwargs["x"] == 1
    (described,) = prompt.template_kwargs["tools"]
    assert described["function"]["name"] == "look"
    assert described["function"]["parameters"]["required"] == ["where"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_other_templates_get_them_in_the_system_message(role: str) -> None:
    system = Message(role, (TextPart("Be brief."),))  # type: ignore[arg-type] # a literal
    prompt = with_tools(ChatPrompt((system, USER), tools=(LOOK, TREE)), template_knows=False)
    assert [message.role for message in prompt.messages] == [role, "user"]
    first, second = prompt.messages[0].content
    assert first == TextPart("Be brief.")
    assert isinstance(second, TextPart)
    assert all(text in second.text for text in ("look", "Looks around.", "tree", "<tool_call>"))


def test_a_conversation_without_a_system_message_gets_one() -> None:
    prompt = with_tools(ChatPrompt((USER,), tools=(LOOK,)), template_knows=False)
    assert [message.role for message in prompt.messages] == ["system", "user"]


def test_no_tools_change_nothing() -> None:
    prompt = ChatPrompt((USER,))
    assert with_tools(prompt, template_knows=False) is with_tools(prompt, template_knows=True) is prompt


def test_which_templates_know_tools() -> None:
    assert knows_tools("{% if tools %}<tool_call>{% endif %}")
    assert not knows_tools("{{ messages }}")
    assert not knows_tools("{% if tools %}[TOOL_CALLS]{% endif %}")
    assert not knows_tools(None)


VOCABULARY = vocabulary_of(FakeBackend())
GRAMMARS = Grammars(tokenizer(VOCABULARY, Greedy(VOCABULARY)), len(VOCABULARY.tokens))
END = FakeBackend().info.end_tokens[0]


def takes(use: ToolUse, text: str, answer: Constraint | None = None) -> bool:
    """Whether an answer may be this text, from its first byte to its end."""
    matcher = GRAMMARS.matcher("lark", tool_grammar(use, (LOOK, TREE), answer)).fork()
    for byte in [*text.encode(), END]:
        if not matcher.allowed()[byte]:
            return False
        matcher.accept(byte)
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
        GRAMMARS.matcher("lark", tool_grammar(AUTO, (bad,), None))
