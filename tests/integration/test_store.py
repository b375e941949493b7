"""The store on a real disk: names, local files, locks between processes, leftovers, permissions."""

import hashlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtimes.models import (
    InvalidGGUF,
    ModelError,
    ModelStore,
    NotEnoughDisk,
    OfflineError,
    Step,
    UnknownModel,
    load_catalogue,
)
from runtimes.models.store import ABANDONED_AFTER_S, MARGIN_BYTES
from tests.unit.tiny_gguf import STRING, tiny_model

TINY = tiny_model().build()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state" / "models"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sound model outside the store."""
    path = tmp_path / "downloads" / "Tiny Model.gguf"
    path.parent.mkdir()
    path.write_bytes(TINY)
    return path


def closed(target: str) -> None:
    raise AssertionError(f"the store connected to {target}")


def test_an_empty_store_has_nothing_and_makes_nothing(root: Path) -> None:
    store = ModelStore(root)
    assert store.list() == ()
    assert store.resolve("smollm2-135m-instruct") is None
    assert not root.exists()


def test_a_local_file_is_copied_named_and_found_again(root: Path, file: Path) -> None:
    store = ModelStore(root, gate=closed)
    stored = store.pull(str(file))
    assert (stored.name, stored.path.name) == ("tiny-model", "tiny-model.gguf")
    assert stored.path.read_bytes() == TINY
    assert stored.size_bytes == len(TINY)
    assert stored.licence == "apache-2.0"
    assert stored.source == str(file)
    assert store.resolve("tiny-model") == stored
    assert ModelStore(root).list() == (stored,)
    file.unlink()
    assert store.resolve("tiny-model") == stored


def test_pulling_the_same_file_again_changes_nothing(root: Path, file: Path) -> None:
    store = ModelStore(root)
    assert store.pull(str(file)) == store.pull(str(file))


def test_another_file_of_the_same_name_is_refused(root: Path, file: Path) -> None:
    store = ModelStore(root)
    stored = store.pull(str(file))
    file.write_bytes(tiny_model().set("general.name", STRING, "Other").build())
    with pytest.raises(ModelError, match="another model is called tiny-model"):
        store.pull(str(file))
    assert stored.path.read_bytes() == TINY


def test_a_path_is_served_where_it_lies(root: Path, file: Path) -> None:
    found = ModelStore(root).resolve(str(file))
    assert found is not None
    assert (found.name, found.path, found.size_bytes) == ("tiny-model", file, len(TINY))
    assert found.sha256 is None
    assert ModelStore(root).resolve(str(file.with_name("other.gguf"))) is None
    assert not root.exists()


@pytest.mark.parametrize("action", ["resolve", "pull"])
def test_a_broken_local_file_is_refused_by_name(root: Path, file: Path, action: str) -> None:
    file.write_bytes(TINY[:-100])
    store = ModelStore(root)
    with pytest.raises(InvalidGGUF, match="incomplete") as caught:
        getattr(store, action)(str(file))
    assert str(file) in str(caught.value)
    assert store.list() == ()


def test_a_model_without_tokenizer_is_refused(root: Path, file: Path) -> None:
    file.write_bytes(tiny_model().drop("tokenizer.ggml.model").build())
    with pytest.raises(InvalidGGUF, match="no tokenizer"):
        ModelStore(root).pull(str(file))


def test_a_copy_of_a_catalogue_model_becomes_that_model(root: Path, file: Path) -> None:
    catalogue = load_catalogue(
        f"""
        [[model]]
        name = "known"
        family = "F"
        kind = "chat"
        parameters = 1
        quantisation = "F32"
        licence = "MIT"
        commercial = "free"
        context_tokens = 1
        kv_bytes_per_token = 1
        note = ""
        [[model.file]]
        role = "model"
        name = "known.gguf"
        size_bytes = {len(TINY)}
        sha256 = "{hashlib.sha256(TINY).hexdigest()}"
        hub = {{ repo = "o/r", file = "known.gguf" }}
        """
    )
    stored = ModelStore(root, offline=True, gate=closed, catalogue=catalogue).pull(str(file))
    assert (stored.name, stored.path.name, stored.licence) == ("known", "known.gguf", "MIT")


def test_a_file_cannot_take_the_name_of_a_catalogue_model(root: Path, file: Path) -> None:
    taken = file.rename(file.with_name("SmolLM2-135M-Instruct.gguf"))
    with pytest.raises(ModelError, match="Rename the file"):
        ModelStore(root).pull(str(taken))


def test_an_unknown_name_is_answered_with_the_nearest(root: Path) -> None:
    with pytest.raises(UnknownModel) as caught:
        ModelStore(root).pull("smolm2-135-instruct")
    assert caught.value.nearest[0] == "smollm2-135m-instruct"
    assert "Did you mean smollm2-135m-instruct" in str(caught.value)


@pytest.mark.parametrize("name", ["qwen2.5-7b-instruct", "hf:org/repo/file.gguf", "hf:org/repo:Q4_K_M"])
def test_offline_every_download_is_refused_before_any_connection(root: Path, name: str) -> None:
    with pytest.raises(OfflineError, match="Go online"):
        ModelStore(root, offline=True, gate=closed).pull(name)


def test_offline_what_is_here_still_resolves(root: Path, file: Path) -> None:
    stored = ModelStore(root).pull(str(file))
    offline = ModelStore(root, offline=True, gate=closed)
    assert offline.resolve("tiny-model") == stored
    assert offline.pull("tiny-model") == stored


