"""A daemon whose frontier is made of stand-ins: how it is started, what its clients get, and what its ledger says."""

import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from tests.integration.daemon_fixture import Daemon, chat_body, wait_until
from tests.integration.stand_in_fixture import StandIn

MODEL = "stand-in-1"  # costs what the stand-in bills where it is not told otherwise
UNPRICED = "nobody-knows-its-price"
PRICES = f"""
[[price]]
model = "{MODEL}"
input = 1.0
cached_input = 0.1
output = 2.0
"""
PICTURE: Any = [{"role": "user", "content": [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
]}]  # fmt: skip
HELLO: Any = [{"role": "user", "content": "Hello to you"}]
ANSWER = "You said: Hello to you"  # of a stand-in, in five pieces
PIECES = ("You", " said:", " Hello", " to", " you")

# What neither OpenAI nor Anthropic must be asked for: a request that asks for some of it reaches only the providers
# that are said to know it. So one daemon has many groups of providers, each with breakers of its own.
_MARKS: Mapping[str, object] = {
    "ignore_eos": True,
    "min_p": 0.01,
    "min_tokens": 1,
    "repetition_penalty": 1.01,
    "seed": 7,
    "top_k": 40,
}
_IN_GROUP = 3  # no choice of three marks holds another


def provider(stand_in: StandIn, name: str = "first", kind: str = "openai", **fields: Any) -> dict[str, object]:
    """One of [[frontier.providers]]."""
    model = fields.get("model", MODEL)
    path = f"/openai/deployments/{model}?api-version=2024-10-21" if kind == "azure" else "/v1"
    return {"name": name, "kind": kind, "base_url": stand_in.url + path, "model": model, **fields}


class Groups:
    """Groups of providers in one daemon, and the fields of a request that is for one of them."""

    def __init__(self, groups: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
        choices = itertools.combinations(_MARKS, _IN_GROUP)
        self._marks = dict(zip(groups, choices, strict=False))
        assert len(self._marks) == len(groups)
        self.providers = [
            {
                **member,
                "name": self.called(name, member["name"]),
                "also": self._marks[name],
                "cannot": sorted(_MARKS.keys() - set(self._marks[name])),
            }
            for name, members in groups.items()
            for member in members
        ]

    @staticmethod
    def called(name: str, member: object = "first") -> str:
        """What the daemon calls a provider of a group."""
        return f"{re.sub(r'[^a-z]+', '-', name)}.{member}"

    def marks(self, name: str) -> dict[str, object]:
        return {mark: _MARKS[mark] for mark in self._marks[name]}


@contextmanager
def frontier_daemon(
    model: Path,
    folder: Path,
    providers: Sequence[Mapping[str, object]],
    settings: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Daemon]:
    """A ready daemon with its state in `folder`, where another one may have had it before."""
    home, state_dir, prices = folder / "home", folder / "state", folder / "prices.toml"
    for made in (home, state_dir):
        made.mkdir(exist_ok=True)
    prices.write_text(PRICES)
    given = {"frontier.providers": list(providers), "economics.prices": str(prices), **(settings or {})}
    daemon = Daemon(model, state_dir, home, given, extra_environment=environment)
    try:
        yield daemon.wait_ready()
    finally:
        daemon.close()


@contextmanager
def openai_client(daemon: Daemon, key: str = "none") -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key=key, max_retries=0, timeout=60) as client:
        yield client


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client got: all that was said, and the error that was the answer or ended it."""

    status: int
    headers: Mapping[str, str]
    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()  # id, name, arguments
    finish: str | None = None
    usage: dict[str, Any] | None = None
    code: str | None = None
    param: str | None = None
    message: str = ""

    @property
    def request(self) -> str:
        return self.headers["x-request-id"]

    @property
    def route(self) -> str:
        return self.headers["x-appliance-route"]

    @property
    def reason(self) -> str:
        return self.headers["x-appliance-reason"]


def ask(
    client: openai.OpenAI,
    *,
    stream: bool = False,
    model: str = "frontier",
    messages: Any = HELLO,
    headers: Mapping[str, str] | None = None,
    marks: Mapping[str, object] | None = None,
    **fields: Any,
) -> Outcome:
    """One request through the official client."""
    create: Any = client.chat.completions.with_raw_response.create
    options = {"stream_options": {"include_usage": True}} if stream else {}
    try:
        raw = create(
            model=model,
            messages=messages,
            stream=stream,
            extra_headers=headers,
            extra_body=marks,
            **options,
            **fields,
        )
    except openai.APIStatusError as error:
        return Outcome(
            error.status_code, error.response.headers, code=error.code, param=error.param, message=error.message
        )
    return _streamed(raw) if stream else _whole(raw)


def _whole(raw: Any) -> Outcome:
    completion = raw.parse()
    choice = completion.choices[0]
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return Outcome(
        raw.status_code,
        raw.headers,
        text=choice.message.content or "",
        reasoning=getattr(choice.message, "reasoning_content", ""),
        calls=tuple(calls),
        finish=choice.finish_reason,
        usage=completion.usage.model_dump(exclude_none=True),
    )


def _streamed(raw: Any) -> Outcome:
    text = reasoning = ""
    calls: dict[int, list[str]] = {}
    finish = usage = None
    error: openai.APIError | None = None
    with raw.parse() as chunks:
        try:
            for chunk in chunks:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    reasoning += getattr(choice.delta, "reasoning_content", "")
                    finish = choice.finish_reason or finish
                    for piece in choice.delta.tool_calls or ():
                        call = calls.setdefault(piece.index, [piece.id, piece.function.name, ""])
                        call[2] += piece.function.arguments or ""
        except openai.APIError as failure:
            error = failure
    return Outcome(
        raw.status_code,
        raw.headers,
        text=text,
        reasoning=reasoning,
        calls=tuple((call[0], call[1], call[2]) for _, call in sorted(calls.items())),
        finish=finish,
        usage=usage and usage.model_dump(exclude_none=True),
        code=error.code if error else None,
        message=error.message if error else "",
    )


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of the ledger."""

    at: float
    request: str
    key: str | None
    route: str
    reason: str
    provider: str | None
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    flags: str


