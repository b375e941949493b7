#!/usr/bin/env python3
"""Puts the llama.cpp bindings into this environment, compiling them when this machine has not done so before.

The package comes as source only, and a build takes minutes. So a finished wheel is kept per user, under a
key made of all that shapes it (version, flags, compilers, processor, GPU), where the next clone finds it.
pip's own cache will not do: it does not know CMAKE_ARGS, and would hand out a wheel built with others.

Environment: APPLIANCE_CUDA=1 builds for NVIDIA GPUs, 0 does not; unset, it depends on what is found. CC, CXX,
CUDACXX and CMAKE_ARGS are used as given; CMAKE_ARGS comes last and so wins. Needs nothing but Python and pip.
"""

import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from progress import duration, follow  # beside this script

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
BUILD_LOCK = ROOT / "packaging/build.lock"
LOG = ROOT / ".build/llama_cpp.log"
TRIM = Path(__file__).resolve().with_name("trim.cmake")
PACKAGE = "llama-cpp-python"
JOB_BYTES = 1024**3  # more than any of llama.cpp's C++ files needs
CUDA_JOB_BYTES = 3 * 1024**3  # the larger kernels, for several GPU generations at once


class BuildError(Exception):
    """Said to the user as it is."""


@dataclass(frozen=True)
class Toolchain:
    cc: str
    cxx: str
    nvcc: str | None  # None: no CUDA backend


def say(message: str) -> None:
    sys.stdout.write(f"llama.cpp: {message}\n")
    sys.stdout.flush()


def locked(lock: str) -> tuple[str, str]:
    """(version, the lock's lines for the package)."""
    found = re.search(rf"^{PACKAGE}==(\S+)(?:.*\\\n)(?:.*\\\n)*.*\n?", lock, re.MULTILINE)
    if found is None:
        raise BuildError(f"{LOCK.name} does not pin {PACKAGE}; run `make lock`")
    return found[1], found[0]


def compilers(environ: Mapping[str, str]) -> tuple[str, str]:
    """The C and the C++ compiler. CMake is told them, since Python's own choice may not be installed."""
    paths = []
    for variable, usual in (("CC", ("cc", "gcc", "clang")), ("CXX", ("c++", "g++", "clang++"))):
        given = environ.get(variable)
        names = (shlex.split(given)[0],) if given else usual
        path = next(filter(None, map(shutil.which, names)), None)
        if path is None:
            language = "C" if variable == "CC" else "C++"
            raise BuildError(
                f"no {language} compiler was found (looked for {', '.join(names)}), and the model engine is "
                "compiled from source.\n"
                "On Debian or Ubuntu: sudo apt-get install g++\n"
                "On Fedora: sudo dnf install gcc-c++\n"
                "Then run make again. Or name one with CC=… CXX=…"
            )
        paths.append(given or path)
    return paths[0], paths[1]


def cuda(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[str | None, str]:
    """(nvcc to build the CUDA backend with or None, why). Kernels take too long to build on suspicion."""
    wish = environ.get("APPLIANCE_CUDA", "")
    if wish not in ("", "0", "1"):
        raise BuildError(f"APPLIANCE_CUDA is {wish!r}; write 1 or 0, or leave it out")
    if wish == "0":
        return None, "as APPLIANCE_CUDA=0 asks"
    places = (
        environ.get("CUDACXX"),
        "nvcc",
        str(root / "usr/local/cuda/bin/nvcc"),
        str(root / "opt/cuda/bin/nvcc"),
    )
    nvcc = next(filter(None, (shutil.which(place) for place in places if place)), None)
    if wish == "1":
        if nvcc is None:
            raise BuildError(
                "APPLIANCE_CUDA=1 asks for the CUDA backend, but no CUDA compiler (nvcc) was found.\n"
                "On Debian or Ubuntu: sudo apt-get install nvidia-cuda-toolkit. Or name one with CUDACXX=…"
            )
        return nvcc, "as APPLIANCE_CUDA=1 asks"
    devices = (*root.glob("dev/nvidia[0-9]*"), *root.glob("dev/dxg"))  # dxg: a GPU that Windows lends to WSL
    if not devices:
        return None, "no NVIDIA GPU is here; APPLIANCE_CUDA=1 builds for one all the same"
    if nvcc is None:
        return None, (
            "an NVIDIA GPU is here, but no CUDA compiler: install the CUDA toolkit (nvcc) and run "
            "`make setup APPLIANCE_CUDA=1` to use it"
        )
    return nvcc, f"{devices[0]} and {nvcc} are here; APPLIANCE_CUDA=0 builds for the CPU"


def flags(tools: Toolchain, environ: Mapping[str, str]) -> list[str]:
    """CMake's arguments."""
    ours = ["-DLLAVA_BUILD=OFF", "-DLLAMA_BUILD_TOOLS=OFF", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={TRIM}"]
    # ggml's own threads beat OpenMP's. Measured (135M model, two cores): 62 against 66 to 73 ms for a step of 16
    # streams, 180 against 205 ms for 64 rows of a prompt, 7.4 against 7.6 ms for one token.
    ours.append("-DGGML_OPENMP=OFF")
    if tools.nvcc is not None:
        ours.append("-DGGML_CUDA=ON")
    return [*ours, *shlex.split(environ.get("CMAKE_ARGS", ""))]


def key(version: str, tools: Toolchain, arguments: list[str]) -> str:
    """Names a build: equal keys, equal machine code. It is made for the very processor it is built on."""
    parts = [version, platform.machine(), *platform.libc_ver(), _processor(), TRIM.read_text()]
    parts += [argument.replace(str(TRIM), TRIM.name) for argument in arguments]
    parts += [_first_lines(compiler, "--version") for compiler in (tools.cc, tools.cxx)]
    if tools.nvcc is not None:
        parts += [_first_lines(tools.nvcc, "--version")]
        parts += [_first_lines("nvidia-smi", "--query-gpu=compute_cap --format=csv,noheader")]
    return f"{version}-{'cuda' if tools.nvcc else 'cpu'}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _processor() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")  # the latter two on ARM
    return "\n".join(sorted({line for line in info.splitlines() if line.startswith(wanted)}))


def _first_lines(program: str, arguments: str) -> str:
    command = [*shlex.split(program), *arguments.split()]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout  # noqa: S603 - the user's own tools
    except (OSError, subprocess.TimeoutExpired):
        return ""


def shelf(environ: Mapping[str, str]) -> Path:
    """Where wheels are kept: the user's cache, or this clone when the user has no writable one."""
    home = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else None)
    if home is not None:
        folder = Path(home) / "appliance/wheels"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            pass
        else:
            if os.access(folder, os.W_OK):
                return folder
    folder = ROOT / ".build/wheels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two clones that need the same build at a time: the second waits, and finds it done."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build of it is running; waiting for that")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def finished(folder: Path) -> Path | None:
    """The wheel in `folder`, if it is there and whole."""
    for wheel in folder.glob("*.whl"):
        try:
            with zipfile.ZipFile(wheel) as archive:
                if archive.testzip() is None:
                    return wheel
        except (OSError, zipfile.BadZipFile):
            pass
        wheel.unlink()
    return None


