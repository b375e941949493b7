"""The checker process: `python -m runtimes.constraints.checker`, fed by `compiler` through its standard input.

    {"vocabulary": [tokens, special, ends]}   -> None
    {"check": [kind, text]}                   -> None, or what is wrong; or {"died": signal}

It compiles a constraint and follows it for some tokens. When that takes too much time the fork that is at it dies of a
signal, which no code, native or not, can put off.
"""

import os
import random
import signal

from runtimes.constraints.grammar import Grammars, InvalidConstraintError
from runtimes.constraints.matcher import Matcher
from runtimes.constraints.vocabulary import Greedy, Vocabulary, tokenizer
from runtimes.contracts import ConstraintError
from runtimes.sandbox.child import serve_in_forks
from runtimes.sandbox.frames import pack, unpack

COMPUTING_S = 0.3  # a schema of 500 optional properties takes a tenth of it
# Behind the threads of a model that computes on all cores, it still has a quarter of one. As their equal it held up a
# stream for 0.17 s; like this, in six of eight tries, for a step or two.
NICENESS = 5
MEMORY_BYTES = 2**31  # address space
FOLLOWED_TOKENS = 8


class _Checker:
    _grammars: Grammars

    def prepare(self, body: bytes) -> bytes:
        vocabulary = Vocabulary(*unpack(body)["vocabulary"])
        self._grammars = Grammars(tokenizer(vocabulary, Greedy(vocabulary)), len(vocabulary.tokens))
        return pack(None)

    def answer(self, body: bytes) -> bytes:
        question = unpack(body)
        signal.setitimer(signal.ITIMER_PROF, COMPUTING_S)  # SIGPROF's default action ends the process
        try:
            self._follow(self._grammars.matcher(*question["check"]))
        except InvalidConstraintError as error:
            return pack(str(error))
        except ConstraintError:
            return pack("it is too complex; make it simpler")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return pack(None)

    def _follow(self, start: Matcher) -> None:
        matcher = start.fork()
        choose = random.Random(0)  # noqa: S311 - not a secret
        for _ in range(FOLLOWED_TOKENS):
            tokens = matcher.allowed().nonzero()[0]
            token = int(tokens[choose.randrange(len(tokens))])
            matcher.accept(token)
            if matcher.ended:
                return


if __name__ == "__main__":
    os.nice(NICENESS)
    checker = _Checker()
    serve_in_forks(checker.prepare, checker.answer, MEMORY_BYTES)
