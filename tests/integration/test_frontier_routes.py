"""Where a request is answered, and that its answer looks the same wherever that was."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.integration.daemon_fixture import BackgroundStream, Daemon, chat_body, data_lines
from tests.integration.frontier_fixture import (
    ANSWER,
    HELLO,
    MODEL,
    Outcome,
    ask,
    attempts,
    frontier_daemon,
    openai_client,
    provider,
    spent_usd,
)
from tests.integration.stand_in_fixture import StandIn

CHAT = "/v1/chat/completions"
POLICY = {
    "plan": "frontier",
    "extract": "local-then-escalate",
    "classify": "local",
    "summarize": "frontier",
    "transform": "local-then-escalate",
    "code": "local",
    "chat": "local",
    "synthesize": "frontier",
}
PATHS = {"claude": "/v1/messages", "gpt": CHAT, "azure": f"/openai/deployments/{MODEL}/chat/completions"}
# What a request asks for so that only this one of the three can have it; without that Claude is the first.
ONLY: dict[str, dict[str, Any]] = {"claude": {"top_k": 3}, "gpt": {"seed": 1}, "azure": {"min_p": 0.01}}
KIND = pytest.mark.parametrize("kind", ["claude", "gpt", "azure"])
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
PARAMETERS = {"type": "object", "properties": {"city": {"const": "Paris"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Says the weather.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
]
LONG: dict[str, Any] = {"stream": True, "max_tokens": 2000, "metadata": {"step": "extract"}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Verdict(BaseModel):
    colour: Literal["red", "green"]
    sure: bool


@dataclass(frozen=True, slots=True)
class Frontier:
    daemon: Daemon
    client: openai.OpenAI
    stand_in: StandIn

    def ask(self, **fields: Any) -> Outcome:
        return ask(self.client, **fields)

    def paths(self) -> list[str]:
        """Of the requests that came to the frontier."""
        return [request["path"] for request in self.stand_in.journal()["requests"]]


def providers(stand_in: StandIn) -> list[dict[str, object]]:
    return [
        provider(stand_in, "claude", "anthropic", attempts=1),
        provider(stand_in, "gpt", attempts=1, cannot=["n", "json_object"]),
        provider(stand_in, "azure", "azure", attempts=1, also=["min_p"], cannot=["n", "seed", "json_object"]),
    ]


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def running(stand_in: StandIn, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontier]:
    settings = {f"routing.{step}": treatment for step, treatment in POLICY.items()}
    folder = tmp_path_factory.mktemp("routes")
    with (
        frontier_daemon(model_path, folder, providers(stand_in), settings) as daemon,
        openai_client(daemon) as client,
    ):
        yield Frontier(daemon, client, stand_in)


@pytest.fixture
def frontier(running: Frontier) -> Frontier:
    running.stand_in.reset()
    return running


# --- Hints and aliases ---


@pytest.mark.parametrize("by", ["header", "metadata"])
@pytest.mark.parametrize(("step", "treatment"), POLICY.items())
def test_a_step_goes_where_the_policy_says(frontier: Frontier, step: str, treatment: str, by: str) -> None:
    said: dict[str, Any] = {"headers": {"x-appliance-step": step}} if by == "header" else {"metadata": {"step": step}}
    for stream in (False, True):
        outcome = frontier.ask(
            model="auto", max_tokens=1, temperature=0, stream=stream, **said
        )  # too short for any check
        assert outcome.status == 200
        assert outcome.route == ("local" if treatment == "local" else "frontier")
        assert outcome.reason == ("escalated-length" if treatment == "local-then-escalate" else f"step-{step}")
        assert outcome.headers["x-appliance-step"] == step
        here = outcome.route == "local"
        assert outcome.headers["x-appliance-model"] == (frontier.daemon.model_name if here else MODEL)
        assert outcome.text == "You" or here
    assert len(frontier.paths()) == (0 if treatment == "local" else 2)


@STREAM
def test_an_alias_beats_the_step(frontier: Frontier, *, stream: bool) -> None:
    hints = {"x-appliance-step": "synthesize"}
    for model, reason in (("local", "local-alias"), (frontier.daemon.model_name, "model-name")):
        outcome = frontier.ask(model=model, headers=hints, max_tokens=1, stream=stream)
        assert (outcome.route, outcome.reason) == ("local", reason)
    assert frontier.paths() == []
    outcome = frontier.ask(model="frontier", headers={"x-appliance-step": "code"}, stream=stream)
    assert (outcome.route, outcome.reason, outcome.text) == ("frontier", "frontier-alias", ANSWER)
    assert outcome.headers["x-appliance-step"] == "code"


def test_auto_without_a_hint_says_what_it_took_the_step_for(frontier: Frontier) -> None:
    summarize = [
        {"role": "user", "content": "Summarize the following text in two sentences: " + "It rained all day. " * 30}
    ]
    outcome = frontier.ask(model="auto", messages=summarize, max_tokens=8)
    assert (outcome.route, outcome.reason) == ("frontier", "looks-like-summarize")
    assert outcome.headers["x-appliance-step"] == "summarize"


# --- One shape everywhere ---


def shape(value: Any) -> Any:
    """The types of JSON, without its values."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items() if name != "cost_usd"}
    return [shape(item) for item in value[:1]] if isinstance(value, list) else type(value).__name__


