"""`appliance pull` and `appliance models`, as a person and as a script use them."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.hub_server import Hub, running_hub
from tests.unit.tiny_gguf import STRING, tiny_model

TINY = tiny_model().set("general.description", STRING, "x" * 900_000).build()
LONG = "hf:organisation-with-a-name/repository-with-a-longer-name-GGUF/tiny-Q4_K_M.gguf"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody: no test reaches out by mistake
    monkeypatch.delenv("APPLIANCE_CONFIG", raising=False)

    def appliance(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "appliance", "--state-dir", str(tmp_path / "state"), *arguments]
        return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)

    return appliance


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(TINY)
    return path


@pytest.fixture
def hub(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as hub:
        hub.add("organisation-with-a-name/repository-with-a-longer-name-GGUF", "tiny-Q4_K_M.gguf", TINY)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def test_a_pulled_model_is_named_and_listed(run: Run, file: Path, tmp_path: Path) -> None:
    pulled = run("pull", str(file))
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout == f"tiny  {tmp_path / 'state' / 'models' / 'tiny' / 'tiny.gguf'}\n"
    assert "tiny.gguf" in pulled.stderr
    assert "\r" not in pulled.stderr  # nobody watches: plain lines
    listed = run("models")
    assert listed.stdout.splitlines()[0].split() == ["NAME", "SIZE", "LICENCE", "PULLED"]
    assert listed.stdout.splitlines()[1].split()[:4] == ["tiny", f"{len(TINY) / 1e3:.0f}", "kB", "apache-2.0"]


def test_a_store_without_models_says_how_to_get_one(run: Run) -> None:
    listed = run("models")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "appliance pull smollm2-135m-instruct" in listed.stderr
    assert json.loads(run("models", "--json").stdout) == []


def test_a_failure_is_one_line_and_exit_code_1(run: Run, file: Path) -> None:
    file.write_bytes(TINY[:-1])
    for name, words in (
        (str(file), "incomplete"),
        ("no-such-model", "no model is called"),
        ("hf:x", "not of the form"),
    ):
        failed = run("pull", name)
        assert failed.returncode == 1
        assert failed.stdout == ""
        assert words in failed.stderr.splitlines()[-1]
        assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("arguments", [[], ["--configured", "tiny"]])
def test_it_must_be_clear_what_to_pull(run: Run, arguments: list[str]) -> None:
    assert run("pull", *arguments).returncode == 2


def test_offline_is_honoured(run: Run) -> None:
    refused = run("pull", "qwen2.5-7b-instruct", APPLIANCE_SERVER__OFFLINE="true")
    assert refused.returncode == 1
    assert "the appliance is offline" in refused.stderr


def test_the_configured_models_are_checked_where_they_lie(run: Run, file: Path, tmp_path: Path) -> None:
    serve = json.dumps([str(file)])
    only = {"APPLIANCE_MODELS__SERVE": serve, "APPLIANCE_MODELS__EMBEDDING": "null"}
    pulled = run("pull", "--configured", **only)
    assert pulled.stdout == f"tiny  {file}\n", pulled.stderr
    assert not (tmp_path / "state" / "models").exists()
    file.unlink()
    assert run("pull", "--configured", **only).returncode == 1


def test_every_table_fits_80_columns(run: Run, hub: Hub) -> None:
    assert run("pull", LONG).returncode == 0
    tables = {arguments: run("models", *arguments).stdout for arguments in ((), ("--all",), ("--recommend",))}
    for arguments, text in tables.items():
        assert text, arguments
        assert max(len(line) for line in text.splitlines() if line != LONG) <= 80, text
    assert LONG in tables[()].splitlines()


def test_json_carries_what_the_tables_show(run: Run, file: Path) -> None:
    run("pull", str(file))
    (model,) = json.loads(run("models", "--json").stdout)
    assert (model["name"], model["size_bytes"], model["licence"]) == ("tiny", len(TINY), "apache-2.0")
    catalogue = json.loads(run("models", "--all", "--json").stdout)
    assert {"smollm2-135m-instruct", "qwen2.5-7b-instruct", "all-minilm-l6-v2"} <= {
        entry["name"] for entry in catalogue
    }
    assert not [entry for entry in catalogue if entry["kind"] == "test"]
    suggestion = json.loads(run("models", "--recommend", "--json").stdout)
    assert suggestion["machine"]["ram_bytes"] > 0
    assert {entry["name"] for entry in suggestion["recommended"]} <= {entry["name"] for entry in catalogue}


def test_on_a_terminal_a_bar_is_drawn_and_cleared(hub: Hub, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "appliance", "--state-dir", str(tmp_path / "state"), "pull", LONG]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, text=True, env=environment)
    os.close(follower)
    drawn = b""
    while True:
        try:
            drawn += os.read(leader, 65536)
        except OSError:  # the last writer is gone
            break
    os.close(leader)
    output = process.communicate()[0]
    assert process.returncode == 0, drawn
    assert output.startswith(LONG)
    assert b"fetching tiny-Q4_K_M.gguf" in drawn
    assert drawn.rstrip().endswith(b"\x1b[2K")  # the bar's lines are erased
