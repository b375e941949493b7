"""No key ever sees another's cached answer, whatever a request says in its headers, its body and its path."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import hypothesis
import pytest
from hypothesis import HealthCheck

from tests.integration.cache_fixture import SLOW_S
from tests.integration.cache_requests_fixture import ATTEMPT, CHAT, Asked, Attempt, Headers, Key, aimed, requests
from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import BackgroundStream, Daemon, appliance, chat_body, data_lines, wait_until

EXAMPLES = int(os.environ.get("APPLIANCE_TEST_CACHE_TENANT_EXAMPLES", "20"))
CACHE = "/admin/v1/cache"
FEEDBACK = "/admin/v1/cache/feedback"
QUESTION = chat_body("Who is the quixotic knight?", max_tokens=20, structured_outputs={"choice": ["Sancho Panza"]})


@dataclass(frozen=True)
class Tenants:
    daemon: Daemon
    ann: Key
    bob: Key
    cid: Key
    owner: Key


@dataclass(frozen=True)
class Answer:
    status: int
    request_id: str
    route: str | None
    reason: str | None
    text: str


def make_key(daemon: Daemon, name: str, scope: str = "infer") -> Key:
    command = ("keys", "create", "--name", name, "--scope", scope, "--json")
    made = appliance("--state-dir", daemon.state_dir, *command, home=daemon.home)
    assert made.returncode == 0, made.stderr
    record = json.loads(made.stdout)
    return Key(record["id"], name, record["secret"])


@pytest.fixture(scope="module")
def tenants(model_path: Path, embedding_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    state_dir = tmp_path_factory.mktemp("state")
    shutil.copytree(embedding_model, state_dir / "models" / embedding_model.name)
    settings: dict[str, object] = {"cache.enabled": True, "cache.recheck_share": 0.0}
    daemon = Daemon(model_path, state_dir, tmp_path_factory.mktemp("home"), settings)
    try:
        daemon.wait_ready()
        ann, bob, cid = [make_key(daemon, name) for name in ("ann", "bob", "cid")]
        yield Tenants(daemon, ann, bob, cid, make_key(daemon, "owner", "admin"))
    finally:
        daemon.close()


def ask(daemon: Daemon, path: str, body: dict[str, Any], headers: Headers, *, stream: bool = False) -> Answer:
    with daemon.client() as client:
        request = client.build_request("POST", path, json={**body, "stream": stream}, headers=headers)
        response = client.send(request, stream=True)
        if stream and response.status_code == 200:
            text = streamed(list(data_lines(response)))
        else:
            response.read()
            text = response.text if response.status_code != 200 else piece(response.json()["choices"][0])
        response.close()
    told = response.headers
    return Answer(
        response.status_code, told["x-request-id"], told.get("x-appliance-route"), told.get("x-appliance-reason"), text
    )


def piece(choice: dict[str, Any]) -> str:
    message = choice.get("message") or choice.get("delta") or {}
    return choice.get("text") or message.get("content") or ""


def streamed(lines: list[str]) -> str:
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    return "".join(piece(event["choices"][0]) for event in events if event["choices"])


def clear(tenants: Tenants, **conditions: str) -> None:
    with tenants.daemon.client(tenants.owner.secret) as client:
        client.delete(CACHE, params=conditions).raise_for_status()


PLAIN = Attempt()


def attempted(tenants: Tenants, asked: Asked, text: str, by: Key, attempt: Attempt) -> Answer:
    own = (("x-api-key", by.secret),) if attempt.by_api_key else by.bearer
    forged = tuple(
        (name, aimed(value, tenants.ann))
        for name, value in attempt.headers
        # Of two forms of a key the bearer counts, and a request with a wrong one is refused.
        if not attempt.by_api_key or name.lower() != "authorization"
    )
    mode = attempt.mode or asked.mode
    hints = asked.hints if mode is None else (*asked.hints, ("X-Appliance-Cache", mode))
    body = {**asked.of(text), **aimed(attempt.fields, tenants.ann)}
    path = asked.path + aimed(attempt.query, tenants.ann)
    return ask(tenants.daemon, path, body, (*own, *hints, *forged), stream=attempt.stream)


def taught(tenants: Tenants, asked: Asked) -> str | None:
    """Ann's answer, which she gets again: for the same words, and for others that ask the same. None: not all came from
    the cache, since this machine was too slow to store or to embed in time."""
    clear(tenants)
    first = attempted(tenants, asked, asked.text, tenants.ann, PLAIN)
    assert (first.status, first.route) == (200, "local"), first
    again = attempted(tenants, asked, asked.text, tenants.ann, PLAIN)
    if again.route != "cache-exact":
        return None
    assert again.text == first.text
    if asked.is_semantic:
        other = attempted(tenants, asked, asked.same, tenants.ann, PLAIN)
        if other.route != "cache-semantic":
            return None
        assert other.text == first.text
    return first.text


@hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
@hypothesis.given(asked=requests(), bobs=ATTEMPT, cids=ATTEMPT)
def test_what_one_key_was_answered_is_news_to_all_others(
    tenants: Tenants, asked: Asked, bobs: Attempt, cids: Attempt
) -> None:
    anns: str = wait_until(lambda: taught(tenants, asked), f"ann's answers come from the cache: {asked}", SLOW_S)
    same = asked.same if asked.is_semantic else asked.text
    fresh = {}
    for key, text, attempt in ((tenants.bob, asked.text, bobs), (tenants.cid, same, cids)):
        answer = attempted(tenants, asked, text, key, attempt)
        assert (answer.status, answer.route) == (200, "local"), answer
        assert answer.reason not in ("shared", "exact", "semantic")
        assert answer.text
        if asked.is_random:
            assert answer.text != anns
        fresh[answer.request_id] = key.id
    again = attempted(tenants, asked, asked.text, tenants.ann, PLAIN)
    assert (again.route, again.text) == ("cache-exact", anns)
    wait_until(lambda: ledger(tenants.daemon, fresh) == {(key, "local") for key in fresh.values()}, "rows say the same")


def ledger(daemon: Daemon, requests: dict[str, str]) -> set[tuple[Any, ...]]:
    """Who paid for these requests, and who answered."""
    question = f"SELECT key, route FROM attempts WHERE request IN ({', '.join('?' * len(requests))})"
    return set(rows(daemon, question, list(requests)))


def asked_by(tenants: Tenants, key: Key) -> Answer:
    return ask(tenants.daemon, CHAT, QUESTION, key.bearer)


def namespaces(tenants: Tenants) -> dict[str, int]:
    with tenants.daemon.client(tenants.owner.secret) as client:
        found: dict[str, int] = client.get(CACHE).json()["namespaces"]
    return found


def wait_hit(tenants: Tenants, key: Key) -> Answer:
    def hit() -> Answer | None:
        answer = asked_by(tenants, key)
        return answer if answer.route == "cache-exact" else None

    found: Answer = wait_until(hit, "a hit", SLOW_S)
    return found


@pytest.mark.parametrize("name", ["namespace", "key", "api_key", "tenant", "organization", "x-appliance-namespace"])
def test_a_body_that_names_another_is_refused(tenants: Tenants, name: str) -> None:
    clear(tenants)
    wait_hit(tenants, tenants.ann)
    refused = ask(tenants.daemon, CHAT, {**QUESTION, name: tenants.ann.id}, tenants.bob.bearer)
    assert (refused.status, json.loads(refused.text)["error"]["param"]) == (400, name)
    assert namespaces(tenants) == {tenants.ann.id: 1}


def test_identical_requests_of_two_keys_at_a_time_are_two_generations(tenants: Tenants) -> None:
    clear(tenants)
    number = {"temperature": 2, "max_tokens": 200, "stream": True, "structured_outputs": {"regex": "[0-9]{100}"}}
    hints = (("x-appliance-cache", "exact"), ("x-appliance-task", "at-a-time"))

    def begun(key: Key) -> BackgroundStream:
        return BackgroundStream(tenants.daemon, chat_body("Say a long number.", **number), dict(key.bearer + hints))

    first = begun(tenants.ann)
    first.wait_first_token()
    streams = [first, *map(begun, (tenants.bob, tenants.ann, tenants.bob))]
    texts = [streamed(stream.wait_end(SLOW_S).data) for stream in streams]
    assert [len(text) for text in texts] == [100] * 4
    assert texts[:2] == texts[2:]
    assert texts[0] != texts[1]
    local = Counter({tenants.ann.id: 1, tenants.bob.id: 1})
    question = "SELECT key FROM attempts WHERE task = 'at-a-time' AND route = 'local' AND outcome = 'completed'"
    wait_until(lambda: Counter(key for (key,) in rows(tenants.daemon, question)) == local, "one for each", SLOW_S)


def test_only_an_owner_evicts_and_a_key_complains_of_its_own_hits_only(tenants: Tenants) -> None:
    clear(tenants)
    hit = wait_hit(tenants, tenants.ann)
    wait_hit(tenants, tenants.bob)
    complaint = {"request_id": hit.request_id, "correct": False}
    for key in (tenants.ann, tenants.bob):
        forged = {"x-api-key": tenants.owner.id, "x-appliance-scope": "admin"}
        with tenants.daemon.client(key.secret) as client:
            refused = [
                client.delete(CACHE, headers=forged),
                client.delete(CACHE, params={"namespace": tenants.ann.id}),
                client.delete(CACHE, params={"namespace": tenants.bob.id}),
                client.get(CACHE, headers=forged),
                client.get("/admin/v1/status"),
                client.get("/metrics"),
            ]
        assert {(one.status_code, one.json()["error"]["code"]) for one in refused} == {(403, "forbidden")}
    with tenants.daemon.client(tenants.bob.secret) as client:
        others = client.post(FEEDBACK, json=complaint, headers={"x-api-key": tenants.owner.id})
    assert (others.status_code, others.json()["error"]["param"]) == (400, "request_id")
    assert namespaces(tenants) == {tenants.ann.id: 1, tenants.bob.id: 1}
    again = asked_by(tenants, tenants.ann)
    assert again.route == "cache-exact"

    with tenants.daemon.client(tenants.owner.secret) as client:
        client.post(FEEDBACK, json={"request_id": again.request_id, "correct": True}).raise_for_status()
    with tenants.daemon.client(tenants.ann.secret) as client:
        client.post(FEEDBACK, json=complaint).raise_for_status()
    assert namespaces(tenants) == {tenants.bob.id: 1}
    assert asked_by(tenants, tenants.ann).route == "local"
    wait_hit(tenants, tenants.ann)
    clear(tenants, namespace=tenants.ann.id)
    assert namespaces(tenants) == {tenants.bob.id: 1}
    assert asked_by(tenants, tenants.bob).route == "cache-exact"


def test_what_is_told_of_the_cache_has_no_texts_and_no_secrets(tenants: Tenants) -> None:
    clear(tenants)
    for key in (tenants.ann, tenants.bob):
        wait_hit(tenants, key)
    with tenants.daemon.client(tenants.owner.secret) as client:
        told = [client.get(path).raise_for_status().text for path in (CACHE, "/admin/v1/status", "/metrics")]
    assert tenants.ann.id in told[0]
    told.append("\n".join(tenants.daemon.log.lines))
    secrets = [key.secret for key in (tenants.ann, tenants.bob, tenants.cid, tenants.owner)]
    for word in ("quixotic", "Panza", *secrets):
        assert not any(word in text for text in told)


def test_a_key_that_is_made_again_knows_nothing_of_the_old_one(launch: Launch) -> None:
    daemon = launch({"cache.enabled": True}).wait_ready()

    def is_news(headers: Headers) -> None:
        """First; then it is known."""
        assert ask(daemon, CHAT, QUESTION, headers).route == "local"
        wait_until(lambda: ask(daemon, CHAT, QUESTION, headers).route == "cache-exact", "it is known", SLOW_S)

    is_news(())  # without keys, whoever is on this machine
    old = make_key(daemon, "ann")
    is_news(old.bearer)
    revoked = appliance("--state-dir", daemon.state_dir, "keys", "revoke", "ann", home=daemon.home)
    assert revoked.returncode == 0, revoked.stderr
    assert ask(daemon, CHAT, QUESTION, old.bearer).status == 401
    new = make_key(daemon, "ann")
    assert new.id != old.id
    is_news(new.bearer)


def rows(daemon: Daemon, question: str, values: list[str] | None = None) -> list[tuple[Any, ...]]:
    """Of the ledger."""
    with closing(apsw.Connection(str(daemon.state_dir / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return list(db.execute(question, values or ()))
