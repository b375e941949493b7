"""`appliance doctor` finds what is wrong and says what to do about it."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.cli import Context
from appliance.cli.examination import CHECKS, Examination, Finding, examine
from appliance.security.keys import KeyStore


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("APPLIANCE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def examined(state_dir: Path, config: Path | None = None, *, skip: str = "llama_cpp") -> dict[str, Finding]:
    """The last finding about each thing. llama.cpp takes a process and is left to the test of the whole command."""
    examination = Examination(Context(config), state_dir)
    checks = [check for check in CHECKS if skip not in check.__name__]
    return {finding.about: finding for finding in examine(examination, checks)}


def test_every_line_has_a_level_and_a_failure_is_code_1(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "appliance", "--state-dir", str(tmp_path / "state"), "doctor"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = told.stdout.splitlines()
    assert len(lines) >= len(CHECKS)
    assert all(re.match(r"(ok  |warn|fail)  \S.*: \S", line) for line in lines), told.stdout
    assert "fail  model: smollm2-135m-instruct is not here - fetch it: appliance pull smollm2-135m-instruct" in lines
    assert any(line.startswith("ok    llama.cpp: bindings ") for line in lines)
    assert told.returncode == 1
    assert told.stderr == ""


def test_a_bad_configuration_is_one_finding_among_the_others(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[engine]\nslots = 0\n")
    found = examined(tmp_path, file)
    assert found["configuration"].level == "fail"
    assert "engine.slots" in found["configuration"].text
    assert found["clock"].level == "ok"


def test_a_port_that_something_else_holds_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.settimeout(0)
        monkeypatch.setenv("APPLIANCE_SERVER__PORT", str(other.getsockname()[1]))
        found = examined(tmp_path)["port"]
    assert found.level == "fail"
    assert "in use" in found.text
    monkeypatch.setenv("APPLIANCE_SERVER__PORT", "0")
    assert examined(tmp_path)["port"].level == "ok"


def test_a_file_that_is_no_model_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    monkeypatch.setenv("APPLIANCE_MODELS__SERVE", str(broken))
    found = examined(tmp_path)["model"]
    assert found.level == "fail"
    assert "GGUF" in found.text


def test_a_good_model_is_found_and_weighed(tmp_path: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPLIANCE_MODELS__SERVE", str(model_path))
    found = examined(tmp_path)
    assert found["model"].level == "ok"
    assert "llama, Q4_1" in found["model"].text
    assert re.search(r"the models need 0\.1 GB", found["memory"].text)
    monkeypatch.setenv("APPLIANCE_ENGINE__KV_TOKENS", str(10**9))
    assert examined(tmp_path)["memory"].level == "fail"


def test_a_state_folder_that_is_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert examined(tmp_path / "state")["state folder"].level == "fail"


def test_keys_that_others_can_read_are_found(tmp_path: Path) -> None:
    assert "keys" not in examined(tmp_path)
    keys = tmp_path / "keys.db"
    KeyStore(keys, time.time).create("first", frozenset({"infer"}))
    assert examined(tmp_path)["keys"].level == "ok"
    keys.chmod(0o644)
    assert examined(tmp_path)["keys"].advice == f"chmod 600 {keys}"


def test_keys_that_cannot_be_read_are_found(tmp_path: Path) -> None:
    keys = tmp_path / "keys.db"
    keys.write_bytes(b"no database" * 1000)
    keys.chmod(0o600)
    finding = examined(tmp_path)["keys"]
    assert finding.level == "fail"
    assert str(keys) in finding.text


def test_a_check_that_breaks_is_a_finding_and_ends_nothing(tmp_path: Path) -> None:
    def check_everything(_: Examination) -> "list[Finding]":
        raise RuntimeError("no luck")

    def check_more(_: Examination) -> "list[Finding]":
        return [Finding("ok", "more", "fine")]

    found = list(examine(Examination(Context(None), tmp_path), [check_everything, check_more]))
    assert found == [
        Finding("fail", "everything", "could not be checked: RuntimeError: no luck"),
        Finding("ok", "more", "fine"),
    ]
