"""What is compiled, and what the user hears of it. The compiling itself is `make setup`'s, and takes minutes."""

import io
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "packaging/llama_cpp"


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, which finds its neighbour beside itself."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module("build")
    for name in ("build", "progress"):
        sys.modules.pop(name, None)


def executable(path: Path, said: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)
    return path


def test_the_locked_requirement_comes_with_all_its_hashes(build: ModuleType) -> None:
    pinned = "llama-cpp-python==0.3.36 \\\n    --hash=sha256:b \\\n    --hash=sha256:c\n"
    version, requirement = build.locked(f"jinja2==3 \\\n    --hash=sha256:a\n{pinned}numpy==2\n")
    assert version == "0.3.36"
    assert requirement == pinned
    assert "--hash=sha256:" in build.locked(build.LOCK.read_text())[1]


@pytest.mark.parametrize(
    ("asked", "present", "expected", "why"),
    [
        ("", "", "CPU", "no NVIDIA GPU is here"),
        ("", "compiler", "CPU", "no NVIDIA GPU is here"),  # nobody waits half an hour for kernels that cannot run
        ("", "GPU", "CPU", "install the CUDA toolkit"),
        ("", "GPU and compiler", "CUDA", "nvidia0"),
        ("0", "GPU and compiler", "CPU", "APPLIANCE_CUDA=0"),
        ("1", "compiler", "CUDA", "APPLIANCE_CUDA=1"),
    ],
)
def test_the_gpu_is_compiled_for_where_it_and_its_compiler_are(
    build: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    present: str,
    expected: str,
    why: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "dev").mkdir()
    if "GPU" in present:
        (tmp_path / "dev/nvidia0").touch()
    if "compiler" in present:
        executable(tmp_path / "usr/local/cuda/bin/nvcc")
    nvcc, reason = build.cuda({"APPLIANCE_CUDA": asked}, tmp_path)
    assert ("CPU" if nvcc is None else "CUDA") == expected
    assert why in reason


def test_asking_for_the_gpu_without_its_compiler_is_an_error(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildError, match="nvidia-cuda-toolkit"):
        build.cuda({"APPLIANCE_CUDA": "1"}, tmp_path)
    with pytest.raises(build.BuildError, match="write 1 or 0"):
        build.cuda({"APPLIANCE_CUDA": "yes"}, tmp_path)


def test_a_missing_compiler_is_named_with_the_package_that_brings_it(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildError, match=r"no C compiler.*\n.*apt-get install g\+\+"):
        build.compilers({})
    cc = executable(tmp_path / "clang")
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler"):
        build.compilers({})
    cxx = executable(tmp_path / "clang++")
    assert build.compilers({}) == (str(cc), str(cxx))
    assert build.compilers({"CC": "clang -m64", "CXX": str(cxx)}) == ("clang -m64", str(cxx))
    with pytest.raises(build.BuildError, match="looked for icx"):
        build.compilers({"CC": "icx"})


def test_the_users_own_flags_come_last_and_so_win(build: ModuleType) -> None:
    tools = build.Toolchain("cc", "c++", "nvcc")
    arguments = build.flags(tools, {"CMAKE_ARGS": "-DGGML_CUDA=OFF -DX='a b'"})
    assert arguments[-3:] == ["-DGGML_CUDA=ON", "-DGGML_CUDA=OFF", "-DX=a b"]


def test_a_build_is_told_apart_by_all_that_shapes_it(build: ModuleType, tmp_path: Path) -> None:
    one = build.Toolchain("cc", str(executable(tmp_path / "one", "g++ 12")), None)
    two = build.Toolchain("cc", str(executable(tmp_path / "two", "g++ 14")), None)
    keys = {
        build.key("1", one, ["-DA=1"]),
        build.key("2", one, ["-DA=1"]),
        build.key("1", two, ["-DA=1"]),
        build.key("1", one, ["-DA=2"]),
        build.key("1", build.Toolchain(one.cc, one.cxx, "nvcc"), ["-DA=1"]),
    }
    assert len(keys) == 5
    assert build.key("1", one, ["-DA=1"]) in keys


def test_wheels_are_kept_in_the_users_cache_or_in_the_clone(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path / "clone")
    assert build.shelf({"HOME": str(tmp_path)}) == tmp_path / ".cache/appliance/wheels"
    assert build.shelf({"XDG_CACHE_HOME": str(tmp_path / "x")}) == tmp_path / "x/appliance/wheels"
    file = tmp_path / "file"
    file.touch()
    assert build.shelf({"HOME": str(file)}) == tmp_path / "clone/.build/wheels"
    assert build.shelf({}) == tmp_path / "clone/.build/wheels"


def test_a_damaged_wheel_is_thrown_away(build: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "llama.whl"
    wheel.write_bytes(b"PK not really")
    assert build.finished(tmp_path) is None
    assert not wheel.exists()


def test_progress_is_a_line_for_each_tenth_where_there_is_no_terminal(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    text = "".join(f"  [{step}/200] /usr/bin/c++ -c x.cpp\n" for step in range(1, 201))
    command = [sys.executable, "-c", f"print({text!r}, end='')\nraise SystemExit(3)"]
    assert build.follow(command, {}, tmp_path / "log") == 3
    lines = out.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[5].startswith("compiling llama.cpp: [100/200] 50 %, ")
    assert (tmp_path / "log").read_text() == text


def test_a_failure_names_the_log_and_shows_its_first_error(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "LOG", tmp_path / "the.log")
    build.LOG.write_text("fine\n" * 50 + "\nx.cpp:1: fatal error: no such header\n  #include <y>\n" + "more\n" * 50)
    told = build._failure(build.Toolchain("cc", "c++", "nvcc"))
    assert "the.log" in told
    assert told.splitlines()[1:3] == ["  x.cpp:1: fatal error: no such header", "  #include <y>"]
    assert "APPLIANCE_CUDA=0" in told