def ledger(daemon: Daemon) -> list[Attempt]:
    path = daemon.state_dir / "ledger.db"
    if not path.exists():
        return []
    question = f"SELECT {', '.join(Attempt.__slots__)} FROM attempts WHERE outcome != 'started' ORDER BY id"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        try:
            return [Attempt(*row) for row in db.execute(question)]
        except sqlite3.OperationalError:  # the file has no table yet
            return []


def attempts(daemon: Daemon, outcome: Outcome, count: int) -> list[Attempt]:
    """The rows of a request, when all of them are written."""

    def rows() -> list[Attempt]:
        return [row for row in ledger(daemon) if row.request == outcome.request]

    wait_until(lambda: len(rows()) >= count, f"{count} attempts are in the ledger")
    return rows()


def spent_usd(rows: Sequence[Attempt]) -> float:
    return sum(row.cost_usd or 0 for row in rows)


def everything(
    daemon: Daemon, headers: dict[str, str] | None = None, metadata: dict[str, str] | None = None
) -> list[httpx.Response]:
    """What an agent may send that the frontier could have: each endpoint, each model, each step, whole and streamed."""
    said: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
    steps = ("plan", "extract", "classify", "code", "synthesize", "chat", "summarize", "transform", None)
    bodies: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        (
            "/v1/chat/completions",
            chat_body(model=model, max_tokens=1, stream=number % 2 == 1, **said),
            {"x-appliance-step": step} if step else {},
        )
        for number, (step, model) in enumerate(itertools.product(steps, ("auto", "auto", "local", "frontier")))
    ]
    bodies += [
        ("/v1/chat/completions", chat_body(messages=PICTURE, **said), {}),
        (
            "/v1/chat/completions",
            chat_body("word " * 8192, max_tokens=1, **said),
            {},
        ),  # longer than the local model's context
        ("/v1/chat/completions", chat_body(model="frontier", seed=1, n=2, max_tokens=1, **said), {}),
        ("/v1/completions", {"model": "auto", "prompt": "Hello", "max_tokens": 1}, {}),
        ("/v1/completions", {"model": "frontier", "prompt": "Hello", "max_tokens": 1}, {}),
        ("/v1/tokenize", {"model": "auto", "prompt": "Hello"}, {}),
        ("/v1/tokenize", {"model": "frontier", "prompt": "Hello"}, {}),
        ("/v1/embeddings", {"model": "auto", "input": "Hello"}, {}),
        ("/v1/responses", {"model": "frontier", "input": "Hello"}, {}),
        ("/v1/messages", {"model": "frontier", "messages": HELLO, "max_tokens": 1}, {}),
    ]
    with daemon.client() as client:
        answers = [client.post(path, json=body, headers={**(headers or {}), **hint}) for path, body, hint in bodies]
        answers += [client.get(path) for path in ("/v1/models", "/v1/models/frontier", "/readyz", "/metrics")]
    assert {answer.status_code for answer in answers} >= {200}
    assert all(answer.status_code < 500 or answer.status_code == 503 for answer in answers)
    return answers
