"""llama.cpp behind the `Backend` contract: its low-level API, many sequences in one unified KV cache.

Source: `llama.h` of the llama.cpp that llama-cpp-python 0.3.36 carries.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp as lib
import numpy as np

from runtimes.contracts import BackendError, KVCacheFullError, Logits, ModelInfo, ModelLoadError, Row, SavedCells
from runtimes.llama_cpp.log import NativeLog
from runtimes.llama_cpp.sizing import Sizes
from runtimes.llama_cpp.threads import ThreadPool
from runtimes.llama_cpp.vocabulary import Vocabulary

CPU_BATCH_TOKENS = 512  # a CPU is at full rate from 64 rows on; longer steps only delay cancellation
GPU_BATCH_TOKENS = 2048
MICRO_BATCH_TOKENS = 512
# Finished sequences kept for their prefixes, beside the running ones. llama.cpp takes 256 sequences at most.
RETAINED_PER_SLOT = 2
_BYTES = ctypes.POINTER(ctypes.c_uint8)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    path: Path
    sizes: Sizes
    slots: int
    threads: int
    archive_tokens: int = 0
    gpu_layers: int = -1  # -1: all


class LlamaCppBackend:
    def __init__(self, options: LoadOptions) -> None:
        """Loads a validated GGUF file. Raises `ModelLoadError`."""
        self._log = NativeLog()
        lib.llama_backend_init()
        self._context: Any = None
        self._model = self._load(options)
        on_gpu = bool(lib.llama_supports_gpu_offload()) and options.gpu_layers != 0
        self._batch_tokens = GPU_BATCH_TOKENS if on_gpu else CPU_BATCH_TOKENS
        max_sequences = min(options.slots * (1 + RETAINED_PER_SLOT), lib.llama_max_parallel_sequences())
        self._context = self._create_context(options, max_sequences)
        self._threads = ThreadPool(self._context, options.threads)
        self._memory = lib.llama_get_memory(self._context)
        self._vocabulary = Vocabulary(lib.llama_model_get_vocab(self._model))
        self._batch = _Batch(self._batch_tokens)
        self._logits: Logits = np.empty((0, 0), dtype=np.float32)  # a view of the last that llama.cpp gave
        self._logits_place = (0, 0)  # address, rows
        self._info = self._describe(options, max_sequences)

    @property
    def info(self) -> ModelInfo:
        return self._info

    def forward(self, rows: list[Row]) -> Logits:
        n_vocab = self._info.n_vocab
        self._batch.fill(rows)
        status = lib.llama_decode(self._context, self._batch.native)
        if status == 1:
            raise KVCacheFullError(f"no room for {len(rows)} tokens")
        if status != 0:
            raise BackendError(f"llama_decode failed with status {status}: {self._log.last_error or 'no reason given'}")
        wanted = sum(row.logits for row in rows)
        if not wanted:
            return np.empty((0, n_vocab), dtype=np.float32)
        logits = lib.llama_get_logits(self._context)  # of the rows that asked, in their order, without gaps
        if not logits:
            raise BackendError("llama.cpp gave no logits")
        place = ctypes.addressof(logits.contents), wanted
        if place != self._logits_place:  # as a rule where they were: to look at them anew takes 50 us, a step 8,000
            self._logits, self._logits_place = np.ctypeslib.as_array(logits, (wanted, n_vocab)), place
        return self._logits

    def fork(self, source: int, target: int, n_tokens: int) -> None:
        lib.llama_memory_seq_cp(self._memory, source, target, 0, n_tokens)

    def truncate(self, sequence: int, n_tokens: int) -> None:
        if not lib.llama_memory_seq_rm(self._memory, sequence, n_tokens, -1):
            raise BackendError(f"llama.cpp cannot cut sequence {sequence} to {n_tokens} tokens")

    def save(self, sequence: int) -> SavedCells:
        size = lib.llama_state_seq_get_size(self._context, sequence)
        # Not `bytes`: they would be cleared first, and where memory is fresh each page touched costs as much as 16 us.
        saved = np.empty(size, dtype=np.uint8)
        written = lib.llama_state_seq_get_data(self._context, saved.ctypes.data_as(_BYTES), size, sequence)
        if not 0 < written <= size:
            raise BackendError(f"llama.cpp cannot save sequence {sequence}")
        return saved.data[:written]

    def restore(self, sequence: int, state: SavedCells) -> None:
        buffer = np.frombuffer(state, dtype=np.uint8).ctypes.data_as(_BYTES)
        if lib.llama_state_seq_set_data(self._context, buffer, len(state), sequence) == 0:
            raise BackendError(f"llama.cpp cannot restore sequence {sequence}: {self._log.last_error or 'no reason'}")

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return self._vocabulary.tokenize(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, tokens: list[int]) -> str:
        return self._vocabulary.detokenize(tokens)

    def piece(self, token: int) -> bytes:
        return self._vocabulary.piece(token)

    def token_text(self, token: int) -> str:
        return self._vocabulary.text(token)

    @property
    def control_tokens(self) -> frozenset[str]:
        return self._vocabulary.control_tokens

    def least_tokens(self, text_bytes: int) -> int:
        return self._vocabulary.least_tokens(text_bytes)

    def close(self) -> None:
        if self._context is not None:
            lib.llama_free(self._context)
            self._context = None
            self._threads.close()
        if self._model is not None:
            lib.llama_model_free(self._model)
            self._model = None

    def _load(self, options: LoadOptions) -> Any:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = options.gpu_layers
        model = lib.llama_model_load_from_file(str(options.path).encode(), params)
        if model is None:
            raise ModelLoadError(
                f"llama.cpp cannot load {options.path.name}: {self._log.last_error or 'no reason given'}"
            )
        if lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
            lib.llama_model_free(model)
            raise ModelLoadError(f"{options.path.name} is not a decoder-only language model")
        return model

    def _create_context(self, options: LoadOptions, max_sequences: int) -> Any:
        params = lib.llama_context_default_params()
        params.n_ctx = options.sizes.kv_tokens
        params.n_batch = self._batch_tokens
        params.n_ubatch = MICRO_BATCH_TOKENS
        params.n_seq_max = max_sequences
        params.n_threads = params.n_threads_batch = options.threads
        params.kv_unified = True
        # Flash attention skips what a sequence does not attend to. Measured (135M model, two cores): 58 ms against
        # 92 ms for a step of 16 streams, 68 ms against 130 ms beside 4,096 cells of others.
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.no_perf = True
        context = lib.llama_init_from_model(self._model, params)
        if context is None:
            lib.llama_model_free(self._model)
            self._model = None
            raise ModelLoadError(
                f"llama.cpp cannot make a context of {options.sizes.kv_tokens} tokens: "
                f"{self._log.last_error or 'no reason given'}; lower engine.kv_tokens"
            )
        return context

    def _describe(self, options: LoadOptions, max_sequences: int) -> ModelInfo:
        model, vocabulary = self._model, self._vocabulary
        description = ctypes.create_string_buffer(256)
        lib.llama_model_desc(model, description, len(description))
        template = lib.llama_model_chat_template(model, None)
        name = ctypes.create_string_buffer(256)
        lib.llama_model_meta_val_str(model, b"general.name", name, len(name))
        recurrent = lib.llama_model_is_recurrent(model) or lib.llama_model_is_hybrid(model)
        return ModelInfo(
            name=name.value.decode("utf-8", "replace"),
            description=description.value.decode("utf-8", "replace"),
            n_vocab=vocabulary.n_tokens,
            context_tokens=options.sizes.context_tokens,
            # llama.cpp rounds the cache up; the engine counts on what was asked for.
            kv_tokens=options.sizes.kv_tokens,
            max_sequences=max_sequences,
            max_batch_tokens=self._batch_tokens,
            n_parameters=lib.llama_model_n_params(model),
            size_bytes=lib.llama_model_size(model),
            end_tokens=vocabulary.end_tokens,
            bos_id=vocabulary.bos,
            bos_token=vocabulary.bos_text,
            eos_token=vocabulary.eos_text,
            chat_template=template.decode("utf-8", "replace") if template else None,
            adds_bos=vocabulary.adds_bos,
            shares_prefixes=not recurrent,
            archive_tokens=0 if recurrent else options.archive_tokens,
        )


class _Batch:
    """A `llama_batch` over arrays of our own, filled without a Python loop for each field's pointer."""

    def __init__(self, capacity: int) -> None:
        self._tokens = np.zeros(capacity, dtype=np.int32)
        self._positions = np.zeros(capacity, dtype=np.int32)
        self._sequences = np.zeros(capacity, dtype=np.int32)
        self._counts = np.ones(capacity, dtype=np.int32)  # each token belongs to one sequence
        self._logits = np.zeros(capacity, dtype=np.int8)
        first = self._sequences.ctypes.data
        self._pointers = first + np.arange(capacity, dtype=np.uintp) * self._sequences.itemsize
        self.native = lib.llama_batch()
        self.native.token = self._tokens.ctypes.data_as(ctypes.POINTER(lib.llama_token))
        self.native.pos = self._positions.ctypes.data_as(ctypes.POINTER(lib.llama_pos))
        self.native.n_seq_id = self._counts.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        self.native.seq_id = self._pointers.ctypes.data_as(ctypes.POINTER(ctypes.POINTER(lib.llama_seq_id)))
        self.native.logits = self._logits.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))

    def fill(self, rows: list[Row]) -> None:
        n = len(rows)
        if not 0 < n <= len(self._tokens):
            raise BackendError(f"a batch of {n} rows; it takes 1 to {len(self._tokens)}")
        self._tokens[:n] = [row.token for row in rows]
        self._positions[:n] = [row.position for row in rows]
        self._sequences[:n] = [row.sequence for row in rows]
        self._logits[:n] = [row.logits for row in rows]
        self.native.n_tokens = n
