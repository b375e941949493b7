"""Constraints of requests, compiled within limits.

A schema or a pattern is a program of the client's for the grammar compiler, and some take minutes, which no thread can
be stopped in. So each new one is compiled and followed for a few tokens in another process first, whose fork ends when
that takes too much time or memory.
"""

import functools
import signal
import threading
from contextlib import suppress

from appliance.protocol import Constraint
from runtimes.constraints.grammar import Grammars, InvalidConstraintError
from runtimes.constraints.matcher import Matcher
from runtimes.constraints.vocabulary import Vocabulary, tokenizer, vocabulary_of
from runtimes.contracts import Backend
from runtimes.sandbox.frames import pack
from runtimes.sandbox.process import SandboxProcess

CHECKER = "runtimes.constraints.checker"
REMEMBERED = 64
PATIENCE_S = 10.0  # the process itself is stopped by the time it computes; this is for one that cannot run
REPLY_BYTES = 2**16


class ConstraintCompiler:
    """Thread-safe; constraints are compiled one at a time, since many at once would take the cores from the model."""

    def __init__(self, backend: Backend) -> None:
        """Starts nothing and takes no time: `get_ready` does."""
        self._backend = backend
        self._compiled = functools.lru_cache(REMEMBERED)(self._compile)
        self._lock = threading.Lock()
        self._closed = False
        self._checker: SandboxProcess | None = None

    def get_ready(self) -> None:
        """Lets the vocabulary be read and the checking process get up, while nobody waits for them."""
        threading.Thread(target=self._get_up, daemon=True, name="checker").start()

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary:
        return vocabulary_of(self._backend)

    @functools.cached_property
    def _grammars(self) -> Grammars:
        tokenize = functools.partial(self._backend.tokenize, add_special=False, parse_special=False)
        return Grammars(tokenizer(self._vocabulary, tokenize), self._backend.info.n_vocab)

    def compile(self, constraint: Constraint) -> Matcher:
        """A matcher at the beginning of the answer, for others to be forked from.

        Raises `InvalidConstraintError`, and OSError when the checking process cannot be started.
        """
        with self._lock:
            return self._compiled(constraint.kind, constraint.text)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._checker is not None:
                self._checker.close()
                self._checker = None

    def _compile(self, kind: str, text: str) -> Matcher:
        frame = pack({"check": (kind, text)})
        for _ in range(2):  # a process that was killed while it was idle is not this constraint's fault
            checker, self._checker = self._checker or self._started(), None
            try:
                why: str | dict[str, int] | None = checker.ask(frame, PATIENCE_S, REPLY_BYTES)
            except (EOFError, TimeoutError, ValueError):
                checker.close()
                continue
            self._checker = checker
            if isinstance(why, dict):
                if why["died"] == signal.SIGPROF:
                    break
                continue
            if why is not None:
                raise InvalidConstraintError(why)
            return self._grammars.matcher(kind, text)
        if self._checker is None:
            self.get_ready()
        raise InvalidConstraintError("it takes too much time or memory to prepare; make it simpler")

    def _get_up(self) -> None:
        with self._lock, suppress(OSError):  # whoever needs it tries again, and is told
            if self._checker is None and not self._closed:
                self._checker = self._started()
                _ = self._grammars

    def _started(self) -> SandboxProcess:
        checker = SandboxProcess(CHECKER)
        try:
            words = self._vocabulary
            checker.ask(pack({"vocabulary": (words.tokens, words.special, words.ends)}), PATIENCE_S, REPLY_BYTES)
        except (EOFError, TimeoutError, ValueError) as error:
            checker.close()
            raise OSError("the process that checks constraints does not start; see the log") from error
        return checker
