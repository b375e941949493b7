"""From prompts to tokens: what is at fault is refused and named, and nothing is ever cut."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from appliance.protocol import (
    ChatPrompt,
    Constraint,
    Message,
    Prompt,
    Reasoning,
    Stopping,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolUse,
)
from runtimes.constraints import InvalidConstraintError
from runtimes.contracts import Allowed, TokenConstraint
from runtimes.fake import FakeBackend
from runtimes.fake.backend import BOS, EOS
from runtimes.templates.result import Rendered, Segment, TemplateError
from runtimes.worker.prompts import NAMING_LIMIT_S, PromptError, Prompts


class Renderer:
    """Gives what it is told to."""

    def __init__(self, outcome: Rendered | TemplateError, stop: tuple[str, ...] = ()) -> None:
        self._outcome = outcome
        self.stop = stop

    def render(self, prompt: ChatPrompt, *, add_generation_prompt: bool = True) -> Rendered:
        if isinstance(self._outcome, TemplateError):
            raise self._outcome
        return self._outcome


class Constraints:
    """Can keep none."""

    def compile(self, constraint: Constraint) -> TokenConstraint:
        raise InvalidConstraintError(f"no {constraint.text} today")


def prompts(outcome: Rendered | TemplateError | None = None, stop: tuple[str, ...] = ()) -> Prompts:
    backend = FakeBackend(context_tokens=32)
    return Prompts(backend, Renderer(outcome or Rendered((), "as-given"), stop), Constraints())


CHAT = ChatPrompt((Message("user", (TextPart("hi"),)),))


def test_a_text_has_the_models_bos_in_front_unless_asked_otherwise() -> None:
    assert prompts().tokens(TextPrompt("a")) == (BOS, 97)
    assert prompts().tokens(TextPrompt("a", add_special=False)) == (97,)


def test_control_tokens_are_read_where_the_template_wrote_them_and_nowhere_else() -> None:
    rendered = Rendered((Segment("a</s>", parse_special=True), Segment("</s>", parse_special=False)), "as-given")
    assert prompts(rendered).tokens(CHAT) == (BOS, 97, EOS, *b"</s>")


def test_a_template_that_writes_bos_itself_gets_no_second_one() -> None:
    rendered = Rendered((Segment("<s>a", parse_special=True),), "as-given")
    assert prompts(rendered).tokens(CHAT) == (BOS, 97)


def test_an_empty_prompt_starts_from_bos() -> None:
    assert prompts().prepared(TextPrompt("", add_special=False), Reasoning(), has_form=False).tokens == (BOS,)


def test_one_token_must_be_left_for_the_answer() -> None:
    assert len(prompts().prepared(TokenPrompt((97,) * 31), Reasoning(), has_form=False).tokens) == 31
    with pytest.raises(PromptError, match="maximum context length is 32 tokens") as refused:
        prompts().prepared(TokenPrompt((97,) * 32), Reasoning(), has_form=False)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")


@pytest.mark.parametrize(
    "prompt",
    [TextPrompt("x" * 1000), ChatPrompt((Message("user", (TextPart("x" * 1000),)),))],
    ids=["text", "chat"],
)
def test_a_hopelessly_long_text_is_refused_before_it_is_tokenized(prompt: Prompt) -> None:
    with pytest.raises(PromptError, match="at least 1000") as refused:
        prompts().prepared(prompt, Reasoning(), has_form=False)
    assert refused.value.code == "context_length_exceeded"


@pytest.mark.parametrize("token", [-1, 258, 2**31])
def test_a_token_outside_the_vocabulary_is_named(token: int) -> None:
    with pytest.raises(PromptError, match=rf"prompt\[1\] is {token}") as refused:
        prompts().tokens(TokenPrompt((1, token)))
    assert refused.value.code == "invalid_request"


def test_a_bias_outside_the_vocabulary_is_named() -> None:
    prompts().check_logit_bias(((0, 1.0), (257, 1.0)))
    with pytest.raises(PromptError, match="logit_bias: 258 is no token") as refused:
        prompts().check_logit_bias(((258, 1.0),))
    assert refused.value.param == "logit_bias"


def test_what_the_template_cannot_take_is_the_requests_fault_and_names_the_message() -> None:
    with pytest.raises(PromptError, match="no second system") as refused:
        prompts(TemplateError("no second system message", "messages[1]")).tokens(CHAT)
    assert (refused.value.code, refused.value.param) == ("invalid_request", "messages[1]")


def test_a_neutral_template_brings_its_stop_strings_to_chats_only() -> None:
    stopping = Stopping(stop=("x",))
    assert prompts(stop=("\nUser:",)).stopping((CHAT,), stopping).stop == ("x", "\nUser:")
    assert prompts(stop=("\nUser:",)).stopping((TextPrompt("a"),), stopping) == stopping


def test_a_form_that_cannot_be_kept_names_its_field() -> None:
    assert prompts().constraint(None) is None
    with pytest.raises(PromptError, match="'response_format' cannot be kept: no schema today") as refused:
        prompts().constraint(Constraint("json_schema", "schema", "response_format"))
    assert (refused.value.code, refused.value.param) == ("invalid_request", "response_format")


class NoConstraint:
    """Everything goes."""

    def fork(self) -> TokenConstraint:
        return self

    def allowed(self) -> Allowed:
        return np.ones(258, dtype=np.bool_)

    def accept(self, token: int) -> None:
        pass


def test_the_tool_at_fault_is_named() -> None:
    tools = tuple(Tool(name, "", "{}") for name in "ab")
    with pytest.raises(PromptError, match=r"no \{\} today") as refused:
        prompts().form((replace(CHAT, tools=tools),), None, ToolUse("auto"), Reasoning())
    assert refused.value.param == "tools[0].function.parameters"


def test_many_tools_are_not_tried_one_by_one_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, NAMING_LIMIT_S * 0.6)
    monkeypatch.setattr("runtimes.worker.prompts.time", SimpleNamespace(monotonic=lambda: next(clock)))

    class OnlyTogether:
        def __init__(self) -> None:
            self.asked = 0

        def compile(self, constraint: Constraint) -> TokenConstraint:
            self.asked += 1
            if constraint.kind == "lark":
                raise InvalidConstraintError("too complex together")
            return NoConstraint()

    slow = OnlyTogether()
    backend = FakeBackend(context_tokens=32)
    made = Prompts(backend, Renderer(Rendered((), "as-given")), slow)
    tools = tuple(Tool(f"t{i}", "", "{}") for i in range(128))
    with pytest.raises(PromptError, match="too complex together") as refused:
        made.form((replace(CHAT, tools=tools),), None, ToolUse("auto"), Reasoning())
    assert refused.value.param == "tools"
    assert slow.asked == 2  # all together, and one in the time there is
