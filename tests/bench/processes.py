"""Child processes: started in a group of their own, waited for, and always ended together with their children.

Knows the operating system and HTTP's status line; nothing about models or about what is measured.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import psutil

from tests.bench import load
from tests.bench.errors import NotReadyError
from tests.bench.peers import Peer

READY_TIMEOUT_S = 120.0
READY_POLL_S = 0.02  # also the error of a measured start
STOP_TIMEOUT_S = 30.0  # above the 20 s that our daemon may take to drain
LOG_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    peer: Peer
    process: psutil.Process
    started_in_s: float  # from the start of the process to its first good answer

    @property
    def address(self) -> load.Address:
        return load.Address("127.0.0.1", self.peer.port)

    def cpu_s(self) -> float:
        """CPU seconds of the process and its children so far."""
        return sum(_cpu_s(process) for process in [self.process, *self.process.children(recursive=True)])


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def free_port() -> int:
    """A loopback port that is free now, and so most likely still when a server binds it in a moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(peer: Peer) -> Iterator[Server]:
    """Starts the server, yields it when it answers and ends it on the way out.

    NotReadyError, with the end of its log, when it ends instead or needs more than READY_TIMEOUT_S.
    """
    started_s = time.perf_counter()
    with tempfile.TemporaryFile() as log, child(peer.command, peer.environment, stdout=log, stderr=log) as popen:
        address = load.Address("127.0.0.1", peer.port)
        while load.get(address, peer.ready_path) != 200:
            waited_s = time.perf_counter() - started_s
            if popen.poll() is not None:
                how = f"ended with status {popen.returncode} at its start"
                raise NotReadyError(f"{peer.name} {how}:\n{_tail(log, peer)}")
            if waited_s > READY_TIMEOUT_S:
                raise NotReadyError(f"{peer.name} was not ready after {waited_s:.0f} s:\n{_tail(log, peer)}")
            time.sleep(READY_POLL_S)
        yield Server(peer, psutil.Process(popen.pid), time.perf_counter() - started_s)


@contextlib.contextmanager
def child(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int | None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive the block. The owner's own APPLIANCE_ settings do not reach it."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("APPLIANCE_")}
    with subprocess.Popen(
        command,
        env=inherited | dict(environment),
        stdin=subprocess.PIPE,  # our runners end when it closes, even if this process is killed
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,  # so that one signal reaches the process and its children, and Ctrl-C only us
    ) as popen:
        try:
            yield popen
        finally:
            _end(popen)


def _end(popen: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the process group; after STOP_TIMEOUT_S, SIGKILL to whoever is left, in the group or out of it."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(popen.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(STOP_TIMEOUT_S)
    popen.kill()  # does nothing to a process that has ended
    _, alive = psutil.wait_procs(family, timeout=2.0)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=2.0)


def _tail(log: IO[bytes], peer: Peer) -> str:
    """The last lines that are about something other than our own asking whether it is ready."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return "\n".join([line for line in lines if peer.ready_path not in line][-LOG_TAIL_LINES:])
