"""Real sessions of agent frameworks: a tool is called, its result goes back, and the session ends as it should."""

from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, wrap_model_call
from langchain.messages import AIMessage, ToolMessage
from langchain.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr
from pydantic_ai import Agent, RunContext, UsageLimits
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from tests.integration.daemon_fixture import Daemon

QUESTION = "How many people live in Paris? Look it up."
PEOPLE = 2_102_650
ONE_AT_A_TIME = {"parallel_tool_calls": False}  # a model of this size would go on calling


class City(BaseModel):
    """A city, and how many people live there."""

    name: str = Field(max_length=20)
    population: int = Field(ge=1, le=50_000_000)


@pytest.mark.parametrize("streams", [False, True])
async def test_pydantic_ai_calls_a_tool_and_returns_a_model(daemon: Daemon, streams: bool) -> None:  # noqa: FBT001 - pytest's parameter
    asked: list[str] = []

    async def first_only(context: RunContext[Any], definition: ToolDefinition) -> ToolDefinition | None:
        return definition if context.run_step == 1 else None  # a model of this size would go on asking

    async with httpx2.AsyncClient() as http:
        provider = OpenAIProvider(base_url=f"{daemon.url}/v1", api_key="none", http_client=http)
        agent = Agent(
            OpenAIChatModel("auto", provider=provider),
            output_type=City,
            model_settings={"temperature": 0, "max_tokens": 200, "parallel_tool_calls": False},
        )

        @agent.tool_plain(prepare=first_only)
        def look_up_population(city: str) -> int:
            """How many people live in a city."""
            asked.append(city)
            return PEOPLE

        limits = UsageLimits(request_limit=6)
        if streams:
            async with agent.run_stream(QUESTION, usage_limits=limits) as run:
                output, messages = await run.get_output(), run.all_messages()
        else:
            result = await agent.run(QUESTION, usage_limits=limits)
            output, messages = result.output, result.all_messages()
    assert isinstance(output, City)
    parts = [part for message in messages for part in message.parts]
    called = [part.tool_name for part in parts if isinstance(part, ToolCallPart)]
    assert asked
    assert called.count("look_up_population") == len(asked)
    assert PEOPLE in [part.content for part in parts if isinstance(part, ToolReturnPart)]


def test_langchain_calls_a_tool_and_answers(daemon: Daemon) -> None:
    asked: list[str] = []

    @tool
    def look_up_population(city: str) -> int:
        """How many people live in a city."""
        asked.append(city)
        return PEOPLE

    @wrap_model_call
    def one_call(request: ModelRequest, handler: Callable[[ModelRequest], Any]) -> Any:
        answered = any(isinstance(message, ToolMessage) for message in request.messages)
        return handler(request.override(tool_choice="none" if answered else "required", model_settings=ONE_AT_A_TIME))

    model = _langchain(daemon)
    agent: Any = create_agent(model, [look_up_population], middleware=[one_call])
    messages = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})["messages"]
    assert isinstance(messages[1], AIMessage)
    assert len(messages[1].tool_calls) == len(asked) >= 1
    assert [message.content for message in messages[2:-1]] == [str(PEOPLE)] * len(asked)
    assert isinstance(messages[-1], AIMessage)
    assert not messages[-1].tool_calls
    assert messages[-1].usage_metadata


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_gets_structured_output(daemon: Daemon, method: Any) -> None:
    assert isinstance(_langchain(daemon).with_structured_output(City, method=method).invoke("Paris"), City)


def _langchain(daemon: Daemon) -> ChatOpenAI:
    return ChatOpenAI(
        model="auto", base_url=f"{daemon.url}/v1", api_key=SecretStr("none"), temperature=0, max_retries=0,
        max_completion_tokens=200,
    )  # fmt: skip


def test_openais_own_loop_of_tools_ends_with_a_parsed_answer(daemon: Daemon) -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    parameters = {**city, "additionalProperties": False}
    function = {"name": "look_up_population", "parameters": parameters, "strict": True}
    tools: Any = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        fields: dict[str, Any] = {"model": "auto", "tools": tools, "temperature": 0, "max_tokens": 200, **ONE_AT_A_TIME}
        first = client.chat.completions.parse(messages=messages, tool_choice="required", **fields)
        message = first.choices[0].message
        assert message.tool_calls
        assert all("city" in (call.function.parsed_arguments or {}) for call in message.tool_calls)  # type: ignore[operator] # a dict
        messages.append(message)  # as OpenAI's guide does
        messages += [{"role": "tool", "tool_call_id": c.id, "content": str(PEOPLE)} for c in message.tool_calls]
        last = client.chat.completions.parse(messages=messages, tool_choice="none", response_format=City, **fields)
    assert last.choices[0].finish_reason == "stop"
    assert isinstance(last.choices[0].message.parsed, City)
