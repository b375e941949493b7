"""A Hugging Face for tests: the few requests of its API that a download makes, on loopback, with faults to order.

Files are sent by a second server, as the real hub's are by its content network, so that a redirect leaves the host.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    server: str  # "hub" or "content"
    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Hub:
    """What the server has and does. Tests change it while it runs."""

    url: str = ""
    content_url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)  # "org/repo/file": content
    gated: set[str] = field(default_factory=set)  # "org/repo": only with this token
    token: str = "hf_secret"
    announced_sha256: dict[str, str] = field(default_factory=dict)  # instead of the true one
    announced_size: dict[str, int] = field(default_factory=dict)
    without_sha256: bool = False
    break_after: list[int] = field(default_factory=list)  # bytes that the next responses send before they break off
    failures: list[int] = field(default_factory=list)  # statuses of the next responses of the content server
    ignores_ranges: bool = False
    seen: list[Seen] = field(default_factory=list)

    def add(self, repo: str, file: str, content: bytes) -> None:
        self.files[f"{repo}/{file}"] = content

    def transfers(self) -> list[Seen]:
        return [request for request in self.seen if request.server == "content" and request.method == "GET"]


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    servers = [_Server(hub, "hub"), _Server(hub, "content")]
    hub.url = f"http://127.0.0.1:{servers[0].server_port}"
    hub.content_url = f"http://localhost:{servers[1].server_port}"
    threads = [Thread(target=server.serve_forever, args=(0.01,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, hub: Hub, role: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        self.role = role

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client may be killed, or hang up
            super().handle_error(request, client_address)  # type: ignore[arg-type] # typeshed wants its own socket type


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass

    def _answer(self) -> None:
        hub = self.server.hub
        path = unquote(self.path.partition("?")[0])
        token = self.headers.get("Authorization")
        hub.seen.append(Seen(self.server.role, self.command, path, self.headers.get("Range"), token))
        if self.server.role == "content":
            self._send_content(hub.files[path.removeprefix("/")])
        elif listing := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/main)?", path):
            self._list(listing[1], token)
        elif file := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(file[1], file[3], token)
        else:
            self._reply(404)

    def _refused(self, repo: str, token: str | None) -> bool:
        hub = self.server.hub
        if not any(name.startswith(f"{repo}/") for name in hub.files):
            self._reply(401, {"X-Error-Code": "RepoNotFound"})  # as the hub does, so that names cannot be probed
        elif repo in hub.gated and token != f"Bearer {hub.token}":
            self._reply(401, {"X-Error-Code": "GatedRepo"})
        else:
            return False
        return True

    def _list(self, repo: str, token: str | None) -> None:
        if self._refused(repo, token):
            return
        names = [name.removeprefix(f"{repo}/") for name in self.server.hub.files if name.startswith(f"{repo}/")]
        document = {"_id": "1", "id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
        self._reply(200, {"Content-Type": "application/json"}, json.dumps(document).encode())

    def _resolve(self, repo: str, file: str, token: str | None) -> None:
        if self._refused(repo, token):
            return
        hub = self.server.hub
        name = f"{repo}/{file}"
        content = hub.files.get(name)
        if content is None:
            self._reply(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        sha256 = hub.announced_sha256.get(name) or hashlib.sha256(content).hexdigest()
        etag = "a1b2c3" if hub.without_sha256 else sha256
        self._reply(
            302,
            {
                "Location": f"{hub.content_url}/{name}",
                "X-Repo-Commit": COMMIT,
                "X-Linked-Etag": f'"{etag}"',
                "X-Linked-Size": str(hub.announced_size.get(name, len(content))),
            },
        )

    def _send_content(self, content: bytes) -> None:
        hub = self.server.hub
        if hub.failures:
            self._reply(hub.failures.pop(0))
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and not hub.ignores_ranges else 0
        body = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if hub.break_after:
            self.wfile.write(body[: hub.break_after.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(body)

    def _reply(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
