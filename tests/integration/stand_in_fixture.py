"""A running stand-in for a frontier API as a test sees it: its URL, what it is told to do, and its journal."""

import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
READY_TIMEOUT_S = 30.0  # it takes a third of a second; a busy machine longer
END_TIMEOUT_S = 10.0
ANNOUNCED = "listening on "


class StandIn:
    """One `python -m tests.frontier_stand_in`. It ends with the test that started it: its standard input closes."""

    def __init__(self, key: str | None = None) -> None:
        with_key = ["--key", key] if key else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.frontier_stand_in", "--port", "0", *with_key],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.url = self._announced()
        except BaseException:
            self.close()
            raise
        # Nothing is encrypted: `verify` only saves the loading of certificates.
        self._client = httpx.Client(base_url=self.url, timeout=30, trust_env=False, verify=False)

    def control(self, **settings: object) -> None:
        """Changes those settings. `faults=[...]` takes the place of the faults that were to come."""
        self._told("PUT", "/_control", settings)

    def fault(self, kind: str, **fields: object) -> None:
        """One more fault, after those that are to come already."""
        self._told("POST", "/_control/faults", {"kind": kind, **fields})

    def journal(self) -> dict[str, Any]:
        """Its requests, what it billed for them, and its connections so far."""
        journal: dict[str, Any] = self._told("GET", "/_journal").json()
        return journal

    def reset(self) -> None:
        """Forgets its requests, settings and faults."""
        self._told("DELETE", "/_journal")

    def close(self) -> int:
        """Ends it; returns its exit code."""
        if hasattr(self, "_client"):
            self._client.close()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()

    def _announced(self) -> str:
        assert self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(READY_TIMEOUT_S):
                raise AssertionError(f"the stand-in was not ready within {READY_TIMEOUT_S:g} s")
        line = self.process.stdout.readline()
        assert line.startswith(ANNOUNCED), f"the stand-in did not start: {line!r}"
        return line.removeprefix(ANNOUNCED).strip()

    def _told(self, method: str, path: str, body: dict[str, object] | None = None) -> httpx.Response:
        response = self._client.request(method, path, json=body)
        assert response.status_code == 200, response.text
        return response
