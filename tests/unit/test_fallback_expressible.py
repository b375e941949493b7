"""What a provider has no word for keeps a request from it and is named; nothing is dropped in silence."""

from typing import Any

import pytest

from appliance.protocol import (
    ChatPrompt,
    Constraint,
    ImagePart,
    Message,
    Prompt,
    Reasoning,
    Request,
    Sampling,
    Stopping,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolUse,
)
from fallback.expressible import ANY_OBJECT, MAX_STOPS, excluded_by
from fallback.provider import FEATURES, Kind, Provider
from fallback.wire import wire_of

KINDS: tuple[Kind, ...] = ("openai", "azure", "anthropic")
USER = Message("user", (TextPart("Hi."),))


def provider(kind: Kind = "openai", also: set[str] | None = None, cannot: set[str] | None = None) -> Provider:
    return Provider("p", kind, "https://x.example/v1", "m", also=frozenset(also or ()), cannot=frozenset(cannot or ()))


def asked(
    message: Message = USER, kwargs: dict[str, Any] | None = None, tools: tuple[Tool, ...] = (), **more: Any
) -> Request:
    return Request("r", "frontier", (ChatPrompt((message,), kwargs or {}, tools),), **more)


IMAGE = asked(Message("user", (ImagePart("https://x.example/a.png"),)))
TOOLS = asked(tools=(Tool("look", "", "{}"),), tool_use=ToolUse("auto"))
SCHEMA = asked(constraint=Constraint("json_schema", '{"type":"object","properties":{}}', "response_format"))
OBJECT = asked(constraint=Constraint("json_schema", ANY_OBJECT, "response_format"))
REGEX = asked(constraint=Constraint("regex", "a+", "structured_outputs.regex"))
LARK = asked(constraint=Constraint("lark", "start: /a/", "structured_outputs.grammar"))
EFFORT = asked(kwargs={"reasoning_effort": "low"})
TEMPLATE = asked(kwargs={"persona": "pirate"})
BUDGET = asked(reasoning=Reasoning(budget=2048))

