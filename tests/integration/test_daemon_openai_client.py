"""The official OpenAI client, synchronous and not, gets what it asks a running daemon for."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.integration.daemon_fixture import Daemon

STORY: Any = [{"role": "user", "content": "Tell me a story about a fox and a river."}]
# What comes next is so sure here that no rounding changes it, whatever else is computed beside it: by e^2 at least.
LETTERS = ", ".join(["A, B, C"] * 8)
DIGITS = ", ".join(["1, 2, 3"] * 8)
COLOURS = ", ".join(["red, green, blue"] * 6)
SURE: Any = [
    {"role": "user", "content": "Go on."},
    {"role": "assistant", "content": COLOURS},
    {"role": "user", "content": "Go on."},
]
STREAMS = 16


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(daemon: Daemon) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def text_of(completion: ChatCompletion) -> str:
    content = completion.choices[0].message.content
    assert content is not None
    return content


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, str | None]:
    """The whole text and the finish reason of a streamed chat."""
    text, reason = "", None
    for chunk in client.chat.completions.create(stream=True, **fields):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason


def test_a_chat_is_answered_with_its_usage(client: openai.OpenAI, daemon: Daemon) -> None:
    completion = client.chat.completions.create(model="auto", messages=STORY, max_tokens=8, temperature=0)
    assert completion.object == "chat.completion"
    assert completion.model == daemon.model_name
    assert completion.choices[0].message.role == "assistant"
    assert text_of(completion)
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 8
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + 8
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens is not None
    assert completion.usage.prompt_tokens_details.cached_tokens < completion.usage.prompt_tokens


def test_a_greedy_stream_is_the_greedy_answer_in_pieces(client: openai.OpenAI) -> None:
    asked: Any = {"model": "auto", "messages": SURE, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    text, reason = streamed(client, **asked)
    assert text == text_of(whole)
    assert reason == whole.choices[0].finish_reason


def test_a_stream_names_its_role_once_and_ends_with_one_finish_reason(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="auto", messages=STORY, max_tokens=6, stream=True))
    assert [c.choices[0].delta.role for c in chunks if c.choices and c.choices[0].delta.role] == ["assistant"]
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert reasons == ["length"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_comes_last_when_a_stream_asks_for_it(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="auto", messages=STORY, max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_same_seed_gives_the_same_token_and_another_seed_another(client: openai.OpenAI) -> None:
    def sampled(seed: int) -> str:
        return text_of(
            client.chat.completions.create(model="auto", messages=STORY, max_tokens=1, temperature=1.5, seed=seed)
        )

    seeds = range(10)
    first, second = [sampled(seed) for seed in seeds], [sampled(seed) for seed in seeds]
    # Rounding depends on what else is in the cache, and now and then it decides.
    assert sum(a == b for a, b in zip(first, second, strict=True)) >= 7
    assert len(set(first)) > 3


def test_n_choices_are_different_samples_of_one_prompt(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="auto", messages=STORY, max_tokens=16, n=4, temperature=1.5, seed=1
    )
    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in completion.choices}) > 1
    assert completion.usage is not None
    assert 4 <= completion.usage.completion_tokens <= 64


def test_streamed_choices_are_the_whole_ones(client: openai.OpenAI) -> None:
    asked: Any = {"model": "auto", "messages": SURE, "max_tokens": 12, "n": 3, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    texts, reasons = ["", "", ""], set()
    for chunk in client.chat.completions.create(stream=True, **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                reasons.add(choice.index)
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == {0, 1, 2}


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_and_is_not_part_of_it(client: openai.OpenAI, stream: bool) -> None:  # noqa: FBT001 - pytest's parameter
    asked: Any = {"model": "auto", "messages": SURE, "max_tokens": 40, "temperature": 0}
    whole = text_of(client.chat.completions.create(**asked))
    words = whole.split()
    stop = f"{words[4]} {words[5]}"
    expected = whole[: whole.index(stop)]
    if stream:
        assert streamed(client, stop=[stop, "never written"], **asked) == (expected, "stop")
    else:
        stopped = client.chat.completions.create(stop=stop, **asked)
        assert (text_of(stopped), stopped.choices[0].finish_reason) == (expected, "stop")


def test_logprobs_are_of_the_text_and_sorted(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="auto", messages=STORY, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 6
    assert b"".join(bytes(token.bytes or []) for token in logprobs.content).decode() == text_of(completion)
    for token in logprobs.content:
        top = [entry.logprob for entry in token.top_logprobs]
        assert len(top) == 3
        assert top == sorted(top, reverse=True)
        assert sum(math.exp(logprob) for logprob in top) <= 1.0 + 1e-6
        assert token.logprob == pytest.approx(top[0])  # greedy took the likeliest


def test_streamed_logprobs_are_those_of_the_whole_answer(client: openai.OpenAI) -> None:
    asked: Any = {"model": "auto", "messages": SURE, "max_tokens": 6, "temperature": 0, "logprobs": True}
    whole = client.chat.completions.create(**asked).choices[0].logprobs
    assert whole is not None
    tokens = [
        token.token
        for chunk in client.chat.completions.create(stream=True, **asked)
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or []
    ]
    assert tokens == [token.token for token in whole.content or []]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_token_limit_are_obeyed(client: openai.OpenAI, field: str) -> None:
    asked: Any = {field: 3}
    completion = client.chat.completions.create(model="auto", messages=STORY, temperature=0, **asked)
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 3


CONVERSATIONS: dict[str, Any] = {
    "system first": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "developer first": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "system late": [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}],
    "two systems": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi again"},
    ],
    "content parts": [
        {"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "hello."}]}
    ],
    "tool history": [
        {"role": "user", "content": "What is the weather in Rome?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "17 degrees"},
        {"role": "user", "content": "Is that warm?"},
    ],
    "assistant without content": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "user", "content": "Hi"},
    ],
    "assistant last": [{"role": "user", "content": "Count to three."}, {"role": "assistant", "content": "one,"}],
    "named users": [{"role": "user", "name": "ann", "content": "Hi"}, {"role": "user", "name": "bob", "content": "Ho"}],
    "unicode": [{"role": "user", "content": "Grüße 👩‍👩‍👧 \u0000 \ufffe مرحبا 你好"}],
    "empty text": [{"role": "user", "content": ""}],
}


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_every_shape_of_conversation_is_answered(client: openai.OpenAI, messages: Any) -> None:
    completion = client.chat.completions.create(model="auto", messages=messages, max_tokens=2, temperature=0)
    assert completion.usage is not None
    assert completion.usage.prompt_tokens > 0


def test_content_parts_are_the_text_they_make_together(client: openai.OpenAI) -> None:
    def prompt_tokens(content: Any) -> int:
        completion = client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": content}], max_tokens=1, temperature=0
        )
        assert completion.usage is not None
        return completion.usage.prompt_tokens

    parts = [{"type": "text", "text": "Say hello"}, {"type": "text", "text": " to the fox."}]
    assert abs(prompt_tokens(parts) - prompt_tokens("Say hello to the fox.")) <= 1  # a joint may split one token


def test_a_system_message_changes_the_prompt_wherever_it_stands(client: openai.OpenAI) -> None:
    def answer(*messages: Any) -> str:
        return text_of(client.chat.completions.create(model="auto", messages=messages, max_tokens=24, temperature=0))

    user, system = {"role": "user", "content": "Who are you?"}, {"role": "system", "content": "You are a pirate. Arr!"}
    alone = answer(user)
    assert answer(system, user) != alone
    assert answer(user, system) != alone


class TestCompletions:
    def test_a_text_is_continued_streamed_and_whole(self, client: openai.OpenAI) -> None:
        asked: Any = {"model": "auto", "prompt": LETTERS, "max_tokens": 12, "temperature": 0}
        whole = client.completions.create(**asked)
        assert whole.object == "text_completion"
        assert whole.choices[0].text
        text = "".join(c.text for chunk in client.completions.create(stream=True, **asked) for c in chunk.choices)
        assert text == whole.choices[0].text

    def test_prompts_in_a_list_are_answered_in_their_order(self, client: openai.OpenAI) -> None:
        prompts = [LETTERS, DIGITS]
        together = client.completions.create(model="auto", prompt=prompts, max_tokens=6, temperature=0)
        alone = [client.completions.create(model="auto", prompt=p, max_tokens=6, temperature=0) for p in prompts]
        assert [c.index for c in together.choices] == [0, 1]
        assert [c.text for c in together.choices] == [one.choices[0].text for one in alone]

    def test_tokens_are_a_prompt_too(self, client: openai.OpenAI, daemon: Daemon) -> None:
        with daemon.client() as http:
            tokens = http.post("/v1/tokenize", json={"model": "auto", "prompt": LETTERS}).json()["tokens"]
        asked: Any = {"model": "auto", "max_tokens": 6, "temperature": 0}
        from_tokens = client.completions.create(prompt=tokens, **asked)
        from_text = client.completions.create(prompt=LETTERS, **asked)
        assert from_tokens.choices[0].text == from_text.choices[0].text

    def test_echo_puts_the_prompt_before_the_answer(self, client: openai.OpenAI) -> None:
        asked: Any = {"model": "auto", "prompt": LETTERS, "max_tokens": 4, "temperature": 0}
        alone = client.completions.create(**asked).choices[0].text
        assert client.completions.create(echo=True, **asked).choices[0].text == LETTERS + alone

    def test_logprobs_name_each_token(self, client: openai.OpenAI) -> None:
        completion = client.completions.create(
            model="auto", prompt="The sky is", max_tokens=4, temperature=0, logprobs=2
        )
        logprobs = completion.choices[0].logprobs
        assert logprobs is not None
        assert "".join(logprobs.tokens or []) == completion.choices[0].text
        assert len(logprobs.token_logprobs or []) == len(logprobs.text_offset or []) == 4


class TestModels:
    def test_the_list_has_the_aliases_and_the_model(self, client: openai.OpenAI, daemon: Daemon) -> None:
        assert {model.id for model in client.models.list()} >= {"auto", "local", "frontier", daemon.model_name}

    def test_each_listed_model_can_be_retrieved(self, client: openai.OpenAI) -> None:
        for model in client.models.list():
            assert client.models.retrieve(model.id).id == model.id

    @pytest.mark.parametrize("alias", ["auto", "local"])
    def test_an_alias_is_answered_by_the_model(self, client: openai.OpenAI, daemon: Daemon, alias: str) -> None:
        completion = client.chat.completions.create(model=alias, messages=STORY, max_tokens=1)
        assert completion.model == daemon.model_name


class TestErrorsHaveTheClassThatTheClientKnows:
    def test_a_wrong_value(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="auto", messages=STORY, temperature=-1)
        assert caught.value.param == "temperature"
        assert caught.value.code == "invalid_request"

    def test_an_unknown_model(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="gpt-9", messages=STORY)
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-9")

    def test_the_frontier_while_there_is_none(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="frontier", messages=STORY)
        assert caught.value.status_code == 503
        assert caught.value.code == "offline"
        assert int(caught.value.response.headers["retry-after"]) > 0

    def test_a_path_that_is_not_there(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError):
            client.get("/no-such-thing", cast_to=object)


class TestTokens:
    @pytest.mark.parametrize(
        "text", ["Hello, world!", " leading space", "Grüße 👩‍👩‍👧 你好", "a\tb\n\nc", "", "x" * 2000]
    )
    def test_tokenize_and_detokenize_are_inverse(self, daemon: Daemon, text: str) -> None:
        with daemon.client() as http:
            tokens = http.post("/v1/tokenize", json={"model": "auto", "prompt": text, "add_special_tokens": False})
            assert tokens.status_code == 200, tokens.text
            assert tokens.json()["count"] == len(tokens.json()["tokens"])
            back = http.post("/v1/detokenize", json={"model": "auto", "tokens": tokens.json()["tokens"]})
            assert back.json() == {"prompt": text}

    @pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
    def test_messages_have_as_many_tokens_as_usage_says(
        self, daemon: Daemon, client: openai.OpenAI, messages: Any
    ) -> None:
        with daemon.client() as http:
            counted = http.post("/v1/tokenize", json={"model": "auto", "messages": messages})
        assert counted.status_code == 200, counted.text
        usage = client.chat.completions.create(model="auto", messages=messages, max_tokens=1).usage
        assert usage is not None
        assert counted.json()["count"] == usage.prompt_tokens


class TestAsyncClient:
    async def test_sixteen_streams_at_once_all_finish_with_what_each_would_get_alone(
        self, async_client: openai.AsyncOpenAI
    ) -> None:
        async def one(number: int) -> tuple[str, str | None]:
            stream = await async_client.chat.completions.create(
                model="auto",
                messages=[{"role": "user", "content": f"Count from {number}."}],
                max_tokens=12,
                temperature=0,
                stream=True,
            )
            text, reason = "", None
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                reason = chunk.choices[0].finish_reason or reason
            return text, reason

        answers = await asyncio.gather(*(one(number) for number in range(STREAMS)))
        assert len(answers) == STREAMS
        assert all(text and reason in {"stop", "length"} for text, reason in answers)

    async def test_a_stream_that_is_left_early_does_not_disturb_the_next_request(
        self, async_client: openai.AsyncOpenAI
    ) -> None:
        stream = await async_client.chat.completions.create(model="auto", messages=STORY, max_tokens=500, stream=True)
        async for _ in stream:
            break
        await stream.close()
        completion = await async_client.chat.completions.create(model="auto", messages=STORY, max_tokens=2)
        assert text_of(completion)

    async def test_errors_are_the_same(self, async_client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError):
            await async_client.chat.completions.create(model="auto", messages=[])
