"""The systemd unit is one that systemd accepts, is as confined as we say, and agrees with the daemon's settings."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.settings import Settings

UNIT = Path(__file__).parents[2] / "packaging/systemd/appliance.service"
INSTALLED = "/opt/appliance"
ANALYZE = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(
    ANALYZE is None, reason="systemd-analyze is not installed (Debian: apt-get install systemd)"
)


def directives(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def seconds(text: str) -> float:
    value, unit = re.fullmatch(r"(\d+)(s|min)", text).groups()  # type: ignore[union-attr] # no match: the test fails
    return float(value) * {"s": 1, "min": 60}[unit]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as it is, for an installation that exists."""
    command = tmp_path / "appliance/.venv/bin/appliance"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(INSTALLED, str(tmp_path / "appliance")))
    return unit


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(ANALYZE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@needs_systemd
def test_systemd_accepts_the_unit_without_a_word(installed: Path) -> None:
    told = analyze("verify", "--man=no", installed)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@needs_systemd
def test_systemd_would_notice_a_mistake_in_the_unit(installed: Path) -> None:
    installed.write_text(installed.read_text().replace("WatchdogSec=30s", "WatchdogSec=soon"))
    assert "Failed to parse sec value, ignoring: soon" in analyze("verify", "--man=no", installed).stderr


@needs_systemd
def test_the_unit_is_confined_to_an_exposure_of_two_at_most(installed: Path) -> None:
    told = analyze("security", "--offline=true", "--no-pager", installed)
    exposure = re.search(r"Overall exposure level for .*: ([\d.]+)", told.stdout)
    assert exposure is not None, told.stderr
    assert float(exposure[1]) <= 2.0, told.stdout


@needs_systemd
def test_the_gpu_stays_within_reach(installed: Path) -> None:
    told = analyze("security", "--offline=true", "--no-pager", "--json=short", installed)
    findings = {finding["json_field"]: finding for finding in json.loads(told.stdout)}
    assert findings["PrivateDevices"]["set"] is False
    assert "char-nvidia*:rw" in findings["DeviceAllow"]["description"]


def test_stopping_takes_longer_than_draining() -> None:
    (stop,) = directives("TimeoutStopSec")
    assert seconds(stop) >= Settings().server.drain_timeout_s + 10


def test_starting_takes_longer_than_loading_a_model() -> None:
    (start,) = directives("TimeoutStartSec")
    assert seconds(start) > Settings().engine.load_timeout_s


def test_there_are_files_enough_for_every_connection() -> None:
    (files,) = directives("LimitNOFILE")
    assert int(files) >= 2 * Settings().server.max_connections


def test_a_bad_configuration_is_not_tried_again() -> None:
    assert directives("RestartPreventExitStatus") == ["78"]
