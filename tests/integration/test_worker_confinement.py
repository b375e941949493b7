"""A confined process cannot reach the network or write files, and keeps what it was given."""

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import socket, subprocess, sys
from pathlib import Path
from runtimes.worker.confinement import confine

given, other = socket.socketpair()
problems = confine([Path("/dev"), Path(sys.argv[1])])

def outcome(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"

print("problems", problems)
print("inet", outcome(lambda: socket.socket(socket.AF_INET)))
print("inet6", outcome(lambda: socket.socket(socket.AF_INET6)))
print("unix", outcome(lambda: socket.socket(socket.AF_UNIX)))
print("given", outcome(lambda: given.sendall(b"x") or other.recv(1)))
print("outside", outcome(lambda: Path(sys.argv[2]).write_text("x")))
print("removed", outcome(lambda: Path(sys.argv[3]).unlink()))
print("inside", outcome(lambda: (Path(sys.argv[1]) / "file").write_text("x")))
print("device", outcome(lambda: Path("/dev/null").write_text("x")))
child = "import socket; socket.socket()"
print("child", subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    inside, outside = tmp_path_factory.mktemp("inside"), tmp_path_factory.mktemp("outside")
    victim = outside / "victim"
    victim.touch()
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, str(inside), str(outside / "new"), str(victim)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    found = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    if found["problems"] != "[]":
        pytest.skip(f"this kernel or sandbox cannot confine: {found['problems']}")
    return found


@pytest.mark.parametrize("family", ["inet", "inet6"])
def test_no_network_socket_can_be_opened(outcomes: dict[str, str], family: str) -> None:
    assert outcomes[family] == "PermissionError"


def test_what_a_confined_process_starts_is_confined_too(outcomes: dict[str, str]) -> None:
    assert outcomes["child"] == "1"


@pytest.mark.parametrize("change", ["outside", "removed"])
def test_files_cannot_be_made_or_removed(outcomes: dict[str, str], change: str) -> None:
    assert outcomes[change] == "PermissionError"


@pytest.mark.parametrize("use", ["unix", "given", "inside", "device"])
def test_what_it_needs_still_works(outcomes: dict[str, str], use: str) -> None:
    assert outcomes[use] == "done"
