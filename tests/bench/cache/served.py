"""One start of the daemon on one `cache.db`, and what its answers take; knows no table.

One client asks over one connection. `exact` are requests whose answers are stored, `semantic` ask stored questions in
other words (`asked`) and need an embedding each. Before each it asks for an answer that takes no work: what the daemon
does after it has answered (its log line, the ledger) falls to that. Through the daemon a lookup that ends in a miss
cannot be told from the generation after it, so that is timed in this process, as are the lookup of an exact hit and
the embedding alone. Hits are not
rechecked (`cache.recheck_share`), since no model made the stored answers.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from appliance.cache_setup import CACHE_FILE, cache_of, embed_whole
from appliance.embedding import EXEMPLARS_CACHE, EmbeddingFiles, embedder_of, embedding_files
from appliance.settings import Settings, load
from runtimes.models import ModelStore
from tests.bench.cache.asked import NAMESPACE, PATIENCE_S, Asked, Requests, chosen
from tests.bench.cache.connection import Connection, connected
from tests.bench.cache.filling import ROOMY, Filled
from tests.bench.errors import BadResponseError, NotReadyError
from tests.bench.measurement import machine_busy_s
from tests.bench.peers import Peer
from tests.bench.processes import Server, free_port, serving

MODEL: Final = "smollm2-135m-instruct"
CONFIG: Final = "appliance.toml"  # of the folder; empty
PASSES: Final = 3  # of a round, over all that is asked
QUIET_S: Final = 1.0
QUIET_SHARE: Final = 0.1  # of a core, in which the daemon still works
SETTLING_LIMIT_S: Final = 120.0

# nothing: GET /healthz; found and miss: the lookup alone, of an exact hit and of a miss
What = Literal["nothing", "exact", "semantic", "found", "miss", "embedding"]


@dataclass(frozen=True, slots=True)
class Round:
    """One start of the daemon on one file."""

    times_s: Mapping[
        What, Sequence[float]
    ]  # of whole requests, as the client sees them; the last three in this process
    first_s: Mapping[What, float]  # after the start
    missed: int  # of the semantic ones: the embedding came too late
    grown_bytes: int  # resident memory of the daemon, from its being ready to the end
    elsewhere: float  # share of one core that others took


@dataclass(frozen=True, slots=True)
class Setup:
    """What all sizes have in common."""

    models: Path
    files: EmbeddingFiles
    settings: Settings
    requests: Requests
    asked: Asked


def setup(state: Path) -> Setup | None:
    """`state` is the folder whose models are used. None: one is not there."""
    settings = load(None, {"HOME": os.devnull, **_environment(0)}, Path(os.devnull)).settings
    files, model = embedding_files(settings, state), ModelStore(state / "models", offline=True).resolve(MODEL)
    if files is None or model is None:
        return None
    asked = chosen(settings.cache.policy.cold_level, files)
    return Setup(state / "models", files, settings, Requests.to(MODEL, model.path, settings), asked)


def _environment(port: int) -> dict[str, str]:
    return {
        "APPLIANCE_SERVER__PORT": str(port),
        "APPLIANCE_MODELS__SERVE": MODEL,
        "APPLIANCE_CACHE__MAX_ENTRIES": str(ROOMY),
        "APPLIANCE_CACHE__MAX_BYTES": str(ROOMY),
        "APPLIANCE_CACHE__RECHECK_SHARE": "0",
    }


def round_of(common: Setup, filled: Filled, folder: Path) -> Round:
    """`folder` has the file, an empty configuration and the models. Raises a `BenchError`."""
    port = free_port()
    options = ("--config", str(folder / CONFIG), "--state-dir", str(folder))
    command = (sys.executable, "-m", "appliance", *options, "serve")
    with serving(Peer("appliance", command, port, "/readyz", _environment(port))) as server:
        _settle(server, folder)
        ready_bytes = server.process.memory_info().rss
        began_s, others_s = time.monotonic(), _others_s(server)
        with connected(server.address) as connection:
            client = _Client(connection, common.requests)
            client.ask("exact", filled.exact[:1])
            client.ask("semantic", common.asked.alike[:1])
            first_s = {what: times[0] for what, times in client.times_s.items() if times}
            for _ in range(PASSES):
                client.ask("exact", filled.exact)
                client.ask("semantic", common.asked.alike)
        others_s = _others_s(server) - others_s
        elsewhere = max(0.0, others_s / (time.monotonic() - began_s))
        grown_bytes = server.process.memory_info().rss - ready_bytes
    alone_s = asyncio.run(_in_this_process(common, folder, filled))
    return Round({**client.times_s, **alone_s}, first_s, client.missed, grown_bytes, elsewhere)


def _settle(server: Server, folder: Path) -> None:
    """Until the daemon is idle: it starts the embedding model last, and embeds the exemplars of routing."""
    deadline_s = time.monotonic() + SETTLING_LIMIT_S
    while time.monotonic() < deadline_s:
        cpu_s = server.cpu_s()
        time.sleep(QUIET_S)
        if (folder / EXEMPLARS_CACHE).exists() and server.cpu_s() - cpu_s < QUIET_SHARE * QUIET_S:
            return
    raise NotReadyError(f"the daemon was not idle {SETTLING_LIMIT_S:g} s after it was ready")


def _others_s(server: Server) -> float:
    """CPU seconds that were neither the daemon's nor ours."""
    return machine_busy_s() - server.cpu_s() - time.process_time()


class _Client:
    """Asks one thing after another, and before each for an answer that takes no work."""

    def __init__(self, connection: Connection, requests: Requests) -> None:
        self._connection = connection
        self._requests = requests
        self.times_s: dict[What, list[float]] = {"nothing": [], "exact": [], "semantic": []}
        self.missed = 0

    def ask(self, what: Literal["exact", "semantic"], texts: Sequence[str]) -> None:
        for text in texts:
            self.times_s["nothing"].append(self._connection.get("/healthz").seconds)
            reply = self._connection.post("/v1/chat/completions", json.dumps(self._requests.body(text)).encode())
            route = reply.headers.get("x-appliance-route")
            if route == f"cache-{what}":
                self.times_s[what].append(reply.seconds)
            elif what == "semantic" and route == "local":
                self.missed += 1
            else:
                raise BadResponseError(f"no hit: status {reply.status}, {route}, {reply.body[:200]!r}")


async def _in_this_process(common: Setup, folder: Path, filled: Filled) -> dict[What, list[float]]:
    embedder = embedder_of(common.files)
    assert embedder is not None
    path, realm = folder / CACHE_FILE, common.requests.realm
    cache, embed = cache_of(common.settings.cache, path, common.files, embedder, realm), embed_whole(embedder)
    times_s: dict[What, list[float]] = {"found": [], "miss": [], "embedding": []}
    embedder.start()
    try:
        await embed_whole(embedder, PATIENCE_S)("The model is loaded with this.")
        await cache.find(common.requests.request(common.asked.strangers[0]), NAMESPACE)
        for text in filled.exact:
            request = common.requests.request(text)
            began_s = time.perf_counter()
            lookup = await cache.find(request, NAMESPACE)
            if lookup.hit is not None:
                times_s["found"].append(time.perf_counter() - began_s)
        for text in common.asked.strangers:
            request = common.requests.request(text)
            began_s = time.perf_counter()
            lookup = await cache.find(request, NAMESPACE)
            found_s = time.perf_counter()
            if lookup.hit is None:
                times_s["miss"].append(found_s - began_s)
            await embed(text)
            times_s["embedding"].append(time.perf_counter() - found_s)
    finally:
        cache.close()
        await embedder.stop()
    return times_s
