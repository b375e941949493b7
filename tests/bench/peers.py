"""The servers that are compared: how each is started, with which settings, and what it needs to make every token asked.

Same model file, same threads, room for the same streams; everything else is each server's own default unless a
comment says why not. It knows nothing about what is measured.
"""

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PeerName = Literal["appliance", "llama-server", "llama_cpp.server"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What all servers have in common."""

    model: Path
    threads: int
    slots: int = 16
    context_tokens: int = 2048  # of one stream

    @property
    def kv_tokens(self) -> int:
        """Of all streams together."""
        return self.slots * self.context_tokens


def _ignore_eos(tokens: int) -> dict[str, Any]:
    return {"ignore_eos": True}


@dataclass(frozen=True, slots=True)
class Peer:
    """One server: `command` with `environment` added serves on `port`, and is ready when `ready_path` answers 200."""

    name: PeerName
    command: tuple[str, ...]
    port: int
    ready_path: str
    environment: Mapping[str, str] = field(default_factory=dict)
    requires: tuple[str, ...] = ()  # modules that this Python environment must have
    exactly: Callable[[int], dict[str, Any]] = _ignore_eos  # fields that keep a request of n tokens from ending early

    def flags(self) -> str:
        """Environment and command line, without the interpreter and with bare file names."""
        words = [f"{key}={_bare(value)}" for key, value in self.environment.items()]
        return " ".join([*words, *(_bare(word) for word in self.command if word != sys.executable)])

    def missing(self) -> list[str]:
        return [module for module in self.requires if importlib.util.find_spec(module) is None]


def _bare(word: str) -> str:
    return re.sub(r'/[^"\s]*/', "", word)


def appliance(setup: Setup, port: int, scratch: Path) -> Peer:
    """Our daemon, with an empty configuration file and a state directory of its own."""
    config = scratch / "appliance.toml"
    config.touch()
    return Peer(
        name="appliance",
        command=(
            *(sys.executable, "-m", "appliance"),
            *("--config", str(config), "--state-dir", str(scratch / "state"), "serve"),
        ),
        port=port,
        ready_path="/readyz",
        environment={
            "APPLIANCE_SERVER__PORT": str(port),
            "APPLIANCE_MODELS__SERVE": json.dumps([str(setup.model)]),
            "APPLIANCE_CACHE__ENABLED": "false",
            "APPLIANCE_ENGINE__THREADS": str(setup.threads),
            "APPLIANCE_ENGINE__SLOTS": str(setup.slots),
            "APPLIANCE_ENGINE__CONTEXT_TOKENS": str(setup.context_tokens),
            "APPLIANCE_ENGINE__KV_TOKENS": str(setup.kv_tokens),
        },
    )


def llama_server(setup: Setup, port: int) -> Peer:
    """llama.cpp's own C++ server, from the prebuilt xllamacpp wheel.

    Its KV cache is kept apart by slot: with `--kv-unified` it made 0.80 to 0.86 times the tokens/s at 16 streams.
    """
    return Peer(
        name="llama-server",
        command=(
            *(sys.executable, str(Path(__file__).with_name("cpp_server.py"))),
            *("--model", str(setup.model), "--port", str(port), "--threads", str(setup.threads)),
            *("--parallel", str(setup.slots), "--ctx-size", str(setup.kv_tokens)),
        ),
        port=port,
        ready_path="/health",
        requires=("xllamacpp",),
    )


def llama_cpp_server(setup: Setup, port: int) -> Peer:
    """llama-cpp-python's server. It runs one sequence at a time, so it has no slots."""
    return Peer(
        name="llama_cpp.server",
        command=(
            *(sys.executable, "-m", "llama_cpp.server", "--host", "127.0.0.1", "--port", str(port)),
            *("--model", str(setup.model), "--n_ctx", str(setup.context_tokens)),
            *("--n_threads", str(setup.threads), "--n_threads_batch", str(setup.threads)),
            # By default a new request cuts the stream that is running, and no load would be served whole.
            *("--interrupt_requests", "false"),
            # By default it keeps the logits of every position, which only costs it memory and time.
            *("--logits_all", "false", "--verbose", "false"),
            # Off by default here, "auto" (on) in llama.cpp; with it this server was 10 % faster.
            *("--flash_attn", "true"),
        ),
        port=port,
        ready_path="/v1/models",
        requires=("llama_cpp", "uvicorn", "fastapi", "sse_starlette", "starlette_context", "pydantic_settings"),
        # It knows no `ignore_eos`, and has a repeat penalty of 1.1 unless told otherwise.
        exactly=lambda tokens: {"min_tokens": tokens, "repeat_penalty": 1.0},
    )