def jobs(job_bytes: int) -> int:
    """Compilers at a time: one a core, as far as memory goes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // job_bytes))


def build(requirement: str, tools: Toolchain, arguments: list[str], folder: Path) -> Path:
    """Compile a wheel into `folder`, its output into LOG. Raises BuildError."""
    environ = {**os.environ, "CC": tools.cc, "CXX": tools.cxx, "CMAKE_ARGS": shlex.join(arguments)}
    if tools.nvcc is not None:
        environ["CUDACXX"] = tools.nvcc
    environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(jobs(JOB_BYTES if tools.nvcc is None else CUDA_JOB_BYTES)))
    LOG.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
        wanted = Path(scratch) / "wanted.txt"
        wanted.write_text(requirement)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-v", "--no-deps"]
        command += ["--no-cache-dir", "--no-binary", PACKAGE, "--build-constraint", str(BUILD_LOCK)]
        command += ["--require-hashes", "-r", str(wanted), "-w", scratch]
        code = follow(command, environ, LOG)
        wheels = list(Path(scratch).glob("*.whl"))
        if code != 0 or not wheels:
            raise BuildError(_failure(tools))
        return wheels[0].rename(folder / wheels[0].name)


def _failure(tools: Toolchain) -> str:
    lines = [line.strip() for line in LOG.read_text(encoding="utf-8").splitlines() if line.strip()]
    alarm = re.compile(r"\berror\b|FAILED|No space left|Killed", re.IGNORECASE)
    first = next((number for number, line in enumerate(lines) if alarm.search(line)), max(0, len(lines) - 8))
    told = "\n  ".join(line[:200] for line in lines[first : first + 8])
    hint = "\nWithout the GPU it may still build: make setup APPLIANCE_CUDA=0" if tools.nvcc is not None else ""
    return f"the build failed; its whole output is in {LOG.relative_to(ROOT)}. From the first error on:\n  {told}{hint}"


def main() -> None:
    version, requirement = locked(LOCK.read_text(encoding="utf-8"))
    cc, cxx = compilers(os.environ)
    nvcc, why = cuda(os.environ)
    tools = Toolchain(cc, cxx, nvcc)
    say(f"{'with the CUDA backend' if nvcc else 'for the CPU'} ({why})")
    arguments = flags(tools, os.environ)
    folder = shelf(os.environ) / key(version, tools, arguments)
    folder.mkdir(exist_ok=True)
    with alone(folder):
        wheel = finished(folder)
        if wheel is None:
            say(f"compiling {PACKAGE} {version}, once for this machine; the log is {LOG.relative_to(ROOT)}")
            started = time.monotonic()
            wheel = build(requirement, tools, arguments, folder)
            say(f"compiled in {duration(time.monotonic() - started)}; kept in {folder}")
        else:
            say(f"{PACKAGE} {version} was compiled here before; taking {wheel}")
        install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        subprocess.run([*install, "--no-deps", "--force-reinstall", str(wheel)], check=True)  # noqa: S603 - pip


if __name__ == "__main__":
    try:
        main()
    except BuildError as error:
        sys.exit(f"llama.cpp: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
