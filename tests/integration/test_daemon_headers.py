"""What the daemon says in headers, and the hints that a client may give in them."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.daemon_fixture import LONG_STREAM, Daemon, chat_body, data_lines

CHAT = "/v1/chat/completions"


@pytest.fixture
def client(daemon: Daemon) -> Iterator[httpx.Client]:
    with daemon.client() as client:
        yield client


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_says_where_it_came_from(client: httpx.Client, daemon: Daemon, stream: bool) -> None:  # noqa: FBT001 - pytest's parameter
    headers = {"x-appliance-step": "extract"}
    response = client.post(CHAT, json=chat_body(stream=stream), headers=headers)
    assert response.headers["x-appliance-route"] == "local"
    reason = response.headers["x-appliance-reason"]
    assert reason
    assert reason.replace("-", "").isalnum()
    assert reason == reason.lower()
    assert response.headers["x-appliance-model"] == daemon.model_name
    assert response.headers["x-appliance-step"] == "extract"
    assert float(response.headers["x-appliance-queue-ms"]) >= 0
    assert float(response.headers["openai-processing-ms"]) >= 0
    kind = "text/event-stream" if stream else "application/json"
    assert response.headers["content-type"].startswith(kind)


def test_every_answer_has_an_id_of_its_own_that_the_log_knows(client: httpx.Client, daemon: Daemon) -> None:
    answers = [
        client.post(CHAT, json=chat_body()),
        client.post(CHAT, json={}),
        client.get("/v1/models"),
        client.get("/nowhere"),
        client.get("/v1/models", headers={"host": "evil.example"}),
        client.get("/admin/v1/status"),
    ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    for request_id, answer in zip(ids, answers, strict=True):
        record = daemon.log.wait_for("request", 5, id=request_id)
        assert record["status"] == answer.status_code
        assert record["ms"] >= 0


def test_the_log_line_of_an_answer_has_its_figures(client: httpx.Client, daemon: Daemon) -> None:
    answer = client.post(CHAT, json=chat_body(), headers={"x-appliance-task": "t-1", "x-appliance-step": "plan"})
    record = daemon.log.wait_for("request", 5, id=answer.headers["x-request-id"])
    usage = answer.json()["usage"]
    assert record["task"] == "t-1"
    assert record["step"] == "plan"
    assert record["model"] == daemon.model_name
    assert record["route"] == "local"
    assert record["prompt_tokens"] == usage["prompt_tokens"]
    assert record["completion_tokens"] == usage["completion_tokens"]
    assert record["ttft_ms"] > 0


def test_prompts_and_answers_are_not_logged(client: httpx.Client, daemon: Daemon) -> None:
    client.post(CHAT, json=chat_body("The password is swordfish-4711."))
    client.post(CHAT, json=chat_body("The password is swordfish-4711.", temperature="swordfish-4711"))
    last = client.get("/nowhere")
    daemon.log.wait_for("request", 5, id=last.headers["x-request-id"])
    assert "swordfish" not in "\n".join(daemon.log.lines)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-appliance-step", "dance"),
        ("x-appliance-step", ""),
        ("x-appliance-criticality", "mega"),
        ("x-appliance-cache", "maybe"),
        ("x-appliance-privacy", "some"),
        ("x-appliance-task", "x" * 129),
        ("x-appliance-timeout", "soon"),
        ("x-appliance-timeout", "-1"),
        ("x-appliance-timeout", "0"),
        ("x-appliance-timeout", "nan"),
        ("x-appliance-timeout", "1e999"),
    ],
)
def test_an_unknown_hint_is_refused_by_its_header(client: httpx.Client, header: str, value: str) -> None:
    response = client.post(CHAT, json=chat_body(), headers={header: value})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == header
    assert header in error["message"]


@pytest.mark.parametrize(
    ("key", "value"), [("step", "dance"), ("criticality", "mega"), ("timeout_s", "soon"), ("task", "x" * 129)]
)
def test_an_unknown_hint_in_metadata_is_refused_by_its_key(client: httpx.Client, key: str, value: str) -> None:
    response = client.post(CHAT, json=chat_body(metadata={key: value}))
    assert response.status_code == 400, response.text
    assert key in response.json()["error"]["param"]


@pytest.mark.parametrize(
    "hints",
    [
        {"x-appliance-step": step}
        for step in ("plan", "extract", "classify", "summarize", "transform", "code", "chat", "synthesize")
    ]
    + [{"x-appliance-criticality": value} for value in ("critical", "normal", "sheddable")]
    + [{"x-appliance-cache": value} for value in ("off", "exact", "semantic", "refresh")]
    + [{"x-appliance-privacy": value} for value in ("any", "local-only")]
    + [{"x-appliance-task": "täsk " * 20}, {"x-appliance-timeout": "30"}],
    ids=str,
)
def test_every_hint_of_the_contract_is_taken(client: httpx.Client, hints: dict[str, str]) -> None:
    encoded = {name.encode(): value.strip().encode() for name, value in hints.items()}
    response = client.post(CHAT, json=chat_body(max_tokens=1), headers=encoded)
    assert response.status_code == 200, response.text


def test_hints_in_metadata_are_those_of_the_headers(client: httpx.Client) -> None:
    metadata = {"task": "t", "step": "classify", "criticality": "sheddable", "privacy": "local-only", "timeout_s": "60"}
    response = client.post(CHAT, json=chat_body(metadata=metadata))
    assert response.status_code == 200, response.text
    assert response.headers["x-appliance-step"] == "classify"


class TestADeadline:
    def test_that_passes_before_the_first_token_is_a_504(self, client: httpx.Client) -> None:
        body = chat_body(" ".join(f"w{n}" for n in range(1500)), stream=True)
        response = client.post(CHAT, json=body, headers={"x-appliance-timeout": "0.3"})
        assert response.status_code == 504, response.text
        assert response.json()["error"]["code"] == "deadline_exceeded"

    def test_that_passes_during_a_whole_answer_is_a_504(self, client: httpx.Client) -> None:
        body = chat_body(**{**LONG_STREAM, "stream": False})
        response = client.post(CHAT, json=body, headers={"x-appliance-timeout": "1"})
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "deadline_exceeded"

    def test_that_passes_within_a_stream_is_an_error_event_and_the_end(self, client: httpx.Client) -> None:
        body = chat_body(**LONG_STREAM)
        headers = {"x-appliance-timeout": "3"}
        with client.stream("POST", CHAT, json=body, headers=headers) as response:
            assert response.status_code == 200
            data = list(data_lines(response))
        error: dict[str, Any] = json.loads(data[-1])["error"]
        assert error["code"] == "deadline_exceeded"
        assert len(data) > 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_to_http_1_0_has_a_length_and_no_chunks(daemon: Daemon, stream: bool) -> None:  # noqa: FBT001 - pytest's parameter
    body = json.dumps(chat_body(stream=stream)).encode()
    headed = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    head = f"POST {CHAT} HTTP/1.0\r\n{headed}"
    with socket.create_connection(("127.0.0.1", httpx.URL(daemon.url).port or 0), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    headers, _, content = answer.partition(b"\r\n\r\n")
    assert b" 200 " in headers.splitlines()[0]
    assert b"transfer-encoding" not in headers.lower()
    assert f"content-length: {len(content)}".encode() in headers.lower()
    assert content.endswith(b"data: [DONE]\n\n") if stream else json.loads(content)["choices"]