def said(frontier: Frontier, model: str, *, stream: bool, **fields: Any) -> Any:
    """The shape of an answer; of a stream, that of its first chunk, one with text, the last, and its usage."""
    body = chat_body("Hello to you", model=model, stream=stream, max_tokens=8, **fields)
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    with frontier.daemon.client() as client, client.stream("POST", CHAT, json=body) as response:
        assert response.status_code == 200, response.read()
        if not stream:
            return shape(json.loads(response.read()))
        *chunks, done = data_lines(response)
    assert done == "[DONE]"
    first, *texts, last, usage = [json.loads(chunk) for chunk in chunks]
    assert texts
    assert all(chunk["choices"][0]["delta"].keys() == {"content"} for chunk in texts)
    assert usage["choices"] == []
    return [shape(chunk) for chunk in (first, texts[0], last, usage)]


@STREAM
@KIND
def test_an_answer_has_the_shape_of_a_local_one(frontier: Frontier, kind: str, *, stream: bool) -> None:
    assert said(frontier, "frontier", stream=stream, **ONLY[kind]) == said(frontier, "local", stream=stream)
    assert frontier.paths() == [PATHS[kind]]


@STREAM
@pytest.mark.parametrize("kind", ["gpt", "azure"])
def test_log_probabilities_come_where_there_are_any(frontier: Frontier, kind: str, *, stream: bool) -> None:
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 1, "stream": stream}
    assert said(frontier, "frontier", **ONLY[kind], **asked) == said(frontier, "local", **asked)


@STREAM
@KIND
def test_tools_are_called_and_their_results_heard(frontier: Frontier, kind: str, *, stream: bool) -> None:
    asked: dict[str, Any] = {"tools": TOOLS, "stream": stream, "marks": ONLY[kind]}
    first = frontier.ask(**asked)
    ((call_id, name, arguments),) = first.calls
    assert (name, json.loads(arguments), first.finish, first.text) == ("weather", {"city": "Paris"}, "tool_calls", "")
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    results = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "rain"},
    ]
    second = frontier.ask(messages=[*HELLO, *results], **asked)
    assert (second.text[:10], second.finish, second.calls) == ("You said: ", "stop", ())
    sent = json.dumps(frontier.stand_in.journal()["requests"][1]["body"]["messages"])
    assert sent.count(call_id) == 2
    assert "rain" in sent
    assert "Paris" in sent


def test_a_tool_loop_stays_where_it_began(frontier: Frontier) -> None:
    messages: list[Any] = [{"role": "user", "content": "What about the weather where the loop goes on?"}]
    asked: dict[str, Any] = {"model": "auto", "tools": TOOLS, "max_tokens": 30}
    first = frontier.ask(messages=messages, headers={"x-appliance-step": "synthesize"}, **asked)
    ((call_id, name, arguments),) = first.calls
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    messages += [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "rain"},
    ]
    second = frontier.ask(messages=messages, **asked)
    assert (second.route, second.reason) == ("frontier", "tool-loop")


@STREAM
@KIND
def test_two_calls_at_once_stay_apart(frontier: Frontier, kind: str, *, stream: bool) -> None:
    frontier.stand_in.control(calls=2)
    asked: dict[str, Any] = {"tools": TOOLS, "stream": stream, "marks": ONLY[kind]}
    calls = frontier.ask(**asked).calls
    assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [
        ("weather", {"city": "Paris"}),
        ("clock", {}),
    ]
    assert len({call_id for call_id, _, _ in calls}) == 2
    assert len(frontier.ask(**asked, parallel_tool_calls=False).calls) == 1
    forced = {"type": "function", "function": {"name": "clock"}}
    assert [name for _, name, _ in frontier.ask(**asked, tool_choice=forced).calls] == ["clock"]
    assert frontier.ask(**asked, tool_choice="none").text == ANSWER


@pytest.mark.parametrize("kind", ["local", *PATHS])
def test_a_form_is_kept_and_parsed(frontier: Frontier, kind: str) -> None:
    asked: Any = {"model": "local" if kind == "local" else "frontier", "messages": HELLO, "response_format": Verdict}
    asked |= {"max_tokens": 60, "extra_body": ONLY.get(kind)}
    parsed = frontier.client.chat.completions.parse(**asked).choices[0].message.parsed
    assert isinstance(parsed, Verdict)
    with frontier.client.chat.completions.stream(**asked) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Verdict)


