"""What a client may send by mistake or malice: the status, code and field it is told, and a daemon that goes on."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.daemon_fixture import Daemon, chat_body

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOKENIZE, DETOKENIZE = "/v1/tokenize", "/v1/detokenize"
USER: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def client(daemon: Daemon) -> Iterator[httpx.Client]:
    """Of the running daemon; a good request must be answered after whatever a test sent."""
    with daemon.client() as client:
        yield client
        answer = client.post(CHAT, json=chat_body(max_tokens=1))
        assert answer.status_code == 200, answer.text


def refused(response: httpx.Response, status: int = 400, code: str = "invalid_request") -> dict[str, Any]:
    """Checks the status and the shape of the error; returns it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["x-request-id"]
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]
    if status in {429, 503}:
        assert int(response.headers["retry-after"]) >= 1
    return error


def names(param: str | None, field: str) -> bool:
    """Whether `param` is the field or a place in it."""
    return param is not None and (param == field or param.startswith((f"{field}.", f"{field}[")))


WRONG_CHAT_FIELDS: list[tuple[str, Any]] = [
    # wrong types
    ("model", 5),
    ("model", None),
    ("model", ["auto"]),
    ("messages", "Hi"),
    ("messages", None),
    ("messages", {}),
    ("messages", {"role": "user", "content": "Hi"}),
    ("temperature", "hot"),
    ("temperature", [1]),
    ("temperature", True),
    ("top_p", "0.5"),
    ("max_tokens", "10"),
    ("max_tokens", 1.5),
    ("max_tokens", True),
    ("max_completion_tokens", []),
    ("n", "2"),
    ("stream", "yes"),
    ("stream", 1),
    ("stream_options", True),
    ("stop", 5),
    ("stop", [5]),
    ("stop", {"a": "b"}),
    ("seed", "x"),
    ("seed", 1.5),
    ("logprobs", "true"),
    ("top_logprobs", "3"),
    ("logit_bias", []),
    ("logit_bias", {"x": 1}),
    ("logit_bias", {"5": "much"}),
    ("metadata", "task"),
    ("metadata", {"task": 5}),
    # empty
    ("messages", []),
    ("messages", [None]),
    ("messages", [[]]),
    ("messages", [{}]),
    ("messages", [{"role": "user"}]),
    ("messages", [{"content": "Hi"}]),
    ("messages", [{"role": "wizard", "content": "Hi"}]),
    ("messages", [{"role": "user", "content": 5}]),
    ("messages", [{"role": "user", "content": [5]}]),
    ("messages", [{"role": "user", "content": [{"type": "text"}]}]),
    ("messages", [{"role": "user", "content": [{"type": "text", "text": 5}]}]),
    ("messages", [{"role": "user", "content": [{"type": "teapot", "text": "Hi"}]}]),
    ("messages", [{"role": "tool", "content": "17"}]),
    ("messages", [{"role": "assistant", "tool_calls": [{"id": "1"}]}]),
    # ranges
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", -(10**30)),
    ("max_completion_tokens", 0),
    ("max_completion_tokens", -5),
    ("temperature", -0.1),
    ("temperature", 2.5),
    ("temperature", 1e308),
    ("top_p", -0.1),
    ("top_p", 1.1),
    ("n", 0),
    ("n", -1),
    ("n", 10**9),
    ("n", 10**40),
    ("top_logprobs", -1),
    ("top_logprobs", 1000),
    ("presence_penalty", -2.1),
    ("presence_penalty", 1e300),
    ("frequency_penalty", 2.1),
    ("seed", 10**60),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"49152": 1}),  # the vocabulary has 49,152 tokens: 0 to 49,151
    ("logit_bias", {"99999999999999999999": 1}),
    ("logit_bias", {"5": 101}),
    ("logit_bias", {"5": -101}),
    # values that are known and cannot be done
    ("response_format", {"type": "interpretive_dance"}),
    ("modalities", ["audio"]),
    ("service_tier", "platinum"),
    ("stream_options", {"include_usage": "yes"}),
]


