"""The `appliance` command as a shell sees it: what it prints, where, and its exit code."""

import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import __version__
from appliance.settings import Settings

Run = subprocess.CompletedProcess[str]


def appliance(home: Path, *arguments: str | Path, **environ: str) -> Run:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("APPLIANCE_")}
    return subprocess.run(
        [sys.executable, "-m", "appliance", *map(str, arguments)],
        env={**inherited, "HOME": str(home), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is bound but does not listen, so that nobody else gets it meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def test_version_and_help_are_told(tmp_path: Path) -> None:
    assert appliance(tmp_path, "--version").stdout == f"appliance {__version__}\n"
    told = appliance(tmp_path, "--help")
    assert told.returncode == 0
    for command in ("serve", "pull", "models", "keys", "config", "doctor", "status", "chat"):
        assert f"\n  {command} " in told.stdout


def test_help_waits_for_nothing_that_is_slow_to_import(tmp_path: Path) -> None:
    code = "import sys, appliance.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    slow = {"llama_cpp", "fastapi", "uvicorn", "httpx", "pydantic_settings", "numpy", "huggingface_hub", "rich"}
    assert "typer" in loaded
    assert not slow & set(loaded)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["status", "--colour"], "No such option: --colour"),
        (["--url", "localhost:8484", "status"], "is no URL"),
        (["chat", "--max-tokens", "0", "hi"], "--max-tokens"),
        (["chat"], "there is nothing to ask"),
    ],
)
def test_a_misused_command_line_is_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    told = appliance(tmp_path, *arguments)
    assert told.returncode == 2
    assert message in told.stderr
    assert told.stdout == ""


@pytest.mark.parametrize("command", [["config", "check"], ["config", "show"], ["status"], ["chat", "hi"]])
def test_a_bad_configuration_is_one_line_and_code_78(tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[server]\nprot = 1\n")
    told = appliance(tmp_path, "--config", file, *command)
    assert told.returncode == 78
    expected = f"appliance: server.prot: there is no such key ({file}); did you mean server.port?\n"
    assert told.stderr == expected
    assert told.stdout == ""


def test_a_good_configuration_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".config/appliance/appliance.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[engine]\nslots = 2\n")
    told = appliance(tmp_path, "config", "check")
    assert (told.returncode, told.stdout, told.stderr) == (0, f"good: {file}\n", "")


def test_what_config_show_prints_is_a_configuration_file_that_means_the_same(tmp_path: Path) -> None:
    file = tmp_path / "appliance.toml"
    file.write_text('[models]\nserve = ["a\\"b", "naïve \\u0007"]\n[engine]\nthreads = 3\n')
    told = appliance(tmp_path, "--config", file, "config", "show", APPLIANCE_SERVER__PORT="9000")
    assert told.returncode == 0
    shown = tomllib.loads(told.stdout)
    assert shown["models"]["serve"] == ['a"b', "naïve \u0007"]
    assert Settings.model_validate(shown).engine.threads == 3
    assert f"threads = 3  # {file}" in told.stdout
    assert "port = 9000  # $APPLIANCE_SERVER__PORT" in told.stdout
    assert "# kv_tokens is null  # default" in told.stdout


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m appliance config show | head -n 1"
    told = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (told.stdout, told.stderr) == ("[server]\n", "")


def test_without_a_daemon_status_and_chat_say_how_to_get_one(tmp_path: Path, unused_port: int) -> None:
    url = f"http://127.0.0.1:{unused_port}"
    for command in (["status"], ["chat", "hi"]):
        told = appliance(tmp_path, "--url", url, *command)
        assert told.returncode == 1
        assert told.stderr.startswith(f"appliance: no daemon answers at {url}. Start it with `appliance serve`")
        assert told.stderr.count("\n") == 1


def test_the_configured_port_is_where_the_daemon_is_looked_for(tmp_path: Path, unused_port: int) -> None:
    told = appliance(tmp_path, "status", APPLIANCE_SERVER__PORT=str(unused_port), APPLIANCE_SERVER__HOST="0.0.0.0")
    assert f"no daemon answers at http://127.0.0.1:{unused_port}." in told.stderr
