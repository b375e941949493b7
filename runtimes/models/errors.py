"""What can go wrong with a model on its way into the store. Messages are for whoever typed the command.

    ModelError
    ├── UnknownModel        no such name; carries the nearest known ones
    ├── InvalidGGUF         the file is not one that llama.cpp can be given safely; carries the byte
    ├── ChecksumMismatch    the bytes are not the bytes that were asked for
    ├── NotEnoughDisk       needed and free bytes
    ├── DownloadFailed      the other side, or the way to it
    └── OfflineError        a download was needed and the appliance is offline

This module knows no HTTP status: the daemon and the command line decide what each means to their callers.
"""

from collections.abc import Sequence
from pathlib import Path


class ModelError(Exception):
    """`message` says what is wrong and what to do next."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UnknownModel(ModelError):
    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(
            f"no model is called {name!r}.{hint} `appliance models --all` lists the catalogue; a file is named by its"
            " path, a Hugging Face file by hf:ORG/REPO/FILE.gguf or hf:ORG/REPO:Q4_K_M."
        )
        self.name = name
        self.nearest = tuple(nearest)


class InvalidGGUF(ModelError):
    """`offset` is the byte of the file at which the reader stopped believing it."""

    def __init__(self, reason: str, *, offset: int | None = None, path: Path | None = None) -> None:
        where = f" (at byte {offset:,})" if offset is not None else ""
        what = f"{path}: " if path is not None else ""
        super().__init__(f"{what}not a usable GGUF file: {reason}{where}")
        self.reason = reason
        self.offset = offset
        self.path = path


class ChecksumMismatch(ModelError):
    def __init__(self, what: str, *, expected: str, actual: str, advice: str) -> None:
        super().__init__(f"{what}: its sha256 is {actual}, expected {expected}. {advice}")
        self.expected = expected
        self.actual = actual


class NotEnoughDisk(ModelError):
    """`needed_bytes` is None when the disk ran full although there had been room, or a quota did."""

    def __init__(self, folder: Path, *, needed_bytes: int | None, free_bytes: int) -> None:
        needed = f"{needed_bytes / 1e9:.2f} GB are needed" if needed_bytes else "it, or your share of it, ran full"
        super().__init__(
            f"{folder}: the disk has {free_bytes / 1e9:.2f} GB free and {needed}. Free some space, or use another"
            " --state-dir; what is here already is kept."
        )
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


class DownloadFailed(ModelError):
    pass


class OfflineError(ModelError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not in the store and the appliance is offline. Go online (start without --offline and with"
            " server.offline = false) and pull it, or bring the file here and name it by its path."
        )
        self.name = name