def test_a_full_disk_is_seen_before_anything_is_written(root: Path, file: Path) -> None:
    def nearly_full(_path: Path) -> int:
        return MARGIN_BYTES + len(TINY) - 1

    with pytest.raises(NotEnoughDisk) as caught:
        ModelStore(root, free_bytes=nearly_full).pull(str(file))
    assert caught.value.needed_bytes == len(TINY) + MARGIN_BYTES
    assert "GB are needed" in str(caught.value)
    assert [path for path in root.rglob("*") if path.suffix != ".lock" and path.name != ".locks"] == []


def test_a_disk_that_runs_full_meanwhile_is_explained(root: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("runtimes.models.sources.local._copy", full)
    with pytest.raises(NotEnoughDisk, match="ran full"):
        ModelStore(root).pull(str(file))


def test_a_store_that_cannot_be_written_is_explained(tmp_path: Path, file: Path) -> None:
    (tmp_path / "occupied").write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="must be readable and writable"):
        ModelStore(tmp_path / "occupied" / "models").pull(str(file))


def test_only_the_owner_can_read_what_is_stored(root: Path, file: Path) -> None:
    before = os.umask(0)
    try:
        ModelStore(root).pull(str(file))
    finally:
        os.umask(before)
    for path in (root, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_removing_frees_the_name_and_the_disk(root: Path, file: Path) -> None:
    store = ModelStore(root)
    stored = store.pull(str(file))
    with stored.path.open("rb") as opened:  # an engine may be running it
        assert store.remove("tiny-model") == stored
        assert opened.read() == TINY
    assert store.resolve("tiny-model") is None
    assert not stored.path.exists()
    with pytest.raises(UnknownModel):
        store.remove("tiny-model")


def test_a_model_whose_file_was_cut_short_is_not_whole_and_is_brought_again(root: Path, file: Path) -> None:
    store = ModelStore(root)
    stored = store.pull(str(file))
    stored.path.write_bytes(TINY[:1000])
    assert store.resolve("tiny-model") is None
    assert store.pull(str(file)).path.read_bytes() == TINY


def test_a_manifest_that_is_no_manifest_counts_as_no_model(root: Path, file: Path) -> None:
    store = ModelStore(root)
    stored = store.pull(str(file))
    manifest = stored.path.with_name("manifest.json")
    for text in ("", "[]", "{}", '{"format": 99}', "\x00"):
        manifest.write_text(text)
        assert store.list() == ()
        assert store.resolve("tiny-model") is None


def test_what_abandoned_pulls_left_is_removed_after_a_week(root: Path, file: Path) -> None:
    left = root / ".partial" / "abandoned"
    left.mkdir(parents=True)
    (left / "part").write_bytes(b"x")
    now_s = left.stat().st_mtime
    ModelStore(root, clock=lambda: now_s + ABANDONED_AFTER_S - 60).pull(str(file))
    assert left.exists()
    other = file.with_name("other.gguf")
    other.write_bytes(tiny_model().set("general.name", STRING, "Other").build())
    ModelStore(root, clock=lambda: now_s + ABANDONED_AFTER_S + 60).pull(str(other))
    assert not left.exists()


def test_progress_tells_what_happens(root: Path, file: Path) -> None:
    steps: list[Step] = []
    ModelStore(root).pull(str(file), steps.append)
    assert [step.phase for step in steps if step.phase != "checking"][-1] == "transfer"
    done = [step.done_bytes for step in steps if step.phase == "transfer"]
    assert done == sorted(done)
    assert done[-1] == len(TINY)
    assert {step.total_bytes for step in steps} == {len(TINY)}


# Pulls a file while another process does: holds still inside the transfer until it is told to go on.
_SLOW_PULL = """
import sys
from pathlib import Path
from runtimes.models import ModelStore

def hold(step):
    if step.phase == "transfer" and step.done_bytes == 0:
        print("holding", flush=True)
        sys.stdin.readline()

print(ModelStore(Path(sys.argv[1])).pull(sys.argv[2], hold).path, flush=True)
"""


@pytest.fixture
def slow_pull(root: Path, file: Path) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", _SLOW_PULL, str(root), str(file)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_pull_waits_for_the_first_and_finds_the_model(
    root: Path, file: Path, slow_pull: Callable[[], "subprocess.Popen[str]"]
) -> None:
    first = slow_pull()
    assert first.stdout is not None
    assert first.stdin is not None
    assert first.stdout.readline() == "holding\n"
    first_input = first.stdin
    phases: list[str] = []

    def watch(step: Step) -> None:
        phases.append(step.phase)
        if step.phase == "waiting":
            assert ModelStore(root).resolve("tiny-model") is None
            first_input.write("\n")
            first_input.flush()

    stored = ModelStore(root).pull(str(file), watch)
    assert phases[-1] == "waiting"  # it transferred nothing itself
    assert first.stdout.readline().strip() == str(stored.path)
    assert first.wait() == 0


def test_a_pull_that_was_killed_leaves_no_lock_and_no_half_model(
    root: Path, file: Path, slow_pull: Callable[[], "subprocess.Popen[str]"]
) -> None:
    first = slow_pull()
    assert first.stdout is not None
    assert first.stdout.readline() == "holding\n"
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert list(root.glob(".partial/*"))
    assert ModelStore(root).list() == ()
    assert ModelStore(root).pull(str(file)).path.read_bytes() == TINY
    assert list(root.glob(".partial/*")) == []