@pytest.mark.parametrize(("field", "value"), WRONG_CHAT_FIELDS, ids=lambda v: json.dumps(v)[:60])
def test_a_wrong_chat_field_is_refused_by_name(client: httpx.Client, field: str, value: Any) -> None:
    needs: dict[str, Any] = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}.get(field, {})
    body = {**chat_body(), **needs, field: value}
    error = refused(client.post(CHAT, json=body))
    assert names(error["param"], field), error
    assert error["type"] == "invalid_request_error"
    assert field in error["message"]


def test_a_missing_field_is_refused_by_name(client: httpx.Client) -> None:
    for field in ("model", "messages"):
        body = chat_body()
        del body[field]
        assert names(refused(client.post(CHAT, json=body))["param"], field)


def test_a_field_that_no_api_has_is_refused_by_name(client: httpx.Client) -> None:
    error = refused(client.post(CHAT, json=chat_body(temprature=1)))
    assert names(error["param"], "temprature")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", None),
        ("prompt", 5),
        ("prompt", []),
        ("prompt", [[]]),
        ("prompt", ["a", 5]),
        ("prompt", [5, "a"]),
        ("prompt", [-1]),
        ("prompt", [49152]),
        ("prompt", [10**30]),
        ("prompt", [True]),
        ("max_tokens", -1),
        ("logprobs", True),
        ("logprobs", -1),
        ("logprobs", 1000),
        ("echo", "yes"),
        ("best_of", 0),
        ("suffix", 5),
    ],
    ids=lambda v: json.dumps(v)[:60],
)
def test_a_wrong_completion_field_is_refused_by_name(client: httpx.Client, field: str, value: Any) -> None:
    body = {"model": "auto", "prompt": "Hi", "max_tokens": 1, field: value}
    error = refused(client.post(COMPLETIONS, json=body))
    assert names(error["param"], field), error


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (TOKENIZE, {"model": "auto"}, None),
        (TOKENIZE, {"model": "auto", "prompt": 5}, "prompt"),
        (TOKENIZE, {"model": 5, "prompt": "x"}, "model"),
        (TOKENIZE, {"model": "auto", "messages": []}, "messages"),
        (DETOKENIZE, {"model": "auto"}, "tokens"),
        (DETOKENIZE, {"model": "auto", "tokens": "5"}, "tokens"),
        (DETOKENIZE, {"model": "auto", "tokens": ["5"]}, "tokens"),
        (DETOKENIZE, {"model": "auto", "tokens": [-1]}, "tokens"),
        (DETOKENIZE, {"model": "auto", "tokens": [49152]}, "tokens"),
        (DETOKENIZE, {"model": "auto", "tokens": [10**30]}, "tokens"),
        (DETOKENIZE, {"model": "auto", "tokens": [1.5]}, "tokens"),
    ],
)
def test_a_wrong_token_request_is_refused_by_name(
    client: httpx.Client, path: str, body: dict[str, Any], field: str | None
) -> None:
    error = refused(client.post(path, json=body))
    assert field is None or names(error["param"], field), error


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, TOKENIZE, DETOKENIZE])
def test_an_unknown_model_is_not_found(client: httpx.Client, path: str) -> None:
    body = {"model": "no-such-model"} | {
        CHAT: {"messages": USER},
        COMPLETIONS: {"prompt": "Hi"},
        TOKENIZE: {"prompt": "Hi"},
        DETOKENIZE: {"tokens": [1]},
    }[path]
    error = refused(client.post(path, json=body), 404, "model_not_found")
    assert error["param"] == "model"
    assert "no-such-model" in error["message"]


