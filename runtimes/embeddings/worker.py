"""The embedding worker: one model, one socket to the daemon, one batch at a time. It knows no requests.

Without a GPU it can open no file from the moment on that it has read the model's: neither the model, which is
untrusted input to native code, nor whoever takes over that code finds anything to read.
"""

import ctypes
import resource
import socket
import time
from pathlib import Path
from typing import Any, BinaryIO

from runtimes.embeddings.messages import Embed, Embedded, Load, LoadFailed, Ready, decode, encode
from runtimes.embeddings.model import WINDOW_TOKENS, EmbeddingModel, UnusableModelError, providers
from runtimes.sandbox.frames import HEADER

_STANDARD_FILES = 3


def serve(connection: socket.socket, unconfined: list[str]) -> None:
    """Until the daemon closes the socket, or the model cannot be loaded. What goes wrong later ends the process."""
    frames = connection.makefile("rb")
    load = _receive(frames)
    if not isinstance(load, Load):
        return
    began_s = time.monotonic()
    try:
        model = _load(load)
    except (UnusableModelError, OSError) as error:
        connection.sendall(encode(LoadFailed(str(error), final=True)))
        return
    except MemoryError:
        connection.sendall(encode(LoadFailed("not enough memory to load the embedding model", final=False)))
        return
    load_s = time.monotonic() - began_s
    connection.sendall(encode(Ready(model.dimensions, WINDOW_TOKENS, model.provider, load_s, tuple(unconfined))))
    while isinstance(message := _receive(frames), Embed):
        vectors, n_tokens = model.embed(message.texts)
        connection.sendall(encode(Embedded(vectors.tobytes(), n_tokens)))


def _load(load: Load) -> EmbeddingModel:
    model, tokenizer = Path(load.model_path).read_bytes(), Path(load.tokenizer_path).read_bytes()
    if len(providers()) == 1:  # a GPU's libraries open more when they like
        resource.setrlimit(resource.RLIMIT_NOFILE, (_STANDARD_FILES, _STANDARD_FILES))
    loaded = EmbeddingModel(model, tokenizer, load.threads)
    loaded.embed(("The first one takes longer.",))
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)  # what loading has left: 70 MB of 250
    return loaded


def _receive(frames: BinaryIO) -> Any:
    """The next message; None when the daemon has closed the socket."""
    head = frames.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    (length,) = HEADER.unpack(head)
    body = frames.read(length)
    return decode(body) if len(body) == length else None
