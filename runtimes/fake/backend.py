"""A backend whose next token is a hash of all tokens before it, read from its own KV cells.

So a wrong share, a lost cell or a wrong position changes the text, and a test sees it. The vocabulary is the 256
bytes and a few special tokens. Cells are as scarce as in a real unified cache.
"""

import hashlib
import re

import numpy as np

from runtimes.contracts import BackendError, KVCacheFullError, Logits, ModelInfo, Row, SavedCells

BOS, EOS = 256, 257
N_VOCAB = 258
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


class FakeBackend:
    def __init__(
        self,
        *,
        kv_tokens: int = 4096,
        context_tokens: int = 1024,
        max_sequences: int = 64,
        max_batch_tokens: int = 256,
        end_every: int | None = 40,
        archive_tokens: int = 0,
    ) -> None:
        """`end_every`: about one next token in so many ends the text; None for never."""
        self._cells: list[tuple[int, set[int]] | None] = [None] * kv_tokens  # (token, sequences that use it)
        self._sequences: dict[int, list[int]] = {}  # the cells of each, by position
        self._end_every = end_every
        self.rows_computed = 0
        self._info = ModelInfo(
            name="fake",
            description="deterministic bytes",
            n_vocab=N_VOCAB,
            context_tokens=context_tokens,
            kv_tokens=kv_tokens,
            max_sequences=max_sequences,
            max_batch_tokens=max_batch_tokens,
            n_parameters=0,
            size_bytes=0,
            end_tokens=(EOS,),
            bos_id=BOS,
            bos_token="<s>",  # noqa: S106 - a token of text, not a secret
            eos_token="</s>",  # noqa: S106 - a token of text, not a secret
            chat_template=TEMPLATE,
            adds_bos=True,
            shares_prefixes=True,
            archive_tokens=archive_tokens,
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    def forward(self, rows: list[Row]) -> Logits:
        if not 0 < len(rows) <= self._info.max_batch_tokens:
            raise BackendError(f"a batch of {len(rows)} rows")
        free = [i for i, cell in enumerate(self._cells) if cell is None]
        if len(free) < len(rows):
            raise KVCacheFullError(f"{len(rows)} rows, {len(free)} free cells")
        logits = []
        for row, cell in zip(rows, free, strict=False):
            held = self._sequences.setdefault(row.sequence, [])
            if row.position != len(held):
                raise BackendError(f"sequence {row.sequence} holds {len(held)} tokens, got position {row.position}")
            self._cells[cell] = (row.token, {row.sequence})
            held.append(cell)
            if row.logits:
                logits.append(self._logits(row.sequence))
        self.rows_computed += len(rows)
        return np.array(logits, dtype=np.float32).reshape(-1, N_VOCAB)

    def fork(self, source: int, target: int, n_tokens: int) -> None:
        if self._sequences.get(target):
            raise BackendError(f"sequence {target} is not empty")
        shared = self._sequences[source][:n_tokens]
        if len(shared) != n_tokens:
            raise BackendError(f"sequence {source} holds {len(shared)} tokens, not {n_tokens}")
        for cell in shared:
            held = self._cells[cell]
            assert held is not None  # noqa: S101 - a cell of a sequence is in use
            held[1].add(target)
        self._sequences[target] = list(shared)

    def truncate(self, sequence: int, n_tokens: int) -> None:
        held = self._sequences.get(sequence, [])
        for cell in held[n_tokens:]:
            content = self._cells[cell]
            assert content is not None  # noqa: S101 - a cell of a sequence is in use
            content[1].discard(sequence)
            if not content[1]:
                self._cells[cell] = None
        del held[n_tokens:]

    def save(self, sequence: int) -> SavedCells:
        return np.array(self.tokens_of(sequence), dtype=np.int32).tobytes()

    def restore(self, sequence: int, state: SavedCells) -> None:
        if self._sequences.get(sequence):
            raise BackendError(f"sequence {sequence} is not empty")
        tokens = np.frombuffer(state, dtype=np.int32).tolist()
        free = [i for i, cell in enumerate(self._cells) if cell is None]
        if len(free) < len(tokens):
            raise KVCacheFullError(f"{len(tokens)} cells to restore, {len(free)} free")
        for token, cell in zip(tokens, free, strict=False):
            self._cells[cell] = (token, {sequence})
        self._sequences[sequence] = free[: len(tokens)]

    @property
    def used_cells(self) -> int:
        return sum(cell is not None for cell in self._cells)

    def tokens_of(self, sequence: int) -> list[int]:
        return [content[0] for cell in self._sequences.get(sequence, []) if (content := self._cells[cell])]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens = [BOS] if add_special else []
        if not parse_special:
            return tokens + list(text.encode())
        for part in re.split("(</?s>)", text):
            tokens += {"<s>": [BOS], "</s>": [EOS]}.get(part) or list(part.encode())
        return tokens

    def detokenize(self, tokens: list[int]) -> str:
        return b"".join(self.piece(token) for token in tokens).decode(errors="replace")

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    @property
    def control_tokens(self) -> frozenset[str]:
        return frozenset({"<s>", "</s>"})

    def least_tokens(self, text_bytes: int) -> int:
        return text_bytes

    def token_text(self, token: int) -> str:
        return {BOS: "<s>", EOS: "</s>"}.get(token) or chr(token)

    def close(self) -> None:
        self._sequences.clear()

    def _logits(self, sequence: int) -> Logits:
        history = np.array(self.tokens_of(sequence), dtype=np.int32).tobytes()
        seed = int.from_bytes(hashlib.blake2b(history, digest_size=8).digest())
        random = np.random.default_rng(seed)
        logits = random.normal(size=N_VOCAB).astype(np.float32)
        logits[:256] += np.where((np.arange(256) >= 32) & (np.arange(256) < 127), 2.0, -8.0).astype(np.float32)
        logits[BOS] = -20.0
        ends = self._end_every is not None and seed % self._end_every == 0
        logits[EOS] = 20.0 if ends else -20.0
        return logits
