"""What a provider is never shown, and what nobody is: redacted texts, keys that must stay, and the keys themselves."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon_fixture import Daemon, appliance, wait_until
from tests.integration.frontier_fixture import (
    ANSWER,
    HELLO,
    Outcome,
    ask,
    attempts,
    frontier_daemon,
    ledger,
    openai_client,
    provider,
)
from tests.integration.stand_in_fixture import StandIn

PROVIDER_KEYS = {"PLANTED_FIRST": "sk-planted-first-5b1e8d0c7f", "PLANTED_SECOND": "planted-second-9c4e2a6b8d"}
UNKNOWN_KEY = "sk-planted-but-unknown"
MISTAKE = "sk-planted-by-mistake"
EMAIL, CARD, SECRET = "anna.schmidt@example.org", "4111 1111 1111 1111", "sk-live-Zk3vQ8xW1nT5yB7m"
PRIVATE = f"Write to {EMAIL} about {CARD} with {SECRET} at once"
ONLY_ANTHROPIC = {"top_k": 3}
BOTH = pytest.mark.parametrize("only", [{"seed": 1}, ONLY_ANTHROPIC], ids=["openai", "anthropic"])


@dataclass(frozen=True, slots=True)
class Frontier:
    daemon: Daemon
    stand_in: StandIn
    settings: dict[str, object]
    keys: dict[str, str]  # name: secret

    def ask(self, key: str, **fields: Any) -> Outcome:
        with openai_client(self.daemon, self.keys[key]) as client:
            return ask(client, **fields)

    def sent(self) -> str:
        """All that has left the machine, as the provider has it."""
        requests = self.stand_in.journal()["requests"]
        assert requests
        return json.dumps([[r["path"], r["query"], r["headers"], r["body"]] for r in requests], ensure_ascii=False)


@pytest.fixture(scope="module")
def running(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontier]:
    folder = tmp_path_factory.mktemp("secrets")
    first_key, second_key = PROVIDER_KEYS
    stand_in = StandIn()
    settings: dict[str, object] = {"telemetry.log_level": "debug", "routing.redact": ["card"]}
    providers = [
        provider(stand_in, key=f"env:{first_key}", attempts=1),
        provider(stand_in, "claude", "anthropic", key=f"file:{folder / second_key}", attempts=1),
    ]
    (folder / second_key).write_text(PROVIDER_KEYS[second_key])
    environment = {first_key: PROVIDER_KEYS[first_key]}
    try:
        with frontier_daemon(model_path, folder, providers, settings, environment) as daemon:
            options = {
                "plain": (),
                "owner": ("--scope", "admin", "--scope", "infer"),
                "stays": ("--local-only",),
                "careful": ("--redact", "email", "--redact", "secret"),
            }
            keys = {name: new_key(daemon, name, *more) for name, more in options.items()}
            all_settings = settings | {"frontier.providers": providers}
            yield Frontier(daemon, stand_in, all_settings, keys)
    finally:
        stand_in.close()


@pytest.fixture
def frontier(running: Frontier) -> Frontier:
    running.stand_in.reset()
    return running


def new_key(daemon: Daemon, name: str, *options: str) -> str:
    """The secret of a new key."""
    made = appliance("--state-dir", daemon.state_dir, "keys", "create", "--name", name, *options, home=daemon.home)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


# --- Keys whose requests stay ---


def test_what_comes_with_a_key_that_stays_stays(frontier: Frontier) -> None:
    for stream in (False, True):
        for model, step in (("frontier", "plan"), ("auto", "synthesize"), ("auto", "extract"), ("local", "code")):
            hints = {"x-appliance-step": step, "x-appliance-privacy": "any"}
            outcome = frontier.ask("stays", model=model, headers=hints, max_tokens=1, stream=stream)
            assert (outcome.status, outcome.route) == (200, "local")
    assert frontier.stand_in.journal()["requests"] == []
    assert frontier.ask("plain").text == ANSWER


# --- Redaction ---


@BOTH
def test_what_is_private_is_taken_out_on_the_way_and_put_back(frontier: Frontier, only: dict[str, object]) -> None:
    for stream in (False, True):
        messages = [{"role": "user", "content": PRIVATE}]
        outcome = frontier.ask("careful", messages=messages, marks=only, stream=stream)
        assert outcome.text == f"You said: {PRIVATE}"
        sent = frontier.sent()
        for private in (EMAIL, "anna", CARD, "1111", SECRET, "Zk3v"):
            assert private not in sent
        assert "Write to [" in sent


def test_the_owner_s_rule_holds_for_every_key_and_a_key_s_for_itself(frontier: Frontier) -> None:
    messages = [{"role": "user", "content": PRIVATE}]
    assert frontier.ask("plain", messages=messages).text == f"You said: {PRIVATE}"
    sent = frontier.sent()
    assert CARD not in sent
    assert EMAIL in sent


@BOTH
@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "system", "content": PRIVATE}, *HELLO]},
        {"messages": [{"role": "developer", "content": PRIVATE}, *HELLO]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": PRIVATE}, {"type": "text", "text": "?"}]}]},
        {"messages": [*HELLO, {"role": "assistant", "content": PRIVATE}, *HELLO]},
        {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {
            "name": "send", "arguments": json.dumps({"text": PRIVATE})}}]},
            {"role": "tool", "tool_call_id": "1", "content": "sent"}]},
        {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {
            "name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": PRIVATE}]},
        {"messages": HELLO, "tools": [{"type": "function", "function": {"name": "send", "description": PRIVATE}}]},
        {"messages": HELLO, "tools": [{"type": "function", "function": {"name": "send", "parameters": {
            "type": "object", "properties": {"to": {"type": "string", "description": PRIVATE}}}}}]},
        {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": {
            "type": "object", "properties": {"to": {"type": "string", "description": PRIVATE}}}}}},
    ],
    ids=["system", "developer", "parts", "answer", "arguments", "result", "tool", "parameters", "form"],
)  # fmt: skip
def test_what_is_private_does_not_leave_wherever_it_stands(
    frontier: Frontier, fields: dict[str, Any], only: dict[str, object]
) -> None:
    assert frontier.ask("careful", marks=only, **fields).status == 200
    sent = frontier.sent()
    for private in (EMAIL, CARD, SECRET):
        assert private not in sent


@BOTH
def test_what_was_taken_out_comes_back_in_the_arguments_of_a_call(frontier: Frontier, only: dict[str, object]) -> None:
    """The model repeats in its call what stands for the address."""
    messages = [{"role": "user", "content": f"Mail {EMAIL}"}]
    form = {"type": "object", "properties": {"to": {"const": EMAIL}}, "required": ["to"]}
    tools = [{"type": "function", "function": {"name": "mail", "parameters": form}}]
    for stream in (False, True):
        outcome = frontier.ask("careful", messages=messages, tools=tools, stream=stream, marks=only)
        assert [(name, json.loads(arguments)) for _, name, arguments in outcome.calls] == [("mail", {"to": EMAIL})]
    assert EMAIL not in frontier.sent()


def test_an_escalated_step_is_redacted_too(frontier: Frontier) -> None:
    messages = [{"role": "user", "content": PRIVATE}]
    hints = {"x-appliance-step": "extract"}
    outcome = frontier.ask("careful", model="auto", messages=messages, headers=hints, max_tokens=1, marks={"seed": 1})
    assert (outcome.route, outcome.reason) == ("frontier", "escalated-length")
    assert EMAIL not in frontier.sent()


# --- The keys themselves ---


def errors(frontier: Frontier) -> Iterator[str]:
    """What a client is told when providers repeat their keys, and when its own is not known."""
    for only, own in zip(({"seed": 1}, ONLY_ANTHROPIC), PROVIDER_KEYS.values(), strict=True):
        for status in (400, 404, 429, 500, 401):  # of which the last leaves it alone from then on
            body = {"error": {"message": f"Incorrect key {own}: see {own[:-3]}", "type": own, "code": own}, "key": own}
            frontier.stand_in.fault("status", status=status, body=body, headers={"x-own": own, "retry-after": "0"})
            outcome = frontier.ask("plain", marks=only)
            assert outcome.status in (400, 502)
            yield outcome.message + str(dict(outcome.headers))
        yield frontier.ask("plain", marks=only).message
    with openai_client(frontier.daemon, UNKNOWN_KEY) as client:
        yield ask(client).message


def pages(frontier: Frontier) -> Iterator[str]:
    with frontier.daemon.client(frontier.keys["owner"]) as client:
        for path in ("/admin/v1/status", "/metrics", "/v1/models", "/openapi.json", "/admin/v1/config", "/readyz"):
            yield client.get(path).text


def commands(frontier: Frontier) -> Iterator[str]:
    daemon = frontier.daemon
    for command in (["config", "show"], ["config", "check"], ["keys", "list"], ["keys", "list", "--json"]):
        done = appliance("--state-dir", daemon.state_dir, *command, home=daemon.home, settings=frontier.settings)
        assert done.returncode == 0, done.stderr
        yield done.stdout + done.stderr


def files(daemon: Daemon) -> Iterator[str]:
    wait_until(lambda: len(ledger(daemon)) > 10, "the attempts are written down")
    written = [path for path in daemon.state_dir.iterdir() if path.name.startswith(("ledger.db", "keys.db"))]
    assert len(written) >= 2
    for path in written:
        yield path.read_bytes().decode("latin-1")


def processes(daemon: Daemon) -> Iterator[str]:
    """Their command lines, and of those that the daemon started what they were handed in their environment."""
    workers = daemon.processes()
    assert workers
    for pid in (daemon.pid, *(worker.pid for worker in workers)):
        yield Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    for worker in workers:
        yield Path(f"/proc/{worker.pid}/environ").read_text(errors="replace")


def test_no_key_is_shown_to_anyone(frontier: Frontier) -> None:
    first, second = PROVIDER_KEYS.values()
    for key in ("plain", "owner", "careful"):
        for only in ({"seed": 1}, ONLY_ANTHROPIC):
            assert frontier.ask(key, marks=only, stream=key == "owner").text == ANSWER
    sent = [request["headers"] for request in frontier.stand_in.journal()["requests"]]
    got = {headers.get("authorization") or headers.get("x-api-key") for headers in sent}
    assert got == {f"Bearer {first}", second}  # the right ones, and no client's
    shown = [*errors(frontier), *pages(frontier), *commands(frontier)]
    shown += [*files(frontier.daemon), *processes(frontier.daemon), *frontier.daemon.log.lines]
    everything = "\n".join(shown)
    assert "claude" in everything
    assert len(frontier.daemon.log.lines) > 10
    for secret in (first, second, UNKNOWN_KEY, *frontier.keys.values()):
        assert secret not in everything, everything[max(0, everything.index(secret) - 300) :][:400]


@pytest.mark.parametrize(
    "fields",
    [
        {"key": MISTAKE},
        {"api_key": MISTAKE},
        {"base_url": f"https://me:{MISTAKE}@example.org/v1"},
        {"base_url": MISTAKE},
    ],
    ids=["key", "unknown field", "password", "address"],
)
def test_a_key_in_a_wrong_place_of_the_configuration_is_not_repeated(tmp_path: Path, fields: dict[str, object]) -> None:
    made = {"name": "first", "kind": "openai", "base_url": "https://example.org/v1", "model": "m", **fields}
    done = appliance("config", "check", home=tmp_path, settings={"frontier.providers": [made]})
    assert done.returncode == 78
    assert "frontier.providers" in done.stderr
    assert MISTAKE not in done.stdout + done.stderr


def test_a_request_s_account_in_the_ledger_is_its_key_s_id(frontier: Frontier) -> None:
    outcome = frontier.ask("stays", model="local", max_tokens=1)
    (row,) = attempts(frontier.daemon, outcome, 1)
    assert row.key
    assert row.key not in frontier.keys.values()


def test_no_process_leaves_a_core_file(frontier: Frontier) -> None:
    for pid in (frontier.daemon.pid, *(process.pid for process in frontier.daemon.processes())):
        limits = Path(f"/proc/{pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
        assert line.split()[4] == "0", line
