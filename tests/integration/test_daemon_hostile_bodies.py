"""Hundreds of hostile or malformed bodies: each is answered below 500 and in time, and good requests go on.

The seed is fixed; $APPLIANCE_TEST_SEED tries another, and $APPLIANCE_TEST_BODIES more of them.
"""

import asyncio
import copy
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.integration.daemon_fixture import Daemon, chat_body

SEED = int(os.environ.get("APPLIANCE_TEST_SEED", "20"))
BODIES = int(os.environ.get("APPLIANCE_TEST_BODIES", "100"))  # for each path
AT_ONCE = 8
ANSWER_TIMEOUT_S = 15.0

USER: Any = {"role": "user", "content": "Hi"}
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "auto",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "17"},
            USER,
        ],
        "max_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "n": 1,
        "stop": ["\n"],
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 2,
        "logit_bias": {"5": 1},
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "metadata": {"task": "t1", "step": "chat"},
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "/v1/completions": {
        "model": "auto",
        "prompt": ["Hi", "Ho"],
        "max_tokens": 2,
        "temperature": 0.5,
        "n": 1,
        "stop": "\n",
        "seed": 3,
        "logprobs": 2,
        "echo": False,
        "logit_bias": {"5": 1},
        "stream": False,
    },
    "/v1/tokenize": {"model": "auto", "messages": [USER], "return_token_strs": True},
    "/v1/detokenize": {"model": "auto", "tokens": [1, 2, 3]},
}

STRANGE: list[Any] = [
    None, True, False, 0, -1, 1.5, -0.0, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, 5e-324, "", " ", "\0", "auto",
    "\ud800", "\U0010ffff", "x" * 5000, "{{ 7 * 7 }}", "<|im_start|>system\n", "../../etc/passwd", "' OR 1=1 --",
    [], [[]], [None], {}, {"": ""}, {"a": {"b": {"c": []}}}, [[[[[[]]]]]], [0] * 300,
]  # fmt: skip
CONTENT_TYPES = [
    "application/json", "application/json; charset=utf-16", "text/plain", "", "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded", "application/xml", "application/json; charset=\xff",
]  # fmt: skip

Mutation = Callable[[random.Random, dict[str, Any]], bytes]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in inside for place in ((*path, key), *_places(item, (*path, key)))]


def _swap(rng: random.Random, body: dict[str, Any]) -> bytes:
    """One to three values become something else."""
    for _ in range(rng.randint(1, 3)):
        *parents, last = rng.choice(_places(body) or [("model",)])
        inner: Any = body
        for key in parents:
            inner = inner[key]
        inner[last] = copy.deepcopy(rng.choice(STRANGE))
    return json.dumps(body).encode()


def _delete(rng: random.Random, body: dict[str, Any]) -> bytes:
    *parents, last = rng.choice(_places(body))
    inner: Any = body
    for key in parents:
        inner = inner[key]
    del inner[last]
    return json.dumps(body).encode()


def _add(rng: random.Random, body: dict[str, Any]) -> bytes:
    key = rng.choice(["functions", "__proto__", "Model", "messages ", "\ud800", "tools", "n\0", "x" * 2000, "best_of"])
    body[key] = rng.choice(STRANGE)
    return json.dumps(body).encode()


def _flip(rng: random.Random, body: dict[str, Any]) -> bytes:
    content = bytearray(json.dumps(body).encode())
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def _truncate(rng: random.Random, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    return content[: rng.randrange(len(content))]


def _splice(rng: random.Random, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    at = rng.randrange(len(content))
    junk = rng.choice([b"\xff\xfe", b"\0" * 20, "é".encode("latin-1"), b'",', b"[" * 400, b"NaN", b"1e999", b"\\u0000"])
    return content[:at] + junk + content[at:]


def _duplicate(rng: random.Random, body: dict[str, Any]) -> bytes:
    key = rng.choice(list(body))
    other = json.dumps({key: rng.choice(STRANGE)})
    return (json.dumps(body)[:-1] + ", " + other[1:]).encode()


def _nest(rng: random.Random, body: dict[str, Any]) -> bytes:
    depth = rng.choice([20, 200, 2000, 20000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    key = rng.choice(list(body))
    nested = opening * depth + "1" + closing * depth
    return (json.dumps({k: v for k, v in body.items() if k != key})[:-1] + f', "{key}": {nested}}}').encode()


def _encode_oddly(rng: random.Random, body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-16-le"]))


MUTATIONS: list[Mutation] = [
    _swap,
    _swap,
    _swap,
    _delete,
    _add,
    _flip,
    _truncate,
    _splice,
    _duplicate,
    _nest,
    _encode_oddly,
]


def hostile(path: str) -> list[tuple[bytes, str]]:
    """Bodies with their content types, the same ones in every run."""
    rng = random.Random(f"{SEED} {path}")
    return [
        (
            rng.choice(MUTATIONS)(rng, copy.deepcopy(VALID[path])),
            rng.choice(CONTENT_TYPES) if rng.random() < 0.2 else "application/json",
        )
        for _ in range(BODIES)
    ]


@pytest.mark.parametrize("path", VALID)
async def test_hostile_bodies_are_answered_below_500_and_good_ones_go_on(daemon: Daemon, path: str) -> None:
    statuses: Counter[int] = Counter()
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(client: httpx.AsyncClient, body: bytes, content_type: str) -> str | None:
        """What is wrong with the answer."""
        async with at_once:
            try:
                headers = {b"content-type": content_type.encode("latin-1")}
                response = await client.post(path, content=body, headers=headers)
            except httpx.HTTPError as error:
                return f"{error!r} for {body[:500]!r}"
        statuses[response.status_code] += 1
        if response.status_code >= 500:
            return f"{response.status_code} {response.text} for {body[:500]!r}"
        if response.status_code >= 400:
            said = response.json()["error"]
            if set(said) != {"message", "type", "param", "code"} or not said["message"]:
                return f"{response.text} for {body[:500]!r}"
        elif '"error":' in response.text:
            return f"200 with {response.text[-500:]} for {body[:500]!r}"
        return None

    print(f"seed {SEED}")
    async with daemon.async_client(timeout_s=ANSWER_TIMEOUT_S) as client:
        assert (await client.post(path, json=VALID[path])).status_code == 200
        wrong = await asyncio.gather(*(one(client, *body) for body in hostile(path)))
        assert [problem for problem in wrong if problem] == []
        assert (await client.post(path, json=VALID[path])).status_code == 200
        assert (await client.post("/v1/chat/completions", json=chat_body())).status_code == 200
    print(dict(statuses))
    assert statuses[400] > BODIES / 2  # the mutations do hurt


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"POST /v1/tokenize HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
        b"GET /v1/models/%00%ff%2e%2e%2f HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET http://example.com/healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:50]),
)
async def test_bytes_that_are_hardly_http_end_in_a_4xx_or_a_closed_connection(daemon: Daemon, raw: bytes) -> None:
    url = httpx.URL(daemon.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(raw)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            try:
                answer = await reader.readline()
            except ConnectionError:
                answer = b""
    finally:
        writer.transport.abort()
    assert answer == b"" or answer.split()[1][:1] in {b"4", b"2"}, answer
    async with daemon.async_client() as client:
        assert (await client.get("/healthz")).status_code == 200
