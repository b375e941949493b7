"""What a good completion body becomes."""

from typing import Any

import pytest

from appliance.api.openai.completion_request import CompletionRequest, parse_completion
from appliance.protocol import Hints, Prompt, Request, Sampling, Stopping, TextPrompt, TokenPrompt


def parse(**fields: Any) -> Request:
    return parse_completion({"model": "local", "prompt": "Once", **fields}, {}, "r1")


def test_the_smallest_body_has_openais_defaults() -> None:
    assert parse() == Request(
        id="r1",
        model="local",
        prompts=(TextPrompt("Once"),),
        sampling=Sampling(),
        stopping=Stopping(max_tokens=16),
        hints=Hints(),
    )


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", (TextPrompt("a"),)),
        (["a", "b"], (TextPrompt("a"), TextPrompt("b"))),
        ([1, 2, 3], (TokenPrompt((1, 2, 3)),)),
        ([0], (TokenPrompt((0,)),)),
        ([[1, 2], [3]], (TokenPrompt((1, 2)), TokenPrompt((3,)))),
    ],
)
def test_a_prompt_is_text_or_tokens_one_or_many(prompt: Any, expected: tuple[Prompt, ...]) -> None:
    assert parse(prompt=prompt).prompts == expected


def test_null_means_absent_for_every_optional_field() -> None:
    optional = set(CompletionRequest.model_fields) - {"model", "prompt"}
    assert len(optional) > 20
    assert parse(**dict.fromkeys(optional)) == parse()


def test_the_fields_that_chat_does_not_have() -> None:
    assert parse(echo=True).echo is True
    assert parse(logprobs=0).logprobs == 0
    assert parse(logprobs=20).logprobs == 20
    assert parse(echo=False, logprobs=5).logprobs == 5
    assert parse(max_tokens=100).stopping.max_tokens == 100


@pytest.mark.parametrize(("n", "best_of"), [(None, 1), (1, 1), (3, 3), (3, 1), (3, None)])
def test_best_of_may_ask_for_what_happens_anyway(n: int | None, best_of: int | None) -> None:
    assert parse(n=n, best_of=best_of) == parse(n=n)


def test_prompts_times_n_is_allowed_up_to_the_cap() -> None:
    request = parse(prompt=["x"] * 8, n=16)
    assert len(request.prompts) * request.n == 128


def test_hints_and_streams_work_as_in_chat() -> None:
    body = {
        "model": "m",
        "prompt": "x",
        "stream": True,
        "stream_options": {"include_usage": True},
        "metadata": {"task": "t"},
        "service_tier": "priority",
    }
    request = parse_completion(body, {"x-appliance-cache": "off"}, "r1")
    assert request.hints == Hints(task="t", criticality="critical", cache="off")
    assert request.include_usage
