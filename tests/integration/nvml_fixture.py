"""An NVIDIA driver that a test makes up, and a process that reads it: see `tests/nvml_stand_in`."""

import os
import selectors
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from appliance.telemetry.hardware import GpuReading, HardwareSample

ROOT = Path(__file__).parents[2]
LIBRARY = "libnvidia-ml.so.1"
ANSWER_TIMEOUT_S = 20.0  # an answer takes a millisecond, the first one half a second; a busy machine longer
END_TIMEOUT_S = 10.0


def build_library(folder: Path, *flags: str) -> Path:
    """The folder, with the stand-in's library in it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) to build the stand-in with")
    source = ROOT / "tests" / "nvml_stand_in" / "nvml.c"
    subprocess.run(
        [compiler, "-Wall", "-Werror", "-shared", "-fPIC", *flags, "-o", folder / LIBRARY, source], check=True
    )
    return folder


class Driver:
    """What NVML says, from the next call on. Functions are named without "nvml" and version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, str] = {}
        self.says("Init")
        self.says("Shutdown")
        self.says("DeviceGetCount", value=0)

    def says(self, function: str, gpu: int = 0, *, value: object = "", code: int | str = 0) -> None:
        """`code`: as NVML's return codes, or "hang": the call returns when something else is said of it."""
        self._lines[f"{function}.{gpu}"] = f"{code} {value}"
        self._write()

    def has(self, *gpus: dict[str, object]) -> None:
        """These GPUs, by what each function says of them. What is not in it is not supported."""
        self._lines = {key: line for key, line in self._lines.items() if not key.startswith(("DeviceGet", "Gpm"))}
        self.says("DeviceGetCount", value=len(gpus))
        for index, answers in enumerate(gpus):
            self.says("DeviceGetHandleByIndex", index)
            for function, value in answers.items():
                self.says(function, index, value=value)

    def fails(self, gpu: int, code: int) -> None:
        """Everything that is asked of this GPU ends with this code."""
        for key in self._lines:
            function, _, of = key.partition(".")
            if of == str(gpu) and function.startswith(("DeviceGet", "Gpm")) and function != "DeviceGetCount":
                self.says(function, gpu, code=code)

    def _write(self) -> None:
        """In one piece: somebody may be reading."""
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{key} {line}\n" for key, line in self._lines.items()))
        new.replace(self.path)


class Reader:
    """One `python -m tests.nvml_stand_in`. It ends with the test that started it: its standard input closes."""

    def __init__(self, library: Path, driver: Driver) -> None:
        folders = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.nvml_stand_in"],
            cwd=ROOT,
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(folders), "NVML_STAND_IN": str(driver.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> GpuReading:
        return TypeAdapter(GpuReading).validate_json(self._told("read"))

    def latest(self) -> HardwareSample | None:
        return TypeAdapter(HardwareSample | None).validate_json(self._told("latest"))

    def start(self) -> None:
        self._told("start")

    def stop(self) -> None:
        self._told("stop")

    def advance(self, seconds: float) -> None:
        self._told(f"advance {seconds}")

    def close(self) -> int:
        """Ends it; returns its exit code."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()

    def _told(self, command: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        print(command, file=self.process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(ANSWER_TIMEOUT_S):
                raise AssertionError(f"no answer to {command!r} within {ANSWER_TIMEOUT_S:g} s")
        return self.process.stdout.readline()
