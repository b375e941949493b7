"""Offline and what must stay, by the configuration and across restarts, seen from outside, where nothing arrives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.daemon_fixture import Daemon, appliance
from tests.integration.frontier_fixture import (
    ANSWER,
    Outcome,
    ask,
    everything,
    frontier_daemon,
    openai_client,
    provider,
)
from tests.integration.stand_in_fixture import StandIn

SYNTHESIZE = {"x-appliance-step": "synthesize"}


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    try:
        yield made
    finally:
        made.close()


def providers(stand_in: StandIn) -> list[dict[str, object]]:
    return [provider(stand_in, attempts=1), provider(stand_in, "claude", "anthropic", attempts=1)]


def asked(daemon: Daemon, **fields: Any) -> Outcome:
    with openai_client(daemon) as client:
        return ask(client, **fields)


def goes(daemon: Daemon, *, offline: bool) -> httpx.Response:
    with daemon.client() as client:
        return client.put("/admin/v1/offline", json={"offline": offline})


def stays(daemon: Daemon, stand_in: StandIn) -> bool:
    """Whether nothing of all that an agent may send arrives."""
    routes = {answer.headers.get("x-appliance-route") for answer in everything(daemon)}
    journal = stand_in.journal()
    return routes <= {"local", None} and journal["requests"] == [] and journal["connections"] == 0


def test_offline_outlasts_a_restart_and_the_owner_s_rule_needs_none(
    stand_in: StandIn, model_path: Path, tmp_path: Path
) -> None:
    with frontier_daemon(model_path, tmp_path, providers(stand_in), {"routing.privacy": "local-only"}) as daemon:
        assert stays(daemon, stand_in)
        here = asked(daemon, max_tokens=2)
        assert (here.route, here.reason) == ("local", "local-only")
        assert asked(daemon, max_tokens=2, headers={"x-appliance-privacy": "any"}).route == "local"
        assert goes(daemon, offline=True).status_code == 200
    with frontier_daemon(model_path, tmp_path, providers(stand_in)) as daemon:
        assert daemon.status()["offline"] is True
        assert stays(daemon, stand_in)
        lifted = appliance("--url", daemon.url, "offline", "off", home=daemon.home)
        assert (lifted.returncode, lifted.stdout) == (0, "online\n"), lifted.stderr
        assert asked(daemon).text == ANSWER


def test_offline_by_the_configuration_cannot_be_lifted(stand_in: StandIn, model_path: Path, tmp_path: Path) -> None:
    settings = {"server.offline": True, "routing.offline": "refuse"}
    with frontier_daemon(model_path, tmp_path, providers(stand_in), settings) as daemon:
        lifted = goes(daemon, offline=False)
        assert lifted.status_code == 403
        assert "server.offline" in lifted.json()["error"]["message"]
        refused = appliance("--url", daemon.url, "offline", "off", home=daemon.home)
        assert refused.returncode == 1
        assert "server.offline" in refused.stderr
        assert stays(daemon, stand_in)
        outcome = asked(daemon, model="auto", headers=SYNTHESIZE)
        assert (outcome.status, outcome.code) == (503, "offline")
        escalating = asked(daemon, model="auto", max_tokens=1, headers={"x-appliance-step": "extract"})
        assert escalating.route == "local"
        assert stand_in.journal()["requests"] == []


def test_offline_can_be_asked_for_before_there_is_a_daemon(tmp_path: Path) -> None:
    def command(word: str) -> str:
        settings = {"server.port": 9}  # where nothing listens
        done = appliance("--state-dir", tmp_path / "state", "offline", word, home=tmp_path, settings=settings)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert command("status").startswith("online")
    assert command("on").startswith("offline")
    assert command("status").startswith("offline")
    assert command("off").startswith("online")
    assert command("status").startswith("online")
