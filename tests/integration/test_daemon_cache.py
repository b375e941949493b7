"""A running daemon answers repeats from its cache, and nothing that only looks like one."""

import json
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.integration.daemon_fixture import BackgroundStream, Daemon, appliance, chat_body, wait_until

QUESTION = "Name the capital of France in one word."
SAME = "Hi, could you please name France's capital in one word?"
TRAP = "Name the capital of Spain in one word."
COUNTED = ('prompt_tokens_saved_total{tier="exact"}', 'hits_total{tier="exact"}', "stored_total")


@pytest.fixture(scope="module")
def cached(model_path: Path, embedding_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    state_dir = tmp_path_factory.mktemp("state")
    shutil.copytree(embedding_model, state_dir / "models" / embedding_model.name)
    daemon = Daemon(model_path, state_dir, tmp_path_factory.mktemp("home"), {"cache.enabled": True})
    try:
        yield daemon.wait_ready()
    finally:
        daemon.close()


@pytest.fixture
def daemon(cached: Daemon) -> Daemon:
    """With an empty cache."""
    with cached.client() as client:
        client.delete("/admin/v1/cache").raise_for_status()
    return cached


def ask(daemon: Daemon, text: str = QUESTION, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = chat_body(text, **{"temperature": 0, "max_tokens": 40, **fields})
    with daemon.client() as client:
        response = client.post("/v1/chat/completions", json=body, headers=headers)
    assert response.status_code == httpx.codes.OK, response.text
    return response


def route(response: httpx.Response) -> str:
    return response.headers["x-appliance-route"]


def answer(response: httpx.Response) -> Any:
    return response.json()["choices"][0]["message"]["content"]


def cache(daemon: Daemon) -> dict[str, Any]:
    with daemon.client() as client:
        found: dict[str, Any] = client.get("/admin/v1/cache").json()
    return found


def test_the_same_request_gets_the_same_answer_whole_and_streamed(daemon: Daemon) -> None:
    first, again = ask(daemon), ask(daemon)
    assert (route(first), route(again)) == ("local", "cache-exact")
    assert first.json()["choices"] == again.json()["choices"]
    assert first.json()["usage"]["completion_tokens"] == again.json()["usage"]["completion_tokens"]
    assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == again.json()["usage"]["prompt_tokens"]
    assert again.headers["x-appliance-cost-usd"] == "0"
    assert float(again.headers["x-appliance-cache-similarity"]) == 1
    assert float(again.headers["x-appliance-cache-age-s"]) >= 0
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": QUESTION}],
            temperature=0,
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == answer(first)
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == first.json()["usage"]["completion_tokens"]
    assert cache(daemon)["entries"] == 1


def test_other_words_for_the_same_get_its_answer_and_another_question_does_not(daemon: Daemon) -> None:
    first = ask(daemon)
    hit = wait_until(lambda: _hit(daemon), "a semantic hit", timeout_s=30)
    assert answer(hit) == answer(first)
    assert hit.headers["x-appliance-reason"] == "semantic"
    assert 0.5 < float(hit.headers["x-appliance-cache-similarity"]) < 1
    assert route(ask(daemon, TRAP)) == "local"
    assert route(ask(daemon, SAME, messages=_with_system(SAME))) == "local"
    assert route(ask(daemon, SAME, headers={"x-appliance-cache": "exact"})) == "local"


def _hit(daemon: Daemon) -> httpx.Response | None:
    """The embedding model may still be loading."""
    ask(daemon, headers={"x-appliance-cache": "refresh"})
    response = ask(daemon, SAME)
    if route(response) == "cache-semantic":
        return response
    with daemon.client() as client:
        client.delete("/admin/v1/cache")
    return None


def _with_system(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"temperature": 1}, {}),
        ({"max_tokens": 2}, {}),
        ({"n": 2}, {}),
        ({"logprobs": True}, {}),
        ({"messages": [{"role": "user", "content": "What is the weather today?"}]}, {}),
        ({}, {"x-appliance-cache": "off"}),
    ],
)
def test_what_is_never_stored(daemon: Daemon, fields: dict[str, Any], headers: dict[str, str]) -> None:
    for _ in range(2):
        assert route(ask(daemon, headers=headers, **fields)) == "local"
    assert cache(daemon)["entries"] == 0


def test_a_sampled_answer_is_kept_for_whoever_asks_for_that(daemon: Daemon) -> None:
    asked = {"x-appliance-cache": "exact"}
    fields: dict[str, Any] = {"temperature": 1, "structured_outputs": {"choice": ["Paris", "Lyon", "Nice", "Metz"]}}
    first = ask(daemon, headers=asked, **fields)
    again = ask(daemon, headers=asked, **fields)
    assert (route(again), answer(again)) == ("cache-exact", answer(first))
    assert route(ask(daemon, **fields)) == "local"


def test_refresh_answers_afresh_and_keeps_that(daemon: Daemon) -> None:
    ask(daemon)
    assert route(ask(daemon, headers={"x-appliance-cache": "refresh"})) == "local"
    assert route(ask(daemon)) == "cache-exact"
    assert cache(daemon)["entries"] == 1


def test_a_wrong_hit_that_is_reported_is_gone(daemon: Daemon) -> None:
    ask(daemon)
    hit = ask(daemon)
    with daemon.client() as client:
        body = {"request_id": hit.headers["x-request-id"], "correct": False}
        assert client.post("/admin/v1/cache/feedback", json=body).status_code == httpx.codes.OK
        unknown = client.post("/admin/v1/cache/feedback", json={"request_id": "x", "correct": False})
    assert unknown.status_code == httpx.codes.BAD_REQUEST
    assert unknown.json()["error"]["param"] == "request_id"
    assert route(ask(daemon)) == "local"


