"""Real upstreams: another appliance, and the C++ llama-server where its wheel is installed. They answer as themselves,
through this daemon, to the official client."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import openai
import pytest

from tests.integration.daemon_fixture import DEFAULTS, Daemon, wait_until
from tests.integration.frontier_fixture import openai_client

ROOT = Path(__file__).parents[2]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "description": "Now", "parameters": SCHEMA}}]
ASKED: Any = [
    {"role": "developer", "content": "Be short."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "What is the weather "}, {"type": "text", "text": "in Rome?"}],
    },
]


@pytest.fixture(scope="module")
def appliance_upstream(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scratch = tmp_path_factory.mktemp("upstream")
    daemon = Daemon(model_path, scratch / "state", scratch, {})
    try:
        yield daemon.wait_ready().url
    finally:
        daemon.close()


@pytest.fixture(scope="module")
def llama_server(model_path: Path) -> Iterator[str]:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the wheel with the C++ llama-server is one of the benchmarks' packages: `make bench` installs it")
    script = ROOT / "tests/bench/cpp_server.py"
    arguments = ["--model", str(model_path), "--port", "0", "--threads", "1", "--parallel", "2", "--ctx-size", "4096"]
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = next(line.strip() for line in process.stdout if line.startswith("http"))
        with httpx.Client(base_url=url, trust_env=False) as client:
            wait_until(lambda: client.get("/health").is_success, "the C++ server is ready", 30)
        yield url
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="module", params=["appliance_upstream", "llama_server"])
def upstream_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def upstream(request: pytest.FixtureRequest, upstream_name: str) -> str:
    url: str = request.getfixturevalue(upstream_name)
    return url


@pytest.fixture(scope="module")
def client(upstream: str, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    scratch = tmp_path_factory.mktemp("daemon")
    providers = [{"name": "up", "kind": "openai", "base_url": f"{upstream}/v1", "model": "auto"}]
    daemon = Daemon(model_path, scratch / "state", scratch, {**DEFAULTS, "frontier.providers": providers})
    try:
        with openai_client(daemon.wait_ready()) as client:
            yield client
    finally:
        daemon.close()


def test_text_comes_whole_and_in_pieces(client: openai.OpenAI) -> None:
    fields: Any = {"model": "frontier", "messages": ASKED, "max_tokens": 12, "temperature": 0}
    raw = client.chat.completions.with_raw_response.create(**fields)
    assert raw.headers["x-appliance-route"] == "frontier"
    whole = raw.parse()
    assert whole.choices[0].message.content
    assert whole.usage is not None
    assert 1 <= whole.usage.completion_tokens <= 12
    assert whole.usage.prompt_tokens > 10
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_an_answer_has_its_form(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
    answer = client.chat.completions.create(model="frontier", messages=ASKED, response_format=form, max_tokens=120)
    jsonschema_rs.validate(SCHEMA, json.loads(answer.choices[0].message.content or ""))


def test_a_tool_that_must_be_called_is_called(client: openai.OpenAI, upstream_name: str) -> None:
    answer = client.chat.completions.create(
        model="frontier", messages=ASKED, tools=TOOLS, tool_choice="required", max_tokens=120
    )
    choice = answer.choices[0]
    assert choice.finish_reason in ("tool_calls", "length")
    assert choice.message.tool_calls or upstream_name == "llama_server", (
        "with a model this weak it may say text instead"
    )
    assert all(
        call.type == "function" and call.function.name == "get_weather" for call in choice.message.tool_calls or ()
    )


def test_log_probabilities_pass_through(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="frontier", messages=ASKED, max_tokens=3, logprobs=True, top_logprobs=2, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    tokens = logprobs.content or []
    assert len(tokens) >= 1
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)


def test_what_the_upstream_refuses_is_refused_as_the_requests_fault(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="frontier", messages=[{"role": "user", "content": "long " * 30_000}], max_tokens=4
        )
    assert refused.value.code == "invalid_request"
    assert "context" in refused.value.message or "token" in refused.value.message
