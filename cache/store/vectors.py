"""Vectors as numbers: what may be one, their bits for the coarse search, and their exact similarity. Pure."""

import hashlib
import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cache.store.entry import Vector

CODE_BITS: Final = 256  # the tables have as many: another number needs a new version of the file
LEAST_SIMILARITY: Final = 0.6  # a cosine; texts that mean the same have been seen down to 0.65
_SHARE: Final = math.acos(LEAST_SIMILARITY) / math.pi  # of the bits that the codes of two such vectors differ in
FURTHEST_BITS: Final = int(CODE_BITS * _SHARE + 3 * math.sqrt(CODE_BITS * _SHARE * (1 - _SHARE)))  # 3 deviations more


def checked(vector: Vector) -> Vector:
    """As float32, of shape (dimensions,). ValueError when it has another shape, a NaN, an infinity or no length."""
    with np.errstate(over="ignore"):  # it becomes an infinity
        given = np.asarray(vector, dtype=np.float32)
    if given.ndim != 1 or not given.size:
        raise ValueError(f"a vector has one axis and at least one number, not the shape {given.shape}")
    if not np.isfinite(given).all():
        raise ValueError("the vector has a number that is not finite")
    if not given.any():
        raise ValueError("the vector is zero: it points nowhere")
    return given


def codes(vectors: Vector) -> list[bytes]:
    """Of vectors (n, dimensions): n codes of CODE_BITS bits, each the side of a fixed random plane (SimHash).

    Two codes differ in a bit with probability angle / pi, whatever the embedding model does with its axes.
    """
    with np.errstate(all="ignore"):  # of numbers near the end of the range; a code may be of anything
        sides = vectors @ _planes(vectors.shape[1]) > 0
    return [code.tobytes() for code in np.packbits(sides, axis=1)]


def cosines(query: Vector, blobs: Sequence[bytes]) -> npt.NDArray[np.float64]:
    """Similarity of a query (dimensions,) to each stored vector, (n,). NaN for one that is damaged."""
    whole = [blob if len(blob) == query.nbytes else b"\xff" * query.nbytes for blob in blobs]  # all bits set: NaN
    stored = np.frombuffer(b"".join(whole), dtype=np.float32).reshape(len(whole), query.size).astype(np.float64)
    exact = query.astype(np.float64)
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(exact)
        similarities: npt.NDArray[np.float64] = np.clip(stored @ exact / lengths, -1.0, 1.0)
    return similarities


@cache
def _planes(dimensions: int) -> Vector:
    """(dimensions, CODE_BITS) of 1 and -1. From a hash, as NumPy's generators may change with its version."""
    bits = np.frombuffer(hashlib.shake_256(b"coarse planes").digest(dimensions * CODE_BITS // 8), dtype=np.uint8)
    return np.unpackbits(bits).reshape(dimensions, CODE_BITS).astype(np.float32) * 2 - 1
