"""Folders of the store on disk: locks between processes, durable writes, leftovers.

    <root>/<slug>/              a whole model: its files and manifest.json
    <root>/.partial/<slug>/     one on its way; it becomes <root>/<slug> by a single rename
    <root>/.locks/<slug>.lock   held while a model is pulled or removed; never deleted, or two could hold it

Everything is readable by its owner only. Knows nothing of sources, names or formats.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

PARTIAL: Final = ".partial"
LOCKS: Final = ".locks"
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_CHUNK_BYTES: Final = 8 << 20


def slug(name: str) -> str:
    """A folder's name for a model's name: itself where it is plain, else readable and unmistakable."""
    if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", name):
        return name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-80:]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def make_folder(path: Path) -> Path:
    for folder in (*reversed(path.parents), path):  # mkdir(parents=True) would open the parents to everybody
        if not folder.exists():
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    return path


@contextmanager
def locked(root: Path, folder: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock. `on_wait` is called once when another process holds it. Freed when the process dies."""
    with _lock_file(root, folder) as file:
        if not _try_lock(file):
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock_file(root: Path, folder: str) -> BinaryIO:
    path = make_folder(root / LOCKS) / f"{folder}.lock"
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE), "rb+")


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sweep(root: Path, *, older_than_s: float, now_s: float) -> None:
    """Remove what abandoned pulls left behind, once nobody can be expected to take them up again."""
    for folder in (root / PARTIAL).glob("*"):
        try:
            newest_s = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
        except OSError:  # another process was quicker
            continue
        if now_s - newest_s < older_than_s:
            continue
        with _lock_file(root, folder.name) as file:
            if _try_lock(file):  # else it is being worked on
                shutil.rmtree(folder, ignore_errors=True)


def rewrite(path: Path, text: str) -> None:
    """Replace a small file's content, durably and at once."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, "utf-8")
    fresh.chmod(_FILE_MODE)
    _flush(fresh)
    fresh.replace(path)
    _flush(path.parent)


def publish(folder: Path, destination: Path) -> None:
    """Make a finished folder durable, then visible, in this order: a power cut leaves all of it or none."""
    for path in folder.iterdir():
        path.chmod(_FILE_MODE)
        _flush(path)
    _flush(folder)
    if destination.exists():  # the remains of a model that is no longer whole
        shutil.rmtree(destination)
    folder.rename(destination)
    _flush(destination.parent)


def discard(folder: Path, trash: Path) -> None:
    """Take a model away at once, then its bytes: an engine that has them open keeps them until it closes them."""
    shutil.rmtree(trash, ignore_errors=True)
    make_folder(trash.parent)
    folder.rename(trash)
    shutil.rmtree(trash)


def sha256_of(path: Path, report: Callable[[int, int], None]) -> str:
    """The file's sha256; `report` hears the bytes read and the bytes in all."""
    digest = hashlib.sha256()
    size_bytes = path.stat().st_size
    done = 0
    with path.open("rb") as file:
        while block := file.read(_CHUNK_BYTES):
            digest.update(block)
            done += len(block)
            report(done, size_bytes)
    return digest.hexdigest()


def bytes_in(folder: Path) -> int:
    """Of the files in the folder; 0 when there is no such folder."""
    if not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def free_bytes(path: Path) -> int:
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
