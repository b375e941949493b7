"""One gate for everything that leaves this machine: no other code of the product may open a connection."""

import ast
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fallback.gate import PRIVACY, EgressGate, EgressRefused

ROOT = Path(__file__).parents[2]
# What connects somewhere, by the module that it is in.
CONNECTING = {"httpx", "httpx2", "requests", "urllib.request", "urllib3", "aiohttp", "http.client", "ftplib", "smtplib",
              "huggingface_hub", "websockets", "anthropic", "openai"}  # fmt: skip
ALLOWED = {
    "fallback/gate.py": "it is the gate",
    "appliance/cli/calibrate.py": "names httpx's client for its annotations only",
    "fallback/attempt.py": "names httpx's exceptions, and sends through the gate's client",
    "fallback/paid_attempt.py": "names the type of the gate's client",
    "appliance/cli/daemon.py": "the command line talks to the daemon that its user names",
    "appliance/cli/chat.py": "likewise",
    "appliance/cli/examination.py": "looks whether that daemon answers",
    "runtimes/models/sources/hub.py": "asks the gate that it is handed before every request and redirect",
}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_nothing_else_imports_what_connects() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in ("appliance", "runtimes", "cache", "fallback", "tui")
        for path in (ROOT / package).rglob("*.py")
        if any(name in CONNECTING or name.split(".")[0] in CONNECTING for name in imported(path))
    }
    assert found == ALLOWED.keys()


def test_nothing_else_connects_a_socket() -> None:
    calls = ("create_connection", "open_connection", ".connect(", "connect_ex(")
    found = {
        str(path.relative_to(ROOT))
        for package in ("appliance", "runtimes", "cache", "fallback", "tui")
        for path in (ROOT / package).rglob("*.py")
        if any(call in path.read_text(encoding="utf-8") for call in calls)
    }
    # The first is a file of this machine, the service manager's; the other a pair of which the child has one end.
    assert found <= {"appliance/service/sd_notify.py", "runtimes/supervisor/process.py"}


def client_over(gate: EgressGate, seen: list[str]) -> httpx.AsyncClient:
    """The gate's client, with what is behind the gate replaced."""
    client = gate.client()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(307, headers={"location": "http://elsewhere.example/"})

    client._transport._inner = httpx.MockTransport(answer)  # type: ignore[attr-defined]
    return client


@pytest.mark.parametrize(
    ("why", "extensions"),
    [("offline", {PRIVACY: "any"}), ("local-only", {PRIVACY: "local-only"}), ("local-only", {})],
)
async def test_a_request_that_may_not_leave_goes_nowhere(why: str, extensions: dict[str, str]) -> None:
    gate, seen = EgressGate(offline=why == "offline"), list[str]()
    async with client_over(gate, seen) as client:
        with pytest.raises(EgressRefused) as refused:
            await client.post("http://provider.example/v1", extensions=extensions)
    assert refused.value.why == why
    assert seen == []
    assert (gate.counts.permitted, gate.counts.refused) == (0, 1)


async def test_a_redirect_is_not_followed() -> None:
    gate, seen = EgressGate(offline=False), list[str]()
    async with client_over(gate, seen) as client:
        response = await client.post("http://provider.example/v1", extensions={PRIVACY: "any"})
    assert response.status_code == 307
    assert seen == ["http://provider.example/v1"]


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:3128")
    async with EgressGate(offline=False).client() as client:
        assert not client._mounts
        assert not client.trust_env


def test_downloads_pass_the_gate_too() -> None:
    gate = EgressGate(offline=False)
    gate.check_download("hub.example")
    gate.set_offline(offline=True)
    with pytest.raises(EgressRefused, match="offline"):
        gate.check_download("hub.example")


def test_whoever_is_under_way_is_told_when_it_closes() -> None:
    gate, told = EgressGate(offline=False), list[str]()
    gate.on_closing(lambda: told.append("first"))
    gate.on_closing(lambda: told.append("second"))
    gate.set_offline(offline=False)
    assert told == []
    gate.set_offline(offline=True)
    assert told == ["first", "second"]