class TestPromptsLongerThanTheContext:
    TOO_LONG = "word " * 9000  # the model's context has 8,192 tokens

    def test_are_refused_whole(self, client: httpx.Client) -> None:
        error = refused(client.post(CHAT, json=chat_body(self.TOO_LONG)), 400, "context_length_exceeded")
        assert error["param"] == "messages"
        assert "8192" in error["message"].replace(",", "")

    def test_are_refused_as_a_stream_before_it_begins(self, client: httpx.Client) -> None:
        refused(client.post(CHAT, json=chat_body(self.TOO_LONG, stream=True)), 400, "context_length_exceeded")

    def test_are_refused_as_text_and_as_tokens(self, client: httpx.Client) -> None:
        for prompt in (self.TOO_LONG, [5] * 9000):
            error = refused(
                client.post(COMPLETIONS, json={"model": "auto", "prompt": prompt, "max_tokens": 1}),
                400,
                "context_length_exceeded",
            )
            assert names(error["param"], "prompt")

    def test_are_not_confused_with_a_token_limit_that_the_context_cuts(self, client: httpx.Client) -> None:
        answer = client.post(CHAT, json=chat_body(max_tokens=8192, stop=[" "]))
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "body",
    [
        r'{"model":"auto","messages":[{"role":"user","content":"a\ud800b"}],"max_tokens":1}',
        r'{"model":"auto","messages":[{"role":"user","content":"\udfff"}],"max_tokens":1}',
        r'{"model":"auto","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}],"max_tokens":1}',
        r'{"model":"auto","messages":[{"role":"user","content":"Hi","name":"\ud800"}],"max_tokens":1}',
        r'{"model":"\ud800","messages":[{"role":"user","content":"Hi"}],"max_tokens":1}',
        r'{"model":"auto","messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"stop":"\ud800"}',
        r'{"model":"auto","messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"\ud800":1}',
        r'{"model":"auto","messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"metadata":{"task":"\ud800"}}',
        r'{"model":"auto","messages":[{"role":"\ud800","content":"Hi"}],"max_tokens":1}',
    ],
)
def test_half_a_surrogate_pair_is_refused_or_replaced_and_never_a_fault(client: httpx.Client, body: str) -> None:
    response = client.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert response.status_code in {200, 400, 404}, response.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"{} {}",
        b"\xff\xfe{}",
        b'{"model": "auto", "messages": [}',
        b"\x00" * 100,
        b'{"model":"\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"model":"auto","messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"model":"auto","max_tokens":1' + b"0" * 5000 + b',"messages":[{"role":"user","content":"Hi"}]}',
        b'{"model":"auto","temperature":NaN,"messages":[{"role":"user","content":"Hi"}]}',
        b'{"model":"auto","temperature":Infinity,"messages":[{"role":"user","content":"Hi"}]}',
        b'{"model":"auto","temperature":1e999,"messages":[{"role":"user","content":"Hi"}]}',
        b'{"model":"auto","logit_bias":{"5":NaN},"messages":[{"role":"user","content":"Hi"}]}',
    ],
    ids=lambda body: repr(body[:40]),
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, TOKENIZE, DETOKENIZE])
def test_a_body_that_is_no_request_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    refused(client.post(path, content=body, headers={"content-type": "application/json"}))


def test_a_body_past_the_size_limit_is_refused(client: httpx.Client) -> None:
    body = b'{"model":"auto","messages":[{"role":"user","content":"' + b"x" * 11_000_000 + b'"}]}'
    refused(client.post(CHAT, content=body, headers={"content-type": "application/json"}), 413, "body_too_large")


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/v1/models", "/v1/models/auto", "/metrics", "/admin/v1/status"]
)
def test_what_can_be_got_can_be_asked_for_by_its_head(client: httpx.Client, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_another_method_is_not_allowed(client: httpx.Client, method: str) -> None:
    response = client.request(method, CHAT)
    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


def test_fields_that_belong_together_are_refused_apart(client: httpx.Client) -> None:
    assert names(refused(client.post(CHAT, json=chat_body(top_logprobs=2)))["param"], "top_logprobs")
    stream_options = refused(client.post(CHAT, json=chat_body(stream_options={"include_usage": True})))
    assert names(stream_options["param"], "stream_options")


def test_a_seed_may_be_any_64_bit_number(client: httpx.Client) -> None:
    for seed in (0, -1, 2**63 - 1, -(2**63)):
        response = client.post(CHAT, json=chat_body(seed=seed, max_tokens=1, temperature=1))
        assert response.status_code == 200, (seed, response.text)


CALL: Any = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("history", "param"),
    [
        ([{"role": "tool", "tool_call_id": "c1", "content": "42"}], "messages[1].tool_call_id"),
        (
            [
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c2", "content": "42"},
            ],
            "messages[2].tool_call_id",
        ),
        (
            [{"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "look", "arguments": "{"}}]}],
            "messages[1].tool_calls[0].function.arguments",
        ),
    ],
)
def test_a_broken_tool_history_names_its_message(client: httpx.Client, history: Any, param: str) -> None:
    error = refused(client.post(CHAT, json={**chat_body(), "messages": [*USER, *history]}))
    assert error["param"] == param
