"""What the exemplars teach: ridge regressions from the words of a text, and its embedding, to a score for each step.

Pure. Fitted over the exemplars' kernel without ever holding it or their rows, which would take more memory than all
else in the daemon.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, get_args

import numpy as np
import numpy.typing as npt

from appliance.protocol import StepKind
from appliance.routing.cue import Cue, cue_of_texts

Vector = npt.NDArray[np.float32]
Vectors = npt.NDArray[np.float32]  # a row each

EXEMPLARS: Final = Path(__file__).with_name("exemplars.jsonl")
STEPS: Final[tuple[StepKind, ...]] = get_args(StepKind)
# Both are the best of a cross-validation over the exemplars; half or twice as much costs a percent of the guesses.
RIDGE: Final = 0.3
EMBEDDING_WEIGHT: Final = 0.5  # beside the words

MOST_ROUNDS: Final = 200  # some 60 are enough
CLOSE_ENOUGH: Final = 1e-4  # squared, over all exemplars

_WORD: Final = re.compile(r"[a-z]+(?:'[a-z]+)?|[?]")


@dataclass(frozen=True, slots=True)
class Exemplar:
    step: StepKind
    cue: Cue


def load_exemplars(path: Path = EXEMPLARS) -> tuple[Exemplar, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = map(json.loads, filter(None, lines))
    return tuple(Exemplar(entry["step"], cue_of_texts(entry.get("system", ""), entry["user"])) for entry in entries)


@dataclass(frozen=True, slots=True)
class _Row:
    """A text's words: their columns, and what each weighs; of length one together."""

    columns: npt.NDArray[np.int32]
    weights: Vector


class Vocabulary:
    """Words and pairs of words that more than one exemplar has. Rare ones tell more."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(feature for text in texts for feature in _features(text))
        words = sorted(word for word, n in counts.items() if n > 1)
        self._columns = {word: i for i, word in enumerate(words)}
        self._weights = np.array([np.log(len(texts) / counts[word]) for word in words], dtype=np.float32)

    def __len__(self) -> int:
        return len(self._columns)

    def row(self, text: str) -> _Row:
        known = [self._columns[word] for word in _features(text) if word in self._columns]
        columns = np.array(sorted(known), dtype=np.int32)
        weights = self._weights[columns]
        length = float(np.linalg.norm(weights))
        return _Row(columns, weights / np.float32(length) if length else weights)


class ExemplarModel:
    def __init__(self, exemplars: Sequence[Exemplar], embeddings: Vectors | None = None) -> None:
        """With `embeddings`, one for each exemplar, it asks for one of each text too."""
        texts = [exemplar.cue.text for exemplar in exemplars]
        self._vocabulary = Vocabulary(texts)
        rows = _Rows([self._vocabulary.row(text) for text in texts], len(self._vocabulary))
        targets = np.array([[step == exemplar.step for step in STEPS] for exemplar in exemplars], dtype=np.float32)
        self._bias = targets.mean(axis=0)

        def in_common(shares: Vectors) -> Vectors:
            """Each exemplar's likeness to all others, by their shares: the kernel times them."""
            likeness = rows.times(rows.transposed_times(shares)) + RIDGE * shares
            if embeddings is not None:
                likeness += EMBEDDING_WEIGHT**2 * (embeddings @ (embeddings.T @ shares))
            return likeness

        shares = _solved(in_common, targets - self._bias)
        self._by_word = rows.transposed_times(shares)
        self._by_embedding = None if embeddings is None else EMBEDDING_WEIGHT**2 * (embeddings.T @ shares)

    def scores(self, text: str, embedding: Vector | None = None) -> Vector:
        """One for each of `STEPS`: 1 for a perfect match, about 0 for none."""
        row = self._vocabulary.row(text)
        scores: Vector = row.weights @ self._by_word[row.columns] + self._bias
        if embedding is not None and self._by_embedding is not None:
            scores += embedding @ self._by_embedding
        return scores


class _Rows:
    """The exemplars' words as one sparse matrix."""

    def __init__(self, rows: Sequence[_Row], n_columns: int) -> None:
        self._n_columns = n_columns
        self._columns = np.concatenate([row.columns for row in rows])
        self._weights = np.concatenate([row.weights for row in rows])
        self._rows = np.repeat(np.arange(len(rows), dtype=np.int32), [len(row.columns) for row in rows])
        self._n_rows = len(rows)

    def times(self, by_column: Vectors) -> Vectors:
        """Shape: rows x steps."""
        return self._gathered(self._rows, self._columns, by_column, self._n_rows)

    def transposed_times(self, by_row: Vectors) -> Vectors:
        """Shape: columns x steps."""
        return self._gathered(self._columns, self._rows, by_row, self._n_columns)

    def _gathered(self, to: npt.NDArray[np.int32], of: npt.NDArray[np.int32], values: Vectors, length: int) -> Vectors:
        sums = [np.bincount(to, self._weights * values[of, step], length) for step in range(values.shape[1])]
        return np.stack(sums, axis=1).astype(np.float32)


def _solved(kernel: Callable[[Vectors], Vectors], targets: Vectors) -> Vectors:
    """What the kernel makes the targets of, by conjugate gradients, each column for itself."""
    shares = np.zeros_like(targets)
    rest = targets.copy()
    direction = rest.copy()
    size = (rest**2).sum(axis=0)
    for _ in range(MOST_ROUNDS):
        if size.max() < CLOSE_ENOUGH:
            break
        image = kernel(direction)
        step = size / np.maximum((direction * image).sum(axis=0), np.float32(1e-20))
        shares += step * direction
        rest -= step * image
        size, before = (rest**2).sum(axis=0), size
        direction = rest + size / np.maximum(before, np.float32(1e-20)) * direction
    return shares


def _features(text: str) -> Iterable[str]:
    words = _WORD.findall(text.lower().replace("\u2019", "'"))
    return frozenset(words) | {f"{a} {b}" for a, b in pairwise(words)}
