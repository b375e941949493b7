"""A file of this machine, into the store.

A copy, not a link: a link breaks when the original is moved, a service that cannot read home directories could not
follow a symbolic one, and a tool that writes the original anew would change the file under a running engine. Where the
file system can share blocks (Btrfs, XFS) the copy takes neither time nor space. Who wants no copy serves the path.
"""

import os
import shutil
from pathlib import Path
from typing import BinaryIO, Final

from runtimes.models.errors import ModelError
from runtimes.models.sources import LocalFile, Surroundings

_CHUNK_BYTES: Final = 64 << 20


def fetch(source: LocalFile, destination: Path, surroundings: Surroundings) -> None:
    """Copy the file to `destination`. Raises ModelError, NotEnoughDisk."""
    try:
        with source.path.open("rb") as original:
            size_bytes = os.fstat(original.fileno()).st_size
            surroundings.reserve(size_bytes)
            with destination.open("wb") as copy:
                _copy(original, copy, size_bytes, surroundings)
    except OSError as error:
        if error.filename == os.fspath(source.path):
            raise ModelError(f"{source.path} cannot be read: {error.strerror}") from error
        raise


def _copy(original: BinaryIO, copy: BinaryIO, size_bytes: int, surroundings: Surroundings) -> None:
    done = 0
    surroundings.report(done, size_bytes)
    try:
        while done < size_bytes and (
            copied := os.copy_file_range(original.fileno(), copy.fileno(), min(_CHUNK_BYTES, size_bytes - done))
        ):
            done += copied
            surroundings.report(done, size_bytes)
    except OSError:
        if done:
            raise
        shutil.copyfileobj(original, copy, _CHUNK_BYTES)  # a file system or kernel that cannot copy by itself
        surroundings.report(size_bytes, size_bytes)
