"""What the daemon and the embedding worker say to each other: msgpack behind a length, as in `runtimes.sandbox`.

A message is its class's name and its fields in order. One batch is under way at a time, so an answer needs no id.
"""

from dataclasses import dataclass, fields
from typing import Any

import msgpack

from runtimes.sandbox.frames import pack


@dataclass(frozen=True, slots=True)
class Load:
    """The first message to a worker."""

    model_path: str
    tokenizer_path: str
    threads: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded and has embedded a text."""

    dimensions: int
    window_tokens: int
    provider: str  # what computes, in ONNX Runtime's words
    load_s: float
    unconfined: tuple[str, ...]  # what the worker could not be kept from


@dataclass(frozen=True, slots=True)
class LoadFailed:
    message: str
    final: bool  # trying again cannot help: a file is wrong


@dataclass(frozen=True, slots=True)
class Embed:
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Embedded:
    vectors: bytes  # float32 in this machine's order, one row a text
    n_tokens: tuple[int, ...]  # of each whole text


_CLASSES: dict[str, type[Any]] = {cls.__name__: cls for cls in (Load, Ready, LoadFailed, Embed, Embedded)}


def encode(message: object) -> bytes:
    """The whole frame."""
    name = type(message).__name__
    return pack([name, *(getattr(message, field.name) for field in fields(_CLASSES[name]))])


def decode(body: bytes) -> Any:
    """The message in a frame's body. Raises `ValueError` for anything that is none."""
    try:
        name, *values = msgpack.unpackb(body, use_list=False)
        return _CLASSES[name](*values)
    except (msgpack.UnpackException, KeyError, TypeError) as error:
        raise ValueError(f"not a message: {error}") from error
