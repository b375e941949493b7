"""The daemon against its own OpenAPI document: no generated request gets a 5xx or an answer it does not describe."""

from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.daemon_fixture import Daemon, chat_body

EXAMPLES = 20  # for each operation and mode
ANSWER_TIMEOUT_S = 15
CHECKS: list[CheckFunction] = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/tokenize"),
    ("POST", "/v1/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/admin/v1/status"),
    ("GET", "/admin/v1/events"),
    ("DELETE", "/v1/tasks/{id}"),
    ("PUT", "/admin/v1/offline"),
    ("POST", "/admin/v1/breaker"),
    ("GET", "/admin/v1/cache"),
    ("DELETE", "/admin/v1/cache"),
    ("POST", "/admin/v1/cache/feedback"),
]
LIMITS = ("max_tokens", "max_completion_tokens")


def shorten(body: Any, path: str) -> Any:
    """The body, asking for the served model and for no more than a test's worth of tokens."""
    if not isinstance(body, dict) or not path.endswith("completions"):
        return body
    short = {key: min(value, 2) if key in LIMITS and type(value) is int else value for key, value in body.items()}
    if all(short.get(limit) is None for limit in LIMITS):
        short["max_tokens"] = 2
    if type(short.get("n")) is int and short["n"] > 2:
        short["n"] = 2
    return {key: value for key, value in short.items() if key not in {"min_tokens", "best_of", "metadata"}}


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [(*operation, "positive") for operation in OPERATIONS]
    + [
        (*operation, "negative") for operation in OPERATIONS if operation[0] == "POST"
    ],  # a GET has nothing to get wrong
)
def test_generated_requests_are_answered_as_the_document_says(
    daemon: Daemon, method: str, path: str, mode: str
) -> None:
    schema = schemathesis.openapi.from_url(f"{daemon.url}/openapi.json")
    operation = schema[path][method]
    strategy = operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode))

    @hypothesis.settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    @hypothesis.given(case=strategy)
    def check(case: schemathesis.Case[Any]) -> None:
        case.body = shorten(case.body, path)
        if mode == "positive" and isinstance(case.body, dict):
            case.body["model"] = "auto"
        if case.headers is not None:
            case.headers.pop("x-appliance-timeout", None)  # a deadline of a millisecond is answered with 504
        response = case.call(timeout=ANSWER_TIMEOUT_S)
        assert response.status_code < 500, f"{response.status_code} {response.text} for {case.as_curl_command()}"
        case.validate_response(response, checks=CHECKS)

    check()
    with daemon.client() as client:
        assert client.post("/admin/v1/breaker", json={"action": "reset"}).status_code == 200
        assert client.post("/v1/chat/completions", json=chat_body()).status_code == 200


def test_the_document_lists_every_path_of_the_tests_and_no_other(daemon: Daemon) -> None:
    document = httpx.get(f"{daemon.url}/openapi.json", trust_env=False).json()
    listed = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert listed == set(OPERATIONS)
