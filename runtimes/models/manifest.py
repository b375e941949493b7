"""What the store remembers of a model: one small JSON file beside the model's files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that is on this machine. `path` is the file that an engine opens."""

    name: str
    path: Path
    source: str
    licence: str | None = None
    pulled_at: str | None = None  # ISO 8601, UTC; None: a file that is served where it lies
    aliases: tuple[str, ...] = ()  # other names it was asked for by
    files: Mapping[str, StoredFile] | None = None  # by role; None: a file that is served where it lies

    @property
    def size_bytes(self) -> int:
        if self.files is None:
            return self.path.stat().st_size
        return sum(file.size_bytes for file in self.files.values())

    @property
    def sha256(self) -> str | None:
        return self.files["model"].sha256 if self.files else None


def to_json(model: StoredModel) -> str:
    files = {
        role: {"file": file.path.name, "size_bytes": file.size_bytes, "sha256": file.sha256}
        for role, file in (model.files or {}).items()
    }
    return json.dumps(
        {
            "format": _FORMAT,
            "name": model.name,
            "aliases": list(model.aliases),
            "source": model.source,
            "licence": model.licence,
            "pulled_at": model.pulled_at,
            "files": files,
        },
        indent=2,
    )


def read(folder: Path) -> StoredModel | None:
    """The model in this folder; None when it is not whole: no manifest, another format, a file gone or cut short."""
    try:
        raw: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        files = {
            role: StoredFile(folder / Path(file["file"]).name, int(file["size_bytes"]), str(file["sha256"]))
            for role, file in raw["files"].items()
        }
        if raw["format"] != _FORMAT or any(file.path.stat().st_size != file.size_bytes for file in files.values()):
            return None
        return StoredModel(
            name=str(raw["name"]),
            path=files["model"].path,
            source=str(raw["source"]),
            licence=raw["licence"],
            pulled_at=raw["pulled_at"],
            aliases=tuple(raw["aliases"]),
            files=files,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
