"""A sentence-embedding model: texts in, unit vectors out. ONNX Runtime computes, `tokenizers` splits the text.

Made for all-MiniLM-L6-v2: a text's vector is the mean of the last layer over its tokens. The weights in the file are
8-bit integers, but the graph's arithmetic is float32, so a vector does not depend on what is beside it in a batch.
"""

import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from runtimes.embeddings.batches import MAX_TEXTS

# Else ONNX Runtime, once imported, keeps a device's identity below HOME and reports to its maker (its Privacy.md).
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime  # type: ignore[import-untyped] # it ships no types

WINDOW_TOKENS = 256  # what the model was trained on; its position table would take 512
PROVIDERS = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")  # best first
_REQUIRED_INPUTS = {"input_ids", "attention_mask"}
_INPUTS = {*_REQUIRED_INPUTS, "token_type_ids"}
_ERRORS_ONLY = 3  # of ONNX Runtime's log levels

Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


class UnusableModelError(Exception):
    """The files are no such model; the message says why."""


class EmbeddingModel:
    """Not thread-safe."""

    def __init__(self, model: bytes, tokenizer: bytes, threads: int) -> None:
        """From the contents of `model.onnx` and `tokenizer.json`. Raises `UnusableModelError`."""
        self._tokenizer = _tokenizer(tokenizer)
        self._special_tokens = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self._session = _session(model, threads)
        self._inputs = [tensor.name for tensor in self._session.get_inputs()]
        if not _REQUIRED_INPUTS <= set(self._inputs) <= _INPUTS:
            raise UnusableModelError(f"its inputs are {', '.join(self._inputs)}, not those of a sentence encoder")
        output = self._session.get_outputs()[0]
        if len(output.shape) != 3 or not isinstance(output.shape[2], int):
            raise UnusableModelError(f"its output {output.name} is not one vector a token")
        self._output: str = output.name
        self.dimensions: int = output.shape[2]

    @property
    def provider(self) -> str:
        """What computes, in ONNX Runtime's words."""
        return str(self._session.get_providers()[0])

    def embed(self, texts: Sequence[str]) -> tuple[Vectors, tuple[int, ...]]:
        """A row of length one for each text, and how many tokens each whole text has.

        Only the first `WINDOW_TOKENS` count for the vector; [CLS] and [SEP] are among them.
        """
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        ids = np.zeros((len(encodings), max(len(encoding.ids) for encoding in encodings)), np.int64)
        mask = np.zeros_like(ids)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run([self._output], {name: given[name] for name in self._inputs})
        return pooled(hidden, mask), tuple(self._n_tokens(encoding) for encoding in encodings)

    def _n_tokens(self, encoding: Any) -> int:
        """What was cut off comes in pieces, each with special tokens of its own."""
        return len(encoding.ids) + sum(len(piece.ids) - self._special_tokens for piece in encoding.overflowing)


def pooled(hidden: Vectors, mask: Ids) -> Vectors:
    """The direction of the mean over each text's tokens: (texts, tokens, dimensions) to (texts, dimensions)."""
    total = (hidden * mask[:, :, np.newaxis].astype(np.float32)).sum(axis=1)  # the mean, but for its length
    vectors: Vectors = total / np.linalg.norm(total, axis=1, keepdims=True)
    return vectors


def providers(available: Collection[str] | None = None) -> list[tuple[str, dict[str, str]]]:
    """What of these, or of all that this installation has, is to compute: best first, with its options."""
    if available is None:
        available = onnxruntime.get_available_providers()
    return [(name, _OPTIONS.get(name, {})) for name in PROVIDERS if name in available]


def _shapes(texts: int, tokens: int) -> str:
    return ",".join(f"{name}:{texts}x{tokens}" for name in sorted(_INPUTS))


# TensorRT compiles the graph for a range of shapes, and again for each shape outside of it, which takes far longer
# than a request may. From the provider's documentation: no machine with TensorRT was at hand to run it on.
_OPTIONS = {
    "TensorrtExecutionProvider": {
        "trt_profile_min_shapes": _shapes(1, 1),
        "trt_profile_opt_shapes": _shapes(1, 16),
        "trt_profile_max_shapes": _shapes(MAX_TEXTS, WINDOW_TOKENS),
    }
}


def _tokenizer(content: bytes) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing more specific
        raise UnusableModelError(f"it is no tokenizer: {error}") from error
    tokenizer.no_padding()  # the file asks for 128 tokens, always
    tokenizer.enable_truncation(WINDOW_TOKENS)
    tokenizer.encode_special_tokens = True  # a text that says "[SEP]" is split like any other
    return tokenizer


def _session(content: bytes, threads: int) -> Any:
    onnxruntime.set_default_logger_severity(_ERRORS_ONLY)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it grows by doubling and gives nothing back
    options.enable_mem_pattern = False  # plans are kept for each shape, and every text has its own
    # Threads spin while they compute, and no longer: between two texts the cores belong to others.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return onnxruntime.InferenceSession(content, options, providers=providers())
    except MemoryError:
        raise
    except Exception as error:  # the library's own exceptions share no other base
        raise UnusableModelError(f"ONNX Runtime cannot load it: {error}") from error
