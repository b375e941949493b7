"""From a `Load` message to a loaded llama.cpp model. The file is validated before native code sees it."""

import os
from pathlib import Path

import psutil

from runtimes.contracts import Backend, ModelLoadError
from runtimes.models.errors import ModelError
from runtimes.models.gguf import read_model
from runtimes.worker.messages import Load

# Host memory for the prefixes of finished requests.
ARCHIVE_BYTES = 2 * 2**30
ARCHIVE_SHARE_OF_FREE = 0.1


def load_llama_cpp(load: Load) -> Backend:
    """Raises `ModelLoadError` for a file that is no sound model, or does not fit."""
    from runtimes.llama_cpp import LlamaCppBackend, LoadOptions, plan  # noqa: PLC0415 - native code, after validation

    path = Path(load.path)
    try:
        summary = read_model(path)
    except ModelError as error:
        raise ModelLoadError(str(error)) from error
    except OSError as error:
        raise ModelLoadError(f"{path}: {error.strerror}") from error
    if not summary.has_tokenizer:
        raise ModelLoadError(f"{path.name} has no tokenizer: it is not a language model to generate with")
    sizes = plan(
        trained_context_tokens=summary.context_length,
        context_tokens=load.context_tokens,
        kv_tokens=load.kv_tokens,
        slots=load.slots,
        model_bytes=path.stat().st_size,
        kv_bytes_per_token=summary.kv_bytes_per_token or 0,
        free_bytes=_free_bytes(load.gpu_layers),
    )
    archive_bytes = min(ARCHIVE_BYTES, int(psutil.virtual_memory().available * ARCHIVE_SHARE_OF_FREE))
    options = LoadOptions(
        path=path,
        sizes=sizes,
        slots=load.slots,
        threads=load.threads or _cores(),
        archive_tokens=archive_bytes // (summary.kv_bytes_per_token or archive_bytes),
        gpu_layers=load.gpu_layers,
    )
    return LlamaCppBackend(options)


def _cores() -> int:
    """Physical cores this process may use: two threads on one core share its arithmetic units."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def _free_bytes(gpu_layers: int) -> int:
    """Free memory where the model goes: the first GPU's when llama.cpp can use one, else the host's."""
    import llama_cpp  # noqa: PLC0415 - native code, after validation

    if gpu_layers != 0 and llama_cpp.llama_supports_gpu_offload():
        try:
            import pynvml  # noqa: PLC0415 - only where there is a GPU build

            pynvml.nvmlInit()
            return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).free)
        except pynvml.NVMLError:
            pass  # a GPU that NVML does not know: what the host has is the best guess
    return int(psutil.virtual_memory().available)