@STREAM
@KIND
def test_usage_tells_what_was_cached_and_what_it_cost(frontier: Frontier, kind: str, *, stream: bool) -> None:
    frontier.stand_in.control(cached=4, reasoning="Let me think")
    outcome = frontier.ask(stream=stream, marks=ONLY[kind])
    assert (outcome.reasoning, outcome.text) == ("Let me think", ANSWER)
    assert outcome.usage is not None
    assert (outcome.usage["prompt_tokens"], outcome.usage["completion_tokens"]) == (6, 8)
    assert outcome.usage["prompt_tokens_details"]["cached_tokens"] == 4
    assert outcome.usage["completion_tokens_details"]["reasoning_tokens"] == 3
    billed_usd = frontier.stand_in.journal()["billed_usd"]
    assert outcome.usage["cost_usd"] == pytest.approx(billed_usd, abs=1e-9)
    assert spent_usd(attempts(frontier.daemon, outcome, 1)) == pytest.approx(billed_usd, abs=1e-9)


# --- Images, and what not every provider can be asked for ---


@STREAM
@KIND
def test_an_image_is_for_the_frontier(frontier: Frontier, kind: str, *, stream: bool) -> None:
    picture = {"type": "image_url", "image_url": {"url": PIXEL}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hello to you"}, picture]}]
    outcome = frontier.ask(model="auto", messages=messages, marks=ONLY[kind], stream=stream)
    assert (outcome.route, outcome.reason, outcome.text) == ("frontier", "images", ANSWER)
    sent = json.dumps(frontier.stand_in.journal()["requests"][0]["body"])
    assert PIXEL.partition(",")[2] in sent
    refused = frontier.ask(model="local", messages=messages, stream=stream)
    assert (refused.status, refused.param) == (400, "messages[0].content[1]")


@pytest.mark.parametrize("fields", [{"logprobs": True}, {"presence_penalty": 0.5}, {"temperature": 1.5}], ids=str)
def test_what_anthropic_cannot_express_goes_to_the_next_provider(frontier: Frontier, fields: dict[str, Any]) -> None:
    assert frontier.ask(**fields).text == ANSWER
    assert frontier.paths() == [PATHS["gpt"]]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
    ],
    ids=["n", "response_format", "logit_bias"],
)
def test_what_no_provider_can_express_is_named(frontier: Frontier, fields: dict[str, Any], param: str) -> None:
    refused = frontier.ask(**fields)
    assert (refused.status, refused.code, refused.param) == (400, "invalid_request", param)
    assert param in refused.message
    here = frontier.ask(model="auto", headers={"x-appliance-step": "synthesize"}, max_tokens=2, **fields)
    assert (here.route, here.reason, here.headers["x-appliance-degraded"]) == ("local", "inexpressible", "true")
    assert frontier.paths() == []


# --- Local first ---


@STREAM
def test_an_answer_that_fails_its_checks_is_made_again_once(frontier: Frontier, *, stream: bool) -> None:
    outcome = frontier.ask(
        model="auto", headers={"x-appliance-step": "extract"}, max_tokens=1, temperature=0, stream=stream
    )
    assert (outcome.route, outcome.reason, outcome.text) == ("frontier", "escalated-length", "You")
    rows = attempts(frontier.daemon, outcome, 2)
    assert [(row.route, row.outcome) for row in rows] == [("local", "completed"), ("frontier", "completed")]
    assert rows[-1].reason == "escalated-length"


@STREAM
def test_a_local_answer_comes_after_all_where_the_frontier_fails(frontier: Frontier, *, stream: bool) -> None:
    frontier.stand_in.fault("status", status=404, times=3)
    hints = {"x-appliance-step": "extract"}
    outcome = frontier.ask(model="auto", headers=hints, max_tokens=1, temperature=0, stream=stream)
    assert (outcome.status, outcome.route, outcome.reason) == (200, "local", "escalation-failed")
    assert outcome.headers["x-appliance-degraded"] == "true"
    assert outcome.headers["x-appliance-model"] == frontier.daemon.model_name
    assert outcome.finish == "length"
    assert len(frontier.paths()) == 3


def test_a_stream_is_sent_at_once_where_the_owner_wants_that(
    stand_in: StandIn, model_path: Path, tmp_path: Path
) -> None:
    stand_in.reset()
    settings = {"routing.escalating_stream": "at-once"}
    with (
        frontier_daemon(model_path, tmp_path, providers(stand_in), settings) as daemon,
        openai_client(daemon) as client,
    ):
        stream = BackgroundStream(daemon, chat_body("Write a long story about a fox.", **LONG))
        stream.wait_first_token()
        assert daemon.engine()["requests_in_flight"] == 1
        hints = {"x-appliance-step": "extract"}
        outcome = ask(client, model="auto", headers=hints, max_tokens=1, stream=True)
        assert (outcome.route, outcome.finish) == ("local", "length")
        assert stand_in.journal()["requests"] == []
        assert ask(client, model="auto", headers=hints, max_tokens=1).reason == "escalated-length"
