"""What the engine asks of a model, whichever library runs it.

A `Backend` computes logits for rows of tokens and keeps the KV cache of many sequences. It knows no requests, no
sampling and no text beyond its own vocabulary. Cells of the cache are counted in tokens.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
TokenArray = npt.NDArray[np.int32]
SavedCells = bytes | memoryview
Allowed = npt.NDArray[np.bool_]


class BackendError(Exception):
    """The model cannot go on. The worker that holds it must be replaced."""


class ModelLoadError(BackendError):
    """The model could not be loaded; the message says why and what to do."""


class KVCacheFullError(Exception):
    """No room for this batch in the KV cache. Nothing was computed; free some cells and try again."""


class ConstraintError(Exception):
    """What an answer must look like cannot be followed any further; the message is for the client."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    name: str  # what the model file calls itself
    description: str  # architecture, size, quantization
    n_vocab: int
    context_tokens: int  # the longest sequence
    kv_tokens: int  # cells for all sequences together
    max_sequences: int
    max_batch_tokens: int  # rows one forward pass takes
    n_parameters: int
    size_bytes: int
    end_tokens: tuple[int, ...]  # tokens that end a generation
    bos_id: int | None
    bos_token: str
    eos_token: str
    chat_template: str | None
    adds_bos: bool
    # Recurrent models keep one state a sequence: it can be continued, but not cut or shared part-way.
    shares_prefixes: bool
    archive_tokens: int  # tokens whose cells may be kept in host memory beside


@dataclass(frozen=True, slots=True)
class Row:
    """One token to compute, at one position of one sequence."""

    token: int
    position: int
    sequence: int
    logits: bool  # whether the engine wants the distribution after this token


class TokenConstraint(Protocol):
    """Where one choice stands in what it must look like. One thread uses it at a time."""

    def fork(self) -> "TokenConstraint":
        """Another one, at the same place, for another choice."""
        ...

    def allowed(self) -> Allowed:
        """Which tokens may come next: shape (n_vocab,), at least one of them true. Raises `ConstraintError`."""
        ...

    def accept(self, token: int) -> None:
        """The token that came. Raises `ConstraintError`."""
        ...


class Backend(Protocol):
    """One loaded model. Not thread-safe, but for the vocabulary: `tokenize`, `detokenize` and `piece` may be
    called from any thread at any time."""

    @property
    def info(self) -> ModelInfo: ...

    def forward(self, rows: list[Row]) -> Logits:
        """Computes `rows` in one pass and stores their KV.

        Returns the logits of the rows that asked for them, in their order: float32, shape (rows asked, n_vocab),
        valid until the next call. Raises `KVCacheFullError` with nothing changed, or `BackendError`.
        """
        ...

    def fork(self, source: int, target: int, n_tokens: int) -> None:
        """Lets the empty sequence `target` share the first `n_tokens` cells of `source`; nothing is copied."""
        ...

    def truncate(self, sequence: int, n_tokens: int) -> None:
        """Keeps the first `n_tokens` of a sequence; 0 empties it."""
        ...

    def save(self, sequence: int) -> SavedCells:
        """A copy of a sequence's cells, in host memory."""
        ...

    def restore(self, sequence: int, state: SavedCells) -> None:
        """Puts saved cells into an empty sequence. Raises `KVCacheFullError`, or `BackendError`."""
        ...

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...

    def detokenize(self, tokens: list[int]) -> str: ...

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text; empty for control tokens."""
        ...

    @property
    def control_tokens(self) -> frozenset[str]:
        """How control tokens are spelled: text that a client sent must not be read as one."""
        ...

    def least_tokens(self, text_bytes: int) -> int:
        """A cheap lower bound on the tokens of any text of so many bytes of UTF-8."""
        ...

    def token_text(self, token: int) -> str:
        """A token's printable name, control tokens included."""
        ...

    def close(self) -> None: ...
