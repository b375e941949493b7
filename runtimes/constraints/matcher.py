"""One choice's way through its grammar."""

import numpy as np
from llguidance import LLMatcher

from runtimes.contracts import Allowed, ConstraintError

_WORD_BITS = 32


class Matcher:
    """A `TokenConstraint`."""

    def __init__(self, matcher: LLMatcher, n_vocab: int) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._bits = np.zeros(-(-n_vocab // _WORD_BITS), dtype=np.int32)

    def fork(self) -> "Matcher":
        return Matcher(self._matcher.deep_copy(), self._n_vocab)

    def allowed(self) -> Allowed:
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), count=self._n_vocab, bitorder="little")
        return bits.view(np.bool_)

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(f"the required form became too complex to follow: {self._matcher.get_error()}")