# (the request, what it needs, the field to name)
NEEDS: list[tuple[Request, str, str]] = [
    (IMAGE, "images", "messages"),
    (TOOLS, "tools", "tools"),
    (SCHEMA, "json_schema", "response_format"),
    (OBJECT, "json_object", "response_format"),
    (REGEX, "structured_outputs", "structured_outputs.regex"),
    (LARK, "structured_outputs", "structured_outputs.grammar"),
    (EFFORT, "reasoning_effort", "reasoning_effort"),
    (TEMPLATE, "chat_template_kwargs", "chat_template_kwargs"),
    (BUDGET, "thinking_token_budget", "thinking_token_budget"),
    (asked(logprobs=0), "logprobs", "logprobs"),
    (asked(n=2), "n", "n"),
    (asked(sampling=Sampling(seed=0)), "seed", "seed"),
    (asked(sampling=Sampling(top_k=5)), "top_k", "top_k"),
    (asked(sampling=Sampling(min_p=0.1)), "min_p", "min_p"),
    (asked(sampling=Sampling(repetition_penalty=1.1)), "repetition_penalty", "repetition_penalty"),
    (asked(sampling=Sampling(presence_penalty=0.5)), "penalties", "presence_penalty"),
    (asked(sampling=Sampling(frequency_penalty=-0.5)), "penalties", "frequency_penalty"),
    (asked(stopping=Stopping(min_tokens=5)), "min_tokens", "min_tokens"),
    (asked(stopping=Stopping(ignore_eos=True)), "ignore_eos", "ignore_eos"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_question_can_go_to_anyone(kind: Kind) -> None:
    plain = asked(sampling=Sampling(temperature=0.5, top_p=0.5), stopping=Stopping(max_tokens=5, stop=("x",)))
    assert excluded_by(plain, provider(kind, cannot=set(FEATURES))) is None


@pytest.mark.parametrize(("request_", "feature", "field"), NEEDS, ids=[field for _, _, field in NEEDS])
def test_what_is_asked_for_needs_a_provider_that_has_it(request_: Request, feature: str, field: str) -> None:
    for kind in KINDS:
        assert excluded_by(request_, provider(kind, cannot={feature})) == field
        assert excluded_by(request_, provider(kind, also={feature})) is None


def test_every_feature_is_asked_for_by_some_request() -> None:
    assert {feature for _, feature, _ in NEEDS} == FEATURES


@pytest.mark.parametrize(("request_", "feature", "field"), NEEDS, ids=[field for _, _, field in NEEDS])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_has_is_in_the_body_that_it_is_sent(
    kind: Kind, request_: Request, feature: str, field: str
) -> None:
    if excluded_by(request_, provider(kind)) is None:
        plain = wire_of(kind).body(asked(), provider(kind))
        assert wire_of(kind).body(request_, provider(kind)) != plain


def test_cannot_goes_before_also() -> None:
    assert excluded_by(TOOLS, provider(also={"tools"}, cannot={"tools"})) == "tools"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "prompts", [(TextPrompt("x"),), (TokenPrompt((1,)),), (ChatPrompt((USER,)), ChatPrompt((USER,)))]
)
def test_text_completions_and_token_ids_stay_here(kind: Kind, prompts: tuple[Prompt, ...]) -> None:
    assert excluded_by(Request("r", "auto", prompts), provider(kind, also=set(FEATURES))) == "prompt"


@pytest.mark.parametrize("kind", KINDS)
def test_token_ids_of_the_local_model_mean_nothing_elsewhere(kind: Kind) -> None:
    biased = asked(sampling=Sampling(logit_bias=((5, 1.0),)))
    assert excluded_by(biased, provider(kind, also=set(FEATURES))) == "logit_bias"


@pytest.mark.parametrize("kind", KINDS)
def test_more_stop_strings_than_a_kind_takes_are_not_cut_off(kind: Kind) -> None:
    stops = tuple(f"<{i}>" for i in range(MAX_STOPS[kind]))
    assert excluded_by(asked(stopping=Stopping(stop=stops)), provider(kind)) is None
    assert excluded_by(asked(stopping=Stopping(stop=(*stops, "x"))), provider(kind)) == "stop"


@pytest.mark.parametrize("stop", ["\n", "\n\n", " "])
def test_anthropic_takes_no_stop_string_of_nothing_but_space(stop: str) -> None:
    # It answers 400: each stop sequence must contain non-whitespace.
    assert excluded_by(asked(stopping=Stopping(stop=("###", stop))), provider("anthropic")) == "stop"
    assert excluded_by(asked(stopping=Stopping(stop=("###", stop))), provider("openai")) is None


def test_anthropic_s_temperature_ends_at_one() -> None:
    assert excluded_by(asked(sampling=Sampling(temperature=1.0)), provider("anthropic")) is None
    assert excluded_by(asked(sampling=Sampling(temperature=1.1)), provider("anthropic")) == "temperature"
    assert excluded_by(asked(sampling=Sampling(temperature=1.1)), provider("openai")) is None


@pytest.mark.parametrize(("budget", "max_tokens"), [(1, None), (1023, None), (2000, 2000), (10_000, None)])
def test_anthropic_takes_budgets_for_thoughts_from_1024_and_below_the_limit_only(
    budget: int, max_tokens: int | None
) -> None:
    # anthropic's ThinkingConfigEnabledParam: "Must be >=1024 and less than max_tokens"; the provider's own is 8192.
    request = asked(reasoning=Reasoning(budget=budget), stopping=Stopping(max_tokens=max_tokens))
    assert excluded_by(request, provider("anthropic")) == "thinking_token_budget"
    fits = asked(reasoning=Reasoning(budget=1024), stopping=Stopping(max_tokens=2000))
    assert excluded_by(fits, provider("anthropic")) is None


def test_an_effort_of_none_switches_what_a_template_reads_and_still_goes_out() -> None:
    # As the wire format parses `"reasoning_effort": "none"`.
    none = asked(kwargs={"reasoning_effort": "none", "enable_thinking": False, "thinking": False})
    assert excluded_by(none, provider("openai")) is None
    assert wire_of("openai").body(none, provider("openai"))["reasoning_effort"] == "none"


@pytest.mark.parametrize("kwargs", [{"enable_thinking": False}, {"thinking": True}, {"enable_thinking": True}])
def test_a_switch_of_thoughts_that_the_client_set_itself_is_not_dropped(kwargs: dict[str, Any]) -> None:
    request = asked(kwargs=kwargs)
    assert excluded_by(request, provider("openai", also={"chat_template_kwargs"})) is None
    for kind in KINDS:
        assert excluded_by(request, provider(kind)) == "chat_template_kwargs"
