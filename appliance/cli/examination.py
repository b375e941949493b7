"""What the daemon needs of this machine, looked at one thing after another; each finding says what to do.

It changes nothing and never loads native model code into its own process: a library that was compiled for another
processor dies in a child, and the finding says so.
"""

import json
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import psutil
import pynvml

from appliance.cli import Context
from appliance.frontier_setup import prices_of
from appliance.hardware_setup import trace_of
from appliance.security.hosts import is_loopback_address
from appliance.security.keys import KeyStore, KeyStoreError
from appliance.settings import ConfigError, Settings, load
from fallback import KeyUnavailable
from runtimes.models import ModelError, ModelStore, ModelSummary, read_model

GB = 10**9
LEAST_FREE_BYTES = GB // 5  # the databases grow, and SQLite must never meet a full disk
GOOD_FREE_BYTES = 5 * GB  # room for another model
LEAST_KV_TOKENS = 512  # the engine starts with no less
PROBE_TIMEOUT_S = 60.0  # the first import of a large library from a slow disk

_PROBE = """
import json, llama_cpp
print(json.dumps({
    "version": llama_cpp.__version__,
    "features": llama_cpp.llama_print_system_info().decode(),
    "gpu": bool(llama_cpp.llama_supports_gpu_offload()),
}))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Literal["ok", "warn", "fail"]
    about: str
    text: str
    advice: str = ""


@dataclass
class Examination:
    """What one check finds out and a later one builds upon."""

    context: Context
    state_dir: Path
    settings: Settings = field(default_factory=Settings)
    url: str = "http://127.0.0.1:8484"
    answers: bool = False  # our daemon runs
    offloads: bool = False  # llama.cpp was compiled for a GPU
    gpu_free_bytes: int = 0
    models: list[ModelSummary] = field(default_factory=list)


def check_python(_: Examination) -> Iterator[Finding]:
    yield Finding("ok", "Python", f"{platform.python_version()} on {platform.machine()}, {os.cpu_count()} CPU threads")


def check_compiler(_: Examination) -> Iterator[Finding]:
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        yield Finding("warn", "compiler", "none", "needed only to compile llama.cpp: sudo apt-get install g++")
    else:
        yield Finding("ok", "compiler", compiler)


def check_llama_cpp(examination: Examination) -> Iterator[Finding]:
    again = "remove .venv and ~/.cache/appliance/wheels and run `make setup`"
    try:
        probe = subprocess.run(  # noqa: S603 - this interpreter, with our own text
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        yield Finding("fail", "llama.cpp", f"did not load within {PROBE_TIMEOUT_S:g} s", again)
        return
    if probe.returncode == -signal.SIGILL:
        yield Finding("fail", "llama.cpp", "was compiled for another processor", again)
    elif probe.returncode != 0:
        last = (probe.stderr.strip().splitlines() or [f"exit status {probe.returncode}"])[-1]
        yield Finding("fail", "llama.cpp", f"cannot be loaded: {last}", again)
    else:
        found: dict[str, Any] = json.loads(probe.stdout.splitlines()[-1])
        examination.offloads = found["gpu"]
        features = [part.partition(" =")[0].strip(" |") for part in found["features"].split(" | ") if "= 1" in part]
        features = [feature.rpartition(": ")[2] for feature in features]
        backend = "with GPU offload" if found["gpu"] else "for the CPU"
        yield Finding("ok", "llama.cpp", f"bindings {found['version']}, {backend}: {' '.join(features)}")


def check_sqlite(_: Examination) -> Iterator[Finding]:
    import apsw  # noqa: PLC0415 - whether it can be imported is what is checked

    yield Finding("ok", "SQLite", f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})")


def check_configuration(examination: Examination) -> Iterator[Finding]:
    try:
        loaded = load(examination.context.config, os.environ)
        trace_of(loaded.settings)
    except ConfigError as error:
        yield Finding("fail", "configuration", str(error))
        return
    examination.settings, examination.url = loaded.settings, examination.context.url
    changed = len(loaded.origins)
    yield Finding("ok", "configuration", f"{loaded.path or 'no file'}, {changed} settings differ from their default")


def check_state_folder(examination: Examination) -> Iterator[Finding]:
    folder = examination.state_dir
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Finding("fail", "state folder", f"{existing} cannot be written", "fix its owner, or give --state-dir")
    elif folder.exists() and not folder.is_dir():
        yield Finding("fail", "state folder", f"{folder} is no folder", "move it away, or give --state-dir")
    else:
        yield Finding("ok", "state folder", str(folder) + ("" if folder.exists() else " (will be made)"))
    keys = folder / "keys.db"
    if keys.exists():
        yield _keys(keys)
    free = shutil.disk_usage(existing).free
    text = f"{free / GB:.1f} GB free at {existing}"
    if free < LEAST_FREE_BYTES:
        yield Finding("fail", "disk", text, "free some space, or use another --state-dir")
    elif free < GOOD_FREE_BYTES:
        yield Finding("warn", "disk", text, "too little for a larger model")
    else:
        yield Finding("ok", "disk", text)


def _keys(path: Path) -> Finding:
    try:
        made = len(KeyStore(path, time.time).list())
    except KeyStoreError as error:
        return Finding("fail", "keys", str(error), "put a copy back, or move it away and make new keys")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return Finding("warn", "keys", f"{path} can be read by others", f"chmod 600 {path}")
    return Finding("ok", "keys", f"{made} in {path}")


def check_port(examination: Examination) -> Iterator[Finding]:
    server = examination.settings.server
    examination.answers = _answers(examination.url)
    where = f"{server.host}:{server.port}"
    if examination.answers:
        yield Finding("ok", "port", f"the daemon answers at {examination.url}")
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        advice = "stop what uses it, or set server.port (and server.host)"
        yield Finding("fail", "port", f"{where} cannot be had: {error.strerror}", advice)
    else:
        yield Finding("ok", "port", f"{where} is free")


def _answers(url: str) -> bool:
    """Whether what answers at `url` is a daemon of ours."""
    try:
        body = httpx.get(f"{url}/healthz", timeout=3, trust_env=False).json()
    except (httpx.HTTPError, ValueError):
        return False
    return isinstance(body, dict) and body.get("status") == "ok"


def check_models(examination: Examination) -> Iterator[Finding]:
    store = ModelStore(examination.state_dir / "models", offline=True)
    for name in examination.settings.models.serve:
        try:
            stored = store.resolve(name)
            if stored is None:
                yield Finding("fail", "model", f"{name} is not here", f"fetch it: appliance pull {name}")
                continue
            summary = read_model(stored.path)
        except (ModelError, OSError) as error:
            yield Finding("fail", "model", f"{name}: {error}")
            continue
        examination.models.append(summary)
        size = f"{summary.file_bytes / GB:.2f} GB"
        yield Finding("ok", "model", f"{name}: {summary.architecture}, {summary.quantisation}, {size}")


def check_gpu(examination: Examination) -> Iterator[Finding]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        present = any(Path("/dev").glob("nvidia[0-9]*"))
        level: Literal["ok", "fail"] = "fail" if present else "ok"
        advice = "reinstall or reload the NVIDIA driver" if present else ""
        yield Finding(level, "GPU", f"none that NVML can reach ({error}); the CPU computes", advice)
        return
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            examination.gpu_free_bytes = max(examination.gpu_free_bytes, int(memory.free))
            text = f"{pynvml.nvmlDeviceGetName(handle)}, {memory.free / GB:.1f} of {memory.total / GB:.1f} GB free"
            yield Finding("ok", "GPU", f"{text}, driver {pynvml.nvmlSystemGetDriverVersion()}")
    finally:
        pynvml.nvmlShutdown()
    if examination.gpu_free_bytes and not examination.offloads:
        advice = "install the CUDA toolkit and run `make setup APPLIANCE_CUDA=1`"
        yield Finding("warn", "GPU", "llama.cpp was compiled without its support, so the CPU computes", advice)


def check_memory(examination: Examination) -> Iterator[Finding]:
    engine = examination.settings.engine
    tokens = engine.kv_tokens or engine.context_tokens or LEAST_KV_TOKENS
    needed = sum(model.file_bytes + tokens * (model.kv_bytes_per_token or 0) for model in examination.models)
    on_gpu = examination.offloads and examination.gpu_free_bytes > 0 and engine.gpu_layers != 0
    free = examination.gpu_free_bytes if on_gpu else psutil.virtual_memory().available
    text = f"{free / GB:.1f} GB of {'GPU memory' if on_gpu else 'memory'} available"
    if examination.answers or not examination.models:  # a running daemon has taken its share already
        yield Finding("ok", "memory", text)
    elif needed > free:
        advice = "choose a smaller one: appliance models --recommend"
        yield Finding("fail", "memory", f"{text}, the models need {needed / GB:.1f} GB at least", advice)
    elif needed > 0.8 * free:
        yield Finding("warn", "memory", f"{text}, the models need {needed / GB:.1f} GB at least", "little is left")
    else:
        yield Finding("ok", "memory", f"{text}, the models need {needed / GB:.1f} GB at least")


def check_service_manager(_: Examination) -> Iterator[Finding]:
    if Path("/run/systemd/system").is_dir():
        yield Finding("ok", "systemd", "runs this machine; packaging/systemd/README.md tells how to install the unit")
    else:
        yield Finding("ok", "systemd", "does not run this machine; start the daemon with `appliance serve`")


def check_frontier(examination: Examination) -> Iterator[Finding]:
    """Looks at what is here of it; it connects to nobody."""
    settings = examination.settings
    if not settings.frontier.providers:
        yield Finding("ok", "frontier", "no provider; everything is answered on this machine")
        return
    try:
        prices = prices_of(settings)
    except ConfigError as error:
        yield Finding("fail", "prices", str(error))
        return
    for provider in (described.provider() for described in settings.frontier.providers):
        host = urlsplit(provider.base_url).hostname or ""
        if prices.of(provider.model, date.today()) is None:  # noqa: DTZ011 - any time zone's day will do
            advice = "add it to a file of yours: economics.prices"
            yield Finding("warn", provider.name, f"the price of {provider.model} is not known", advice)
        try:
            has_key = provider.key.read() is not None
        except KeyUnavailable as error:
            yield Finding("fail", provider.name, f"no key: {error}", "it is refused by everyone who asks for one")
            continue
        if has_key and provider.base_url.startswith("http://") and not is_loopback_address(host):
            yield Finding("warn", provider.name, f"its key goes to {host} unencrypted", "use https")
        else:
            yield Finding("ok", provider.name, f"{provider.kind}, {provider.model} at {host}")


def check_clock(_: Examination) -> Iterator[Finding]:
    installed = Path(__file__).stat().st_mtime
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if time.time() < installed - 86400:
        yield Finding("warn", "clock", f"{now} is before this program was installed", "set it: downloads check dates")
    else:
        yield Finding("ok", "clock", now)


Check = Callable[[Examination], Iterable[Finding]]
CHECKS: tuple[Check, ...] = (
    check_python,
    check_compiler,
    check_llama_cpp,
    check_sqlite,
    check_configuration,
    check_state_folder,
    check_port,
    check_models,
    check_gpu,
    check_memory,
    check_frontier,
    check_service_manager,
    check_clock,
)


def examine(examination: Examination, checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    for check in checks:
        try:
            yield from check(examination)
        except Exception as error:  # noqa: BLE001 - one check that breaks must not hide what the others find
            about = getattr(check, "__name__", "").removeprefix("check_").replace("_", " ")
            yield Finding("fail", about, f"could not be checked: {type(error).__name__}: {error}")
