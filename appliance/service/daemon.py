"""Runs the daemon: listens, starts the engines, tells the service manager, obeys signals, stops in order."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from appliance.app import Application
from appliance.engines import Engines
from appliance.security.keys import KeyStore, KeyStoreError
from appliance.service.http_protocol import ConnectionLimits, limited_protocol
from appliance.service.listen import (
    check_bind,
    connections_within,
    forbid_core_files,
    open_listener,
    raise_open_files_limit,
)
from appliance.service.sd_notify import Notifier
from appliance.settings import ConfigError, Loaded
from appliance.telemetry import logs

READY_POLL_S = 0.02
CANCELLED_GRACE_S = 2.0  # after the drain: requests that were ended say so to their clients

log = logs.get(__name__)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: they would end the process behind the engines' back."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Daemon:
    def __init__(
        self, loaded: Loaded, engines: Engines, keys: KeyStore, reload: Callable[[], Loaded], state_dir: Path
    ) -> None:
        self._settings = loaded.settings
        self._engines = engines
        self._application = Application(loaded, engines, keys, state_dir)
        self._reload = reload
        self._notifier = Notifier.from_environment(os.environ)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. Raises `ConfigError` when it cannot listen where it should."""
        began_s = time.monotonic()
        server_settings = self._settings.server
        address = check_bind(server_settings.host, has_keys=self._application.keys.has_keys())
        listener = open_listener(address, server_settings.port)
        files, wanted = raise_open_files_limit(), server_settings.max_connections
        max_connections = connections_within(files, wanted)
        if max_connections < wanted:  # one more would find no file, and be hung up on without a word
            log.warning("connections_limited", max_connections=max_connections, wanted=wanted, open_files=files)
        forbid_core_files()
        server = self._server(max_connections)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        self._engines.start()
        self._application.start()
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log.info("listening", url=url, models=",".join(self._engines.supervisors))
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve([listener]))
            announcing = group.create_task(self._announce(url, began_s))
            await self._stopping.wait()
            await self._stop(server, serving)
            announcing.cancel()

    def _server(self, max_connections: int) -> uvicorn.Server:
        settings = self._settings.server
        limits = ConnectionLimits(
            header_timeout_s=settings.header_timeout_s,
            body_timeout_s=settings.body_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
            max_connections=max_connections,
        )
        config = uvicorn.Config(
            self._application.asgi,
            http=limited_protocol(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(settings.idle_timeout_s),
            timeout_graceful_shutdown=int(settings.drain_timeout_s + CANCELLED_GRACE_S) + 1,
        )
        return _Server(config)

    async def _announce(self, url: str, began_s: float) -> None:
        """READY once, then the watchdog, and a status line whenever readiness changes."""
        ready: bool | None = None
        watchdog_s = self._notifier.watchdog_s
        while True:
            now_ready = self._application.state.ready
            if now_ready and ready is None:
                self._notifier.ready(f"serving on {url}")
                log.info("ready", url=url, seconds=round(time.monotonic() - began_s, 2))
            elif ready is not None and now_ready != ready:
                self._notifier.status(f"serving on {url}" if now_ready else "the engine is being restarted")
            ready = now_ready or (None if ready is None else False)
            self._notifier.alive()
            if ready is None:
                await asyncio.sleep(READY_POLL_S)
            else:
                await asyncio.sleep(min(1.0, watchdog_s / 2) if watchdog_s else 1.0)

    async def _stop(self, server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
        """No new connection; requests in flight get the drain time; then the engines end, and with them the rest."""
        drain_s = self._settings.server.drain_timeout_s
        self._application.state.draining = True
        self._notifier.stopping(f"finishing requests, {drain_s:g} s at most")
        log.info("stopping", drain_s=drain_s)
        server.should_exit = True
        await asyncio.wait({serving}, timeout=drain_s)
        await self._engines.stop()
        await serving
        await self._application.close()
        log.info("stopped")

    def _on_reload(self) -> None:
        self._notifier.reloading()
        try:
            self._application.reload(self._reload())
            log.info("reloaded")
        except (ConfigError, KeyStoreError) as error:
            log.warning("reload_failed", reason=str(error))
        self._notifier.ready()


def run(
    loaded: Loaded, engines: Callable[[], Engines], keys: KeyStore, reload: Callable[[], Loaded], state_dir: Path
) -> None:
    """Blocks until the daemon has stopped. `engines` is called inside its event loop."""

    async def main() -> None:
        await Daemon(loaded, engines(), keys, reload, state_dir).run()

    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(main())


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop  # noqa: PLC0415 - absent on platforms it does not support

    return uvloop.new_event_loop()
