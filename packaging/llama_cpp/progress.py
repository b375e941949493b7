#!/usr/bin/env python3
"""Follows a compiler's output: everything into a log, and to the user how far it is. Knows ninja and make."""

import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path


def follow(command: list[str], environ: Mapping[str, str], log_file: Path) -> int:
    """Run `command` with all its output in `log_file` and a word of progress here; gives its exit status."""
    process = subprocess.Popen(  # noqa: S603 - pip, by this interpreter
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None  # noqa: S101 - it is a pipe: see above
        with process.stdout, log_file.open("w", encoding="utf-8") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read)
    reader.start()
    progress = Progress()
    try:
        while True:
            try:
                line = lines.get(timeout=1)
            except queue.Empty:
                line = ""
            if line is None:
                break
            progress.see(line)
    except KeyboardInterrupt:
        process.terminate()  # a terminal has interrupted it too; one that asked by kill has not
        raise
    finally:
        process.wait()
        reader.join()
        progress.end()
    return process.returncode


class Progress:
    """One line that changes, on a terminal; else a line for each tenth of the work."""

    STEP = re.compile(r"\[\s*(\d+)/(\d+)\] ")  # ninja's
    SHARE = re.compile(r"\[\s*(\d+)%\] ")  # make's, where there is no ninja

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._live = sys.stdout.isatty()
        self._doing = "fetching the source, 75 MB"
        self._told = ""
        self._tenth = -1

    def see(self, line: str) -> None:
        percent = None
        if step := self.STEP.search(line):
            done, total = int(step[1]), max(1, int(step[2]))
            percent = 100 * done // total
            self._doing = f"compiling llama.cpp: [{done}/{total}] {percent} %"
        elif share := self.SHARE.search(line):
            percent = int(share[1])
            self._doing = f"compiling llama.cpp: {percent} %"
        elif "Building wheel" in line:
            self._doing = "configuring the build"
        if self._live:
            self._tell(f"\r\x1b[K{self._doing}, {duration(time.monotonic() - self._started)}")
        elif percent is not None and percent // 10 > self._tenth:
            self._tenth = percent // 10
            self._tell(f"{self._doing}, {duration(time.monotonic() - self._started)}\n")

    def end(self) -> None:
        if self._live:
            self._tell("\r\x1b[K")

    def _tell(self, text: str) -> None:
        if text != self._told:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._told = text


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
