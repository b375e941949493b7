"""The disk of a daemon's cache is full or read-only: no request sees anything of it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.cache_fixture import CACHED, KNOWN, SLOW_S, ask, ask_twice, said, status, wait_cached, wait_said
from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import wait_until


def mount(*arguments: str | Path) -> None:
    made = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"nothing can be mounted: {made.stderr}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The state directory of the daemons that `launch` starts, on a small disk of its own."""
    if os.geteuid():
        pytest.skip("only root mounts a file system")
    folder = tmp_path / "state"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=4m", "none", folder)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The state directory. Root may write to any, unless its disk is read-only."""
    if os.geteuid() == 0:
        request.getfixturevalue("disk")
    return tmp_path / "state"


def set_writable(folder: Path, *, writable: bool) -> None:
    if os.geteuid():
        folder.chmod(0o755 if writable else 0o555)
        (folder / "cache.db").chmod(0o644 if writable else 0o444)
    else:
        mount("-o", "remount,rw" if writable else "remount,ro", folder)


def fill(disk: Path) -> Path:
    """Leaves no page free. The file that takes the room."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def test_a_disk_that_is_full_when_it_starts_is_waited_for(disk: Path, launch: Launch) -> None:
    filler = fill(disk)
    daemon = launch(CACHED).wait_ready()
    for _ in range(3):
        assert ask_twice(daemon) == "local"
    found = status(daemon)
    assert "full" in found["problem"]
    assert found["failures"] > 0
    told = wait_said(daemon, "full")
    filler.unlink()
    wait_cached(daemon)
    assert status(daemon)["quarantines"] == 0
    assert len(told) <= 2
    assert said(daemon) == told


def test_a_disk_that_fills_up_while_it_runs_is_waited_for(disk: Path, launch: Launch) -> None:
    daemon = launch(CACHED).wait_ready()
    wait_cached(daemon)
    filler = fill(disk)
    wait_until(lambda: ask_twice(daemon) == "local", "nothing more is stored", SLOW_S)
    for number in KNOWN:
        assert ask(daemon, number) == "cache-exact"
        ask_twice(daemon)
    assert "full" in status(daemon)["problem"]
    told = wait_said(daemon, "full")
    filler.unlink()
    wait_cached(daemon)
    assert status(daemon)["quarantines"] == 0
    assert said(daemon) == told


def test_a_folder_that_is_read_only_costs_no_request(folder: Path, launch: Launch) -> None:
    before = launch(CACHED).wait_ready()
    wait_cached(before)
    before.terminate()
    set_writable(folder, writable=False)
    daemon = launch(CACHED).wait_ready()
    for number in KNOWN:
        ask(daemon, number)
        assert ask_twice(daemon) == "local"
    found = status(daemon)
    assert (found["failures"] > 0, found["quarantines"]) == (True, 0)
    told = wait_said(daemon, "cache.db")
    assert len(told) <= 2
    set_writable(folder, writable=True)
    wait_cached(daemon)
    assert said(daemon) == told
