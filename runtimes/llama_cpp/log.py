"""llama.cpp's own log: warnings and errors go to stderr, the last error is kept to explain a failed load."""

import ctypes
import sys
from typing import Any

import llama_cpp as lib

_WARN, _ERROR = 3, 4  # ggml_log_level


class NativeLog:
    """Must outlive every use of the library: llama.cpp keeps a pointer to the callback."""

    def __init__(self) -> None:
        self.last_error = ""
        self._callback = lib.llama_log_callback(self._write)
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _write(self, level: int, text: Any, _data: Any) -> None:
        if level not in (_WARN, _ERROR):
            return
        line = text.decode("utf-8", "replace").strip()
        if level == _ERROR and line:
            self.last_error = line
        if line:
            sys.stderr.write(f"llama.cpp: {line}\n")
