"""What the daemon and a worker say to each other, and how it looks on the socket.

A frame is its length (4 bytes, big-endian) and a msgpack value. A dataclass is an extension value: its name and its
fields in order. One `Stepped` a step carries the news of all requests.
"""

import struct
from dataclasses import dataclass, field, fields
from typing import Any

import msgpack

from appliance import protocol
from appliance.protocol import Constraint, Criticality, Event, Prompt, Reasoning, Sampling, Stopping, ToolUse
from runtimes.contracts import ModelInfo
from runtimes.dialects import CallForm, Dialect, ReasoningMarks
from runtimes.engine import CostCurve, EngineStats

LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 64 * 1024 * 1024  # a request body is 10 MiB at most; anything longer is a broken peer
_DATACLASS = 1  # msgpack extension type


@dataclass(frozen=True, slots=True)
class Load:
    """The first message to a worker."""

    path: str
    slots: int
    context_tokens: int | None
    kv_tokens: int | None
    threads: int | None
    gpu_layers: int
    step_target_s: float
    itl_target_s: float = 0.0  # of critical streams beside others, however much less it could be
    curve: CostCurve | None = None  # as it was measured before; None: measure it


@dataclass(frozen=True, slots=True)
class Generate:
    id: str
    prompts: tuple[Prompt, ...]
    n: int
    sampling: Sampling
    stopping: Stopping
    logprobs: int | None = None
    constraint: Constraint | None = None
    tool_use: ToolUse | None = None
    reasoning: Reasoning = field(default_factory=Reasoning)
    echo: bool = False
    measure_margin: bool = False
    criticality: Criticality = "normal"


@dataclass(frozen=True, slots=True)
class Cancel:
    id: str


@dataclass(frozen=True, slots=True)
class Tokenize:
    id: str
    prompt: Prompt
    with_text: bool = False


@dataclass(frozen=True, slots=True)
class Detokenize:
    id: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered from the step loop itself, so that an answer proves that it turns."""

    id: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded and has made a token."""

    info: ModelInfo
    dialect: Dialect
    load_s: float
    template_problem: str | None  # why the model's own chat template is not used
    unconfined: tuple[str, ...]  # what the worker could not be kept from
    stats: EngineStats
    curve: CostCurve


@dataclass(frozen=True, slots=True)
class LoadFailed:
    message: str
    final: bool  # trying again cannot help: the file or the configuration is wrong


@dataclass(frozen=True, slots=True)
class Stepped:
    events: tuple[tuple[str, Event], ...]  # (request id, news)
    stats: EngineStats | None  # None: much as it was


@dataclass(frozen=True, slots=True)
class Tokens:
    id: str
    tokens: tuple[int, ...]
    texts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Text:
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Pong:
    id: str
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was not taken: its prompt is at fault, or its template."""

    id: str
    code: protocol.ErrorCode
    message: str
    param: str | None = None


_CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Load, Generate, Cancel, Tokenize, Detokenize, Ping,
        Ready, LoadFailed, Stepped, Tokens, Text, Pong, Refused,
        ModelInfo, EngineStats, CostCurve,
        protocol.TextPart, protocol.ImagePart, protocol.ToolCall, protocol.Message,
        protocol.ChatPrompt, protocol.TextPrompt, protocol.TokenPrompt, protocol.Sampling, protocol.Stopping,
        protocol.Constraint, protocol.Tool, protocol.ToolUse, protocol.Reasoning, Dialect, CallForm, ReasoningMarks,
        protocol.TokenLogprob, protocol.Started, protocol.Delta, protocol.Finished, protocol.Failed,
    )
}  # fmt: skip
_FIELDS = {cls: tuple(field.name for field in fields(cls)) for cls in _CLASSES.values()}


def encode(message: object) -> bytes:
    """The whole frame. Raises `ValueError` for what is longer than a frame may be."""
    body = _pack(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes; {MAX_FRAME_BYTES} are the limit")
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Any:
    """The message in a frame's body. Raises `ValueError` for anything that is none."""
    try:
        return msgpack.unpackb(body, ext_hook=_from_extension, use_list=False, strict_map_key=False)
    except (msgpack.UnpackException, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a message: {error}") from error


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, default=_to_extension)
    return packed


def _to_extension(value: object) -> Any:
    names = _FIELDS.get(type(value))
    if names is None:
        raise TypeError(f"{type(value).__name__} cannot cross to or from a worker")
    return msgpack.ExtType(_DATACLASS, _pack([type(value).__name__, *(getattr(value, name) for name in names)]))


def _from_extension(code: int, data: bytes) -> Any:
    if code != _DATACLASS:
        raise ValueError(f"unknown extension type {code}")
    name, *values = msgpack.unpackb(data, ext_hook=_from_extension, use_list=False, strict_map_key=False)
    return _CLASSES[name](*values)
