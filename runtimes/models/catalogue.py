"""The models that this product knows by name, read from `catalogue.toml`.

Data only: what a model is, where its files are, what it costs in memory. Knows neither what is installed nor what
this machine has.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal

from runtimes.models.sources import HubFile, Source, WheelMember, Wheels

Kind = Literal["chat", "embedding", "test"]
Role = Literal["model", "tokenizer", "licence"]

_CLOSE: Final = 0.6  # of 1.0, as difflib counts: two letters wrong in a word of ten

SLOTS: Final = 16  # what memory is planned for: the engine's default number of slots
# On a GPU: compute buffers for a batch of 512 tokens and a vocabulary of 152,000, and the driver's own context.
RUNTIME_BYTES: Final = 800_000_000


@dataclass(frozen=True, slots=True)
class WantedFile:
    role: Role
    name: str  # in the store
    source: Source
    size_bytes: int | None  # None: the source says it
    sha256: str | None  # None: the source's own


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    name: str
    family: str
    kind: Kind
    parameters: int
    quantisation: str
    licence: str  # SPDX identifier, or its name where it has none
    commercial: Literal["free", "conditions"]
    licence_note: str
    context_tokens: int
    kv_bytes_per_token: int
    note: str
    files: tuple[WantedFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes or 0 for file in self.files)

    @property
    def bits_per_weight(self) -> float:
        return self.size_bytes * 8 / self.parameters

    def memory_bytes(self, tokens_per_slot: int, runtime_bytes: int = RUNTIME_BYTES) -> int:
        """What 16 slots of so many tokens each need: weights, KV cache, and what the run time takes beside them."""
        return self.size_bytes + self.kv_bytes_per_token * tokens_per_slot * SLOTS + runtime_bytes


class Catalogue:
    """Entries by name, in the order of the file: from small to large."""

    def __init__(self, entries: tuple[CatalogueEntry, ...]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    def __iter__(self) -> Iterator[CatalogueEntry]:
        return iter(self._entries.values())

    def get(self, name: str) -> CatalogueEntry | None:
        return self._entries.get(name.lower())

    def nearest(self, name: str) -> tuple[str, ...]:
        """The known names that a mistyped or shortened one may have meant, best first."""
        wanted = name.lower()
        likeness = {
            known: max(_alike(wanted, known), _alike(wanted, known.partition("-")[0])) for known in self._entries
        }
        close = [known for known in likeness if likeness[known] >= _CLOSE]
        return tuple(sorted(close, key=lambda known: -likeness[known])[:3])


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def load_catalogue(text: str | None = None) -> Catalogue:
    """The catalogue of this release, or of `text` in the same form."""
    if text is None:
        text = resources.files("runtimes.models").joinpath("catalogue.toml").read_text("utf-8")
    return Catalogue(tuple(_entry(raw) for raw in tomllib.loads(text)["model"]))


def _entry(raw: Mapping[str, Any]) -> CatalogueEntry:
    fields = {key: value for key, value in raw.items() if key != "file"}
    return CatalogueEntry(
        **{"licence_note": "", **fields},
        files=tuple(_wanted(file) for file in raw["file"]),
    )


def _wanted(raw: Mapping[str, Any]) -> WantedFile:
    source: Source = (
        HubFile(**raw["hub"]) if "hub" in raw else Wheels(tuple(WheelMember(**part) for part in raw["wheels"]))
    )
    return WantedFile(raw["role"], raw["name"], source, raw["size_bytes"], raw.get("sha256"))
