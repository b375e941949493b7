"""llama.cpp's own log: errors go to stderr, and the last one is kept to explain a failed load."""

import ctypes
import sys
from typing import Any

import llama_cpp as lib

_ERROR = 4  # of ggml_log_level


class NativeLog:
    """Must outlive every use of the library: llama.cpp keeps a pointer to the callback."""

    def __init__(self) -> None:
        self.last_error = ""
        self._callback = lib.llama_log_callback(self._write)
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _write(self, level: int, text: Any, _data: Any) -> None:
        line = text.decode("utf-8", "replace").strip() if level == _ERROR else ""
        if line:
            self.last_error = line
            sys.stderr.write(f"llama.cpp: {line}\n")