def test_identical_requests_at_a_time_share_one_generation_and_one_may_leave(daemon: Daemon) -> None:
    body = chat_body("Tell a long story about a whale.", temperature=0, max_tokens=150, min_tokens=100, stream=True)
    before = daemon.engine()["counters"]["prompt_tokens"]
    first = BackgroundStream(daemon, body)
    first.wait_first_token()
    with daemon.client() as leaver, leaver.stream("POST", "/v1/chat/completions", json=body) as response:
        next(response.iter_lines())
        prompts = daemon.engine()["counters"]["prompt_tokens"] - before
        second = BackgroundStream(daemon, body)
        second.wait_first_token()
    texts = [_text(stream.wait_end(60)) for stream in (first, second)]
    assert texts[0] == texts[1] != ""
    assert daemon.engine()["counters"]["prompt_tokens"] - before == prompts


def _text(stream: BackgroundStream) -> str:
    events = [json.loads(data) for data in stream.data if data.startswith("{")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])


def test_a_broken_file_costs_a_request_nothing(launch: Callable[..., Daemon], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cache.db").write_bytes(b"no database " * 1000)
    daemon = launch({"cache.enabled": True}).wait_ready()
    ask(daemon)
    assert route(ask(daemon)) == "cache-exact"
    assert cache(daemon)["quarantines"] == 1
    (tmp_path / "state" / "cache.db").unlink()
    assert route(ask(daemon)) == "local"
    assert route(ask(daemon)) == "cache-exact"


def test_keys_never_meet(launch: Callable[..., Daemon]) -> None:
    daemon = launch({"cache.enabled": True}).wait_ready()
    secrets = [_key(daemon, name) for name in ("ann", "bob")]
    daemon.signal(signal.SIGHUP)
    body = chat_body(QUESTION, temperature=0, max_tokens=40)
    routes = []
    for secret in (*secrets, *secrets):
        with daemon.client(secret) as client:
            routes.append(route(client.post("/v1/chat/completions", json=body)))
    assert routes == ["local", "local", "cache-exact", "cache-exact"]


def _key(daemon: Daemon, name: str) -> str:
    made = appliance("--state-dir", daemon.state_dir, "keys", "create", "--name", name, home=daemon.home)
    return made.stdout.split()[-1]


def test_the_command_explains_pairs(cached: Daemon, tmp_path: Path) -> None:
    pairs = [
        {"a": "How do I enable 2FA?", "b": "How do I turn on two-factor authentication?"},
        {"a": "How do I enable 2FA?", "b": "How do I disable 2FA?"},
        {"a": {"messages": _with_system(QUESTION), "temperature": 0}, "b": SAME},
        {"a": 5},
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, pairs)))
    run = appliance("--state-dir", cached.state_dir, "cache", "explain", "--pairs", file, home=tmp_path)
    told = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line.get("hit") for line in told] == [True, False, False, None]
    assert told[1]["guards"] == ["antonym"]
    assert told[2]["guards"] == ["fingerprint"]
    assert "error" in told[3]


def test_a_hit_is_checked_in_idle_time(launch: Callable[..., Daemon], embedding_model: Path, tmp_path: Path) -> None:
    shutil.copytree(embedding_model, tmp_path / "state" / "models" / embedding_model.name)
    daemon = launch({"cache.enabled": True, "cache.recheck_share": 1.0}).wait_ready()
    fields: dict[str, Any] = {"structured_outputs": {"choice": ["Paris"]}}
    with daemon.client() as client:

        def hit() -> bool:
            ask(daemon, headers={"x-appliance-cache": "refresh"}, **fields)
            critical = {"x-appliance-criticality": "critical"}
            if route(ask(daemon, SAME, headers=critical, **fields)) == "cache-semantic":
                return True
            client.delete("/admin/v1/cache")
            return False

        wait_until(hit, "a semantic hit", timeout_s=30)
    (measured,) = wait_until(lambda: cache(daemon)["false_hits"], "a check", timeout_s=20)
    assert (measured["state"], measured["checked"], measured["wrong"]) == ("cold", 1, 0)
    daemon.terminate()
    with closing(sqlite3.connect(daemon.state_dir / "ledger.db")) as db:
        of_the_check = db.execute("SELECT criticality FROM attempts WHERE reason = 'recheck'").fetchall()
    assert of_the_check == [("sheddable",)]  # nobody waits for it, whatever it is a check of


def test_who_began_a_generation_may_have_less_time_than_who_joins_it(daemon: Daemon) -> None:
    body = chat_body(
        "Tell a long story about a lighthouse.", temperature=0, max_tokens=150, min_tokens=100, stream=True
    )
    first = BackgroundStream(daemon, body, {"x-appliance-timeout": "1"})
    first.wait_first_token()
    second = BackgroundStream(daemon, body)
    second.wait_end(60)
    assert first.wait_end().error()["code"] == "deadline_exceeded"
    assert second.data[-1] == "[DONE]"
    assert len(_text(second)) > len(_text_until_error(first))


def _text_until_error(stream: BackgroundStream) -> str:
    events = [json.loads(data) for data in stream.data if data.startswith("{")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event.get("choices"))


def test_metrics_say_what_the_cache_did(daemon: Daemon) -> None:
    def value(name: str) -> float:
        with daemon.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"appliance_cache_{name}"))

    saved, hits, stored = (value(name) for name in COUNTED)
    tokens = ask(daemon).json()["usage"]["prompt_tokens"]
    ask(daemon)
    assert [value(name) for name in COUNTED] == [saved + tokens, hits + 1, stored + 1]
    assert value("entries") == 1
