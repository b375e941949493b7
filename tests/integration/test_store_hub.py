"""Pulling from Hugging Face: the real client library against a server on loopback."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.models import (
    ChecksumMismatch,
    DownloadFailed,
    InvalidGGUF,
    ModelError,
    ModelStore,
    NotEnoughDisk,
    OfflineError,
    load_catalogue,
)
from runtimes.models.store import MARGIN_BYTES
from tests.integration.hub_server import Hub, running_hub
from tests.unit.tiny_gguf import STRING, tiny_model

TINY = tiny_model().set("general.description", STRING, "x" * 900_000).build()  # a megabyte: several network reads
NAME = "hf:org/repo/tiny-Q4_K_M.gguf"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub() as hub:
        hub.add("org/repo", "tiny-Q4_K_M.gguf", TINY)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models", sleep=lambda _seconds: None)


def test_a_file_is_downloaded_checked_and_stored(hub: Hub, store: ModelStore) -> None:
    stored = store.pull(NAME)
    assert stored.path.read_bytes() == TINY
    assert (stored.name, stored.source) == (NAME, NAME)
    assert stored.sha256 == hashlib.sha256(TINY).hexdigest()
    assert store.resolve(NAME) == stored
    assert [request.range for request in hub.transfers()] == [None]


def test_a_second_pull_asks_nobody(hub: Hub, store: ModelStore) -> None:
    store.pull(NAME)
    hub.seen.clear()
    store.pull(NAME)
    assert hub.seen == []


def test_a_quantisation_is_found_among_the_files(hub: Hub, store: ModelStore) -> None:
    hub.add("org/repo", "tiny-Q4_K_S.gguf", b"another")
    hub.add("org/repo", "mmproj-tiny-Q4_K_M.gguf", b"a projector")
    hub.add("org/repo", "README.md", b"")
    stored = store.pull("hf:org/repo:q4_k_m")
    assert stored.name == NAME
    assert store.resolve("hf:org/repo:q4_k_m") == stored
    assert store.resolve(NAME) == stored


def test_a_model_that_came_by_its_file_is_found_by_its_quantisation_from_then_on(hub: Hub, store: ModelStore) -> None:
    store.pull(NAME)
    assert store.resolve("hf:org/repo:Q4_K_M") is None
    assert store.pull("hf:org/repo:Q4_K_M").name == NAME
    assert store.resolve("hf:org/repo:Q4_K_M") is not None
    assert len(hub.transfers()) == 1


def test_a_quantisation_that_is_not_there_is_answered_with_those_that_are(hub: Hub, store: ModelStore) -> None:
    with pytest.raises(ModelError, match=r"no file of the quantisation Q8_0. It has tiny-Q4_K_M.gguf"):
        store.pull("hf:org/repo:Q8_0")


def test_a_model_in_parts_is_refused_before_it_is_downloaded(hub: Hub, store: ModelStore) -> None:
    hub.add("org/repo", "big-Q8_0-00001-of-00003.gguf", TINY)
    for name in ("hf:org/repo:Q8_0", "hf:org/repo/big-Q8_0-00001-of-00003.gguf"):
        with pytest.raises(ModelError, match="one part of a model in 3 files"):
            store.pull(name)
    assert hub.transfers() == []


def test_a_broken_transfer_goes_on_where_it_stopped(hub: Hub, store: ModelStore) -> None:
    hub.break_after = [300_000, 500_000]
    stored = store.pull(NAME)
    assert stored.path.read_bytes() == TINY
    ranges = [request.range for request in hub.transfers()]
    assert ranges == [None, "bytes=300000-", "bytes=800000-"]


def test_a_pull_that_gave_up_is_taken_up_by_the_next(hub: Hub, store: ModelStore) -> None:
    hub.break_after = [400_000, *[0] * 20]
    with pytest.raises(DownloadFailed, match="pull it again to go on"):
        store.pull(NAME)
    assert store.resolve(NAME) is None
    hub.break_after = []
    hub.seen.clear()
    assert store.pull(NAME).path.read_bytes() == TINY
    assert [request.range for request in hub.transfers()] == ["bytes=400000-"]


def test_a_pull_that_was_killed_is_taken_up_by_the_next(hub: Hub, store: ModelStore) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from runtimes.models import ModelStore\n"
        "def die(step):\n"
        "    if step.done_bytes > 100_000: os.kill(os.getpid(), signal.SIGKILL)\n"
        "ModelStore(Path(sys.argv[1])).pull(sys.argv[2], die)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(store.root), NAME], check=False)
    assert killed.returncode == -9
    hub.seen.clear()
    assert store.pull(NAME).path.read_bytes() == TINY
    assert [request.method for request in hub.transfers()] == ["GET"]


def test_a_server_without_ranges_is_downloaded_from_the_start(hub: Hub, store: ModelStore) -> None:
    hub.break_after = [400_000]
    hub.ignores_ranges = True
    assert store.pull(NAME).path.read_bytes() == TINY


def test_a_server_that_cannot_go_on_is_asked_for_the_whole_file(hub: Hub, store: ModelStore) -> None:
    hub.break_after = [400_000]
    refusals = [416]

    def refuse_the_next(_seconds: float) -> None:
        hub.failures, refusals[:] = refusals[:], []

    assert ModelStore(store.root, sleep=refuse_the_next).pull(NAME).path.read_bytes() == TINY
    assert [request.range for request in hub.transfers()] == [None, "bytes=400000-", None]


def test_passing_failures_are_waited_out(hub: Hub, tmp_path: Path) -> None:
    waits_s: list[float] = []
    hub.failures = [503, 429]
    ModelStore(tmp_path / "models", sleep=waits_s.append).pull(NAME)
    assert waits_s == [1.0, 2.0]


def test_a_server_that_fails_from_the_start_is_given_up_soon(hub: Hub, tmp_path: Path) -> None:
    waits_s: list[float] = []
    hub.failures = [503] * 100
    with pytest.raises(DownloadFailed, match="answered 503"):
        ModelStore(tmp_path / "models", sleep=waits_s.append).pull(NAME)
    assert sum(waits_s) <= 5


def test_a_transfer_that_has_begun_outlasts_half_a_minute(hub: Hub, tmp_path: Path) -> None:
    waits_s: list[float] = []
    hub.break_after = [400_000, *[0] * 5]
    assert ModelStore(tmp_path / "models", sleep=waits_s.append).pull(NAME).path.read_bytes() == TINY
    assert sum(waits_s) >= 30


def test_a_refusal_is_not_tried_again(hub: Hub, store: ModelStore) -> None:
    hub.failures = [403]
    with pytest.raises(DownloadFailed, match="answered 403"):
        store.pull(NAME)
    assert len(hub.transfers()) == 1


def test_a_file_replaced_between_two_attempts_is_downloaded_anew(hub: Hub, store: ModelStore) -> None:
    hub.break_after = [400_000, *[0] * 20]
    with pytest.raises(DownloadFailed):
        store.pull(NAME)
    other = tiny_model().set("general.name", STRING, "Other").build()
    hub.break_after = []
    hub.add("org/repo", "tiny-Q4_K_M.gguf", other)
    assert store.pull(NAME).path.read_bytes() == other


def test_content_that_is_not_what_was_announced_is_not_kept(hub: Hub, store: ModelStore) -> None:
    hub.announced_sha256["org/repo/tiny-Q4_K_M.gguf"] = "0" * 64
    with pytest.raises(ChecksumMismatch, match="nothing of it is kept"):
        store.pull(NAME)
    assert store.list() == ()
    assert not list(store.root.rglob("*.part"))


def test_a_server_that_sends_more_than_it_announced_is_cut_off(hub: Hub, store: ModelStore) -> None:
    hub.announced_size["org/repo/tiny-Q4_K_M.gguf"] = 1000
    with pytest.raises(DownloadFailed, match="more than the 1,000 bytes"):
        store.pull(NAME)


def test_a_file_without_a_checksum_is_refused(hub: Hub, store: ModelStore) -> None:
    hub.without_sha256 = True
    with pytest.raises(DownloadFailed, match="no sha256"):
        store.pull(NAME)
    assert hub.transfers() == []


def test_an_unsound_file_never_becomes_a_model(hub: Hub, store: ModelStore) -> None:
    hub.add("org/repo", "tiny-Q4_K_M.gguf", TINY[:-5_000])
    with pytest.raises(InvalidGGUF, match="it came from hf:org/repo"):
        store.pull(NAME)
    assert store.list() == ()
    assert not list(store.root.rglob("*.gguf"))


def test_a_gated_repository_says_what_to_do(hub: Hub, store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.gated.add("org/repo")
    for name in (NAME, "hf:org/repo:Q4_K_M"):
        with pytest.raises(DownloadFailed, match=r"accept its licence .* HF_TOKEN"):
            store.pull(name)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert store.pull(NAME).path.read_bytes() == TINY


def test_the_token_goes_to_the_hub_and_not_to_its_content_network(
    hub: Hub, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    store.pull(NAME)
    assert {request.token for request in hub.seen if request.server == "hub"} == {f"Bearer {hub.token}"}
    assert {request.token for request in hub.seen if request.server == "content"} == {None}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:org/none/file.gguf", "no such repository, or it is private"),
        ("hf:org/none:Q4_K_M", "no such repository, or it is private"),
        ("hf:org/repo/none.gguf", "no such file"),
        ("hf:org", "not of the form"),
        ("hf:org/repo", "not of the form"),
        ("hf:../../etc/passwd.gguf", "not of the form"),
        ("hf:org/repo/../other/file.gguf", "not of the form"),
        ("hf:org/repo//file.gguf", "not of the form"),
    ],
)
def test_a_wrong_address_is_explained(hub: Hub, store: ModelStore, name: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        store.pull(name)


def test_a_server_that_is_not_there_is_explained(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_hub() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url)
    for name in (NAME, "hf:org/repo:Q4_K_M"):
        with pytest.raises(DownloadFailed, match=f"{gone.url} cannot be reached"):
            store.pull(name)


def test_a_catalogue_model_must_be_the_very_file(hub: Hub, tmp_path: Path) -> None:
    text = """
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
        size_bytes = 1
        sha256 = "{}"
        hub = {{ repo = "org/repo", file = "tiny-Q4_K_M.gguf" }}
        """
    changed = load_catalogue(text.format("f" * 64))
    with pytest.raises(ChecksumMismatch, match="has replaced the file"):
        ModelStore(tmp_path / "models", catalogue=changed).pull("known")
    assert hub.transfers() == []
    same = load_catalogue(text.format(hashlib.sha256(TINY).hexdigest()))
    stored = ModelStore(tmp_path / "models", catalogue=same).pull("Known")
    assert (stored.name, stored.path.name, stored.licence) == ("known", "known.gguf", "MIT")


def test_the_gate_is_asked_before_every_request_and_redirect(hub: Hub, tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def gate(target: str) -> None:
        asked.append((target, len(hub.seen)))

    ModelStore(tmp_path / "models", gate=gate).pull("hf:org/repo:Q4_K_M")
    assert [before for _, before in asked] == list(range(len(hub.seen)))
    assert [request.server for request in hub.seen] == [
        "hub" if target.startswith(hub.url) else "content" for target, _ in asked
    ]
    assert any(target.startswith(hub.content_url) for target, _ in asked)


def test_a_gate_that_closes_stops_the_request_and_the_redirect(hub: Hub, tmp_path: Path) -> None:
    def shut(target: str) -> None:
        raise OfflineError(target)

    def shut_to_content(target: str) -> None:
        if not target.startswith(hub.url):
            raise OfflineError(target)

    with pytest.raises(OfflineError):
        ModelStore(tmp_path / "models", gate=shut).pull(NAME)
    assert hub.seen == []
    with pytest.raises(OfflineError):
        ModelStore(tmp_path / "models", gate=shut_to_content).pull(NAME)
    assert hub.transfers() == []
    assert ModelStore(tmp_path / "models").pull(NAME).path.read_bytes() == TINY  # the gate is not asked for ever


def test_a_full_disk_is_seen_before_the_transfer(hub: Hub, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models", free_bytes=lambda _path: MARGIN_BYTES + len(TINY) - 1)
    with pytest.raises(NotEnoughDisk):
        store.pull(NAME)
    assert hub.transfers() == []


def test_two_processes_that_pull_at_once_download_once(hub: Hub, store: ModelStore) -> None:
    script = (
        "import sys; from pathlib import Path; from runtimes.models import ModelStore\n"
        "print(ModelStore(Path(sys.argv[1])).pull(sys.argv[2]).path)"
    )
    command = [sys.executable, "-c", script, str(store.root), NAME]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate()[0].strip() for process in both}
    assert answers == {str(store.root / store.list()[0].path.parent.name / "tiny-Q4_K_M.gguf")}
    assert len(hub.transfers()) == 1


def test_no_native_transfer_code_is_loaded(hub: Hub, store: ModelStore) -> None:
    script = (
        "import sys; from pathlib import Path; from runtimes.models import ModelStore\n"
        "ModelStore(Path(sys.argv[1])).pull(sys.argv[2])\n"
        "sys.exit('hf_xet' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(store.root), NAME], check=False).returncode == 0


def test_the_client_library_is_not_imported_until_it_is_needed() -> None:
    script = "import runtimes.models, sys; sys.exit('huggingface_hub' in sys.modules or 'httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
