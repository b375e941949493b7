"""From the name that somebody typed to the files that have to come.

smollm2-135m-instruct            a name of the catalogue
hf:ORG/REPO/FILE.gguf            a file of Hugging Face
hf:ORG/REPO:Q4_K_M               the file of that quantisation there
./model.gguf                     a file of this machine
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtimes.models.catalogue import Catalogue, CatalogueEntry, WantedFile
from runtimes.models.errors import ModelError
from runtimes.models.sources import Gate, HubFile, LocalFile, hub

HUB_PREFIX: Final = "hf:"
_REPO: Final = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_HUB_FILE: Final = re.compile(rf"({_REPO})/([\w./ -]+\.gguf)", re.ASCII | re.IGNORECASE)
_HUB_QUANTISATION: Final = re.compile(rf"({_REPO}):([\w.-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pull has to bring. `name` is the one the model gets; `asked` the one that was typed."""

    name: str
    asked: str
    licence: str | None
    files: tuple[WantedFile, ...]

    @property
    def source(self) -> str:
        return str(next(file.source for file in self.files if file.role == "model"))

    @property
    def alias(self) -> str | None:
        """Another name by which the model is to be found from now on."""
        return None if self.asked == self.name or is_path(self.asked) else self.asked

    @property
    def needs_network(self) -> bool:
        return any(not isinstance(file.source, LocalFile) for file in self.files)


def is_path(name: str) -> bool:
    """Whether a name means a file of this machine."""
    return not is_hub(name) and ("/" in name or name.lower().endswith(".gguf") or name.startswith(("~", ".")))


def is_hub(name: str) -> bool:
    return name.startswith(HUB_PREFIX)


def of_entry(entry: CatalogueEntry, asked: str) -> Plan:
    return Plan(entry.name, asked, entry.licence, entry.files)


def of_hub(name: str, gate: Gate) -> Plan:
    """Raises ModelError for a name in another form, DownloadFailed, and what the gate raises."""
    address = name.removeprefix(HUB_PREFIX)
    if (file := _HUB_FILE.fullmatch(address)) and not {"", ".", ".."} & set(file[2].split("/")):
        source = HubFile(file[1], file[2])
    elif quantisation := _HUB_QUANTISATION.fullmatch(address):
        repo, wanted = quantisation.groups()
        source = hub.choose(repo, wanted, hub.gguf_files(repo, gate))
    else:
        raise ModelError(f"{name!r} is not of the form hf:ORG/REPO/FILE.gguf or hf:ORG/REPO:Q4_K_M.")
    hub.refuse_split(source)
    wanted_file = WantedFile("model", Path(source.file).name, source, size_bytes=None, sha256=None)
    return Plan(str(source), name, None, (wanted_file,))


def of_path(path: Path, asked: str, sha256: str, catalogue: Catalogue) -> Plan:
    """A local file is known by its content first: a copy of a catalogue model becomes that model."""
    for entry in catalogue:
        model = next(file for file in entry.files if file.role == "model")
        complete = all(file.role in ("model", "licence") for file in entry.files)
        if complete and model.sha256 == sha256:
            copied = WantedFile("model", model.name, LocalFile(path), path.stat().st_size, sha256)
            return Plan(entry.name, asked, entry.licence, (copied,))
    name = local_name(path)
    if catalogue.get(name) is not None:
        raise ModelError(
            f"{path} would be called {name}, which is a model of the catalogue with other content. Rename the file."
        )
    copied = WantedFile("model", f"{name}.gguf", LocalFile(path), path.stat().st_size, sha256)
    return Plan(name, asked, None, (copied,))


def local_name(path: Path) -> str:
    """What a file of this machine is called: its name without the ending, in lower case."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.name.lower().removesuffix(".gguf")).strip("-.") or "model"
