"""The threads that compute, kept from step to step: without a pool, llama.cpp starts and joins them at each one.

Source: `llama.h`, `ggml.h` and `ggml-cpu.h` of the llama.cpp that llama-cpp-python 0.3.36 carries; its Python
bindings leave these functions out.
"""

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp as lib

# Measured (135M model, two cores): one stream makes 1.05 times the C++ server's tokens/s with a pool, 0.97 without;
# a step of one token takes 7.9 ms against 9.1.
# How long a thread looks for the next step before it sleeps, in units of some 4 ms: the step loop needs less. Values
# from 0 to 50 made no difference; at 50, llama.cpp's default, a core is busy for 0.2 s after the last token.
POLL = 1
_MAX_THREADS = 512  # GGML_MAX_N_THREADS


class _Params(ctypes.Structure):
    """`ggml_threadpool_params`."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * _MAX_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


def _library() -> Any:
    # Its dependencies are searched too, and ggml is one of them.
    library = ctypes.CDLL(str(Path(lib.__file__).parent / "lib" / "libllama.so"))
    library.ggml_threadpool_params_default.restype = _Params
    library.ggml_threadpool_params_default.argtypes = (ctypes.c_int,)
    library.ggml_threadpool_new.restype = ctypes.c_void_p
    library.ggml_threadpool_new.argtypes = (ctypes.POINTER(_Params),)
    library.ggml_threadpool_free.restype = None
    library.ggml_threadpool_free.argtypes = (ctypes.c_void_p,)
    library.llama_attach_threadpool.restype = None
    library.llama_attach_threadpool.argtypes = (ctypes.c_void_p,) * 3
    return library


class ThreadPool:
    def __init__(self, context: Any, threads: int) -> None:
        """Gives a context `threads` threads of its own."""
        self._library = _library()
        params = self._library.ggml_threadpool_params_default(threads)
        params.poll = POLL
        self._pool = self._library.ggml_threadpool_new(ctypes.byref(params))
        self._library.llama_attach_threadpool(context, self._pool, self._pool)

    def close(self) -> None:
        """Ends the threads. The context must be gone by then."""
        self._library.ggml_threadpool_free(self._pool)
