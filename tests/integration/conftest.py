"""Running daemons: one for all tests that leave it as it was, and as many as a test wants of its own."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.daemon_fixture import Daemon

# A shell that runs the tests in the background lets its children ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

Launch = Callable[..., Daemon]


@pytest.fixture(scope="session")
def shared_daemon(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(model_path, tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("home"), {})
    try:
        yield daemon.wait_ready()
    finally:
        daemon.close()


@pytest.fixture
def daemon(shared_daemon: Daemon) -> Iterator[Daemon]:
    """The shared daemon. A test must leave it idle, with the worker that it found."""
    shared_daemon.wait_idle()
    worker_pid = shared_daemon.worker_pid()
    yield shared_daemon
    assert shared_daemon.process.poll() is None, "the daemon ended:\n" + "\n".join(shared_daemon.log.lines[-50:])
    shared_daemon.wait_idle()
    assert shared_daemon.worker_pid() == worker_pid, "the worker was replaced"


@pytest.fixture
def launch(model_path: Path, tmp_path: Path) -> Iterator[Launch]:
    """Starts a daemon with settings by dotted key; it is ended after the test and may leave nothing behind."""
    started: list[Daemon] = []

    def start(
        settings: dict[str, object] | None = None,
        *,
        model: Path | None = None,
        arguments: tuple[str, ...] = (),
        extra_environment: dict[str, str] | None = None,
    ) -> Daemon:
        home, state_dir = tmp_path / "home", tmp_path / "state"
        for folder in (home, state_dir):
            folder.mkdir(exist_ok=True)
        daemon = Daemon(
            model or model_path,
            state_dir,
            home,
            settings or {},
            arguments=arguments,
            extra_environment=extra_environment,
        )
        started.append(daemon)
        return daemon

    yield start
    for daemon in started:
        daemon.close()
