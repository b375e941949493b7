"""Keys, hosts and origins on a running daemon: who may do what, and what the log never says."""

import json
from pathlib import Path

import httpx
import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import LONG_STREAM, BackgroundStream, Daemon, appliance, chat_body, wait_until

CHAT = "/v1/chat/completions"
STATUS = "/admin/v1/status"


def create(daemon: Daemon, name: str, *options: str) -> str:
    """The secret of a new key."""
    made = appliance("--state-dir", daemon.state_dir, "keys", "create", "--name", name, *options, home=daemon.home)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def revoke(daemon: Daemon, name: str) -> None:
    ended = appliance("--state-dir", daemon.state_dir, "keys", "revoke", name, home=daemon.home)
    assert ended.returncode == 0, ended.stderr


def status_of(daemon: Daemon, method: str, path: str, key: str | None) -> int:
    with daemon.client(key) as client:
        return client.request(method, path, json=chat_body(max_tokens=1) if method == "POST" else None).status_code


def test_a_running_daemon_obeys_keys_as_they_are_made_and_revoked(launch: Launch) -> None:
    daemon = launch().wait_ready()
    assert status_of(daemon, "POST", CHAT, None) == 200  # loopback, and no key was made

    secrets = {scope: create(daemon, scope, "--scope", scope) for scope in ("infer", "admin", "metrics")}
    with daemon.client() as client:
        refused = client.post(CHAT, json=chat_body())
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200
    assert status_of(daemon, "POST", CHAT, "sk-no-such-key-1234567890") == 401

    allowed = {
        ("POST", CHAT): {"infer"},
        ("GET", STATUS): {"admin"},
        ("GET", "/metrics"): {"metrics", "admin"},
    }
    for (method, path), scopes in allowed.items():
        for scope, secret in secrets.items():
            got = status_of(daemon, method, path, secret)
            if scope in scopes:
                assert got == 200, (path, scope)
            elif (path, scope) != (CHAT, "admin"):  # whether an admin may infer is the daemon's choice
                assert got == 403, (path, scope)
    assert status_of(daemon, "GET", "/admin/v1/events", secrets["infer"]) == 403
    with daemon.client(secrets["metrics"]) as client:
        assert client.post(CHAT, json=chat_body()).json()["error"]["code"] == "forbidden"

    revoke(daemon, "infer")
    assert status_of(daemon, "POST", CHAT, secrets["infer"]) == 401

    daemon.terminate()
    log = "\n".join(daemon.log.lines)
    assert len(log) > 1000
    for secret in secrets.values():
        assert secret not in log
    assert "sk-no-such-key-1234567890" not in log


def test_the_official_header_forms_are_known_and_others_are_not(launch: Launch) -> None:
    daemon = launch().wait_listening()
    secret = create(daemon, "me")
    forms = {
        f"Bearer {secret}": 200,
        f"bearer {secret}": 200,
        f"Bearer {secret}x": 401,
        f"Bearer {secret[:-1]}": 401,
        "Bearer": 401,
        f"Basic {secret}": 401,
        "\xff": 401,
    }
    for value, expected in forms.items():
        headers = {b"authorization": value.encode("latin-1")}
        got = httpx.get(f"{daemon.url}/v1/models", headers=headers, trust_env=False)
        assert got.status_code == expected, (value.replace(secret, "…"), got.text)


def test_a_key_has_its_rate_and_its_concurrency(launch: Launch) -> None:
    daemon = launch().wait_ready()
    create(daemon, "admin", "--scope", "admin")
    limited = create(daemon, "limited", "--rpm", "2")
    single = create(daemon, "single", "--concurrent", "1")
    with daemon.client(limited) as client:
        answers = [client.post(CHAT, json=chat_body(max_tokens=1)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60

    bearer = {"authorization": f"Bearer {single}"}
    stream = BackgroundStream(daemon, chat_body(**{**LONG_STREAM, "max_tokens": 100}), bearer)
    stream.wait_first_token()
    with daemon.client(single) as client:
        refused = client.post(CHAT, json=chat_body(max_tokens=1))
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        stream.wait_end()
        wait_until(lambda: client.post(CHAT, json=chat_body(max_tokens=1)).status_code == 200, "the key is free again")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_loopback_it_serves_only_with_a_key(tmp_path: Path, model_path: Path, launch: Launch, host: str) -> None:
    settings = {"server.host": host}
    serve: list[str | Path] = ["--state-dir", tmp_path / "state", "serve", "--model", model_path, "--port", "0"]
    refused = appliance(*serve, home=tmp_path, settings=settings)
    assert refused.returncode == 78
    assert "server.host" in refused.stderr
    assert "appliance keys create" in refused.stderr
    assert "Traceback" not in refused.stderr
    made = appliance("--state-dir", tmp_path / "state", "keys", "create", "--name", "me", home=tmp_path)
    assert made.returncode == 0
    daemon = launch(settings)
    port = httpx.URL(str(daemon.log.wait_for("listening")["url"])).port
    assert httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).status_code == 401


class TestHostsAndOrigins:
    """A page that a browser shows must not reach the daemon, whatever name it gives 127.0.0.1."""

    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", ""]
    )
    @pytest.mark.parametrize("path", ["/v1/models", "/healthz", STATUS])
    def test_a_foreign_host_is_forbidden(self, daemon: Daemon, host: str, path: str) -> None:
        with daemon.client() as client:
            refused = client.get(path, headers={"host": host})
        assert refused.status_code in {403, 400} if not host else refused.status_code == 403
        assert set(refused.json()["error"]) == {"message", "type", "param", "code"}

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80", "127.8.9.1"])
    def test_a_loopback_host_is_not(self, daemon: Daemon, host: str) -> None:
        with daemon.client() as client:
            assert client.get("/v1/models", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example", "file://"])
    def test_a_foreign_origin_is_forbidden(self, daemon: Daemon, origin: str) -> None:
        with daemon.client() as client:
            refused = client.post(CHAT, json=chat_body(), headers={"origin": origin})
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers

    def test_a_loopback_origin_is_not(self, daemon: Daemon) -> None:
        with daemon.client() as client:
            answer = client.get("/v1/models", headers={"origin": "http://localhost:3000"})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"

    def test_configured_names_are_allowed(self, launch: Launch) -> None:
        allowed = {
            "security.allowed_hosts": json.dumps(["box.example"]),
            "security.allowed_origins": json.dumps(["https://chat.example"]),
        }
        daemon = launch(allowed).wait_listening()
        headers = {"host": "box.example", "origin": "https://chat.example"}
        assert httpx.get(f"{daemon.url}/v1/models", headers=headers, trust_env=False).status_code == 200
