"""The cache's benchmarks, one after the other: `python -m tests.bench.cache`. Seven minutes.

`verifying` is about pairs of questions, `replay` about agents at work, `latency` about the time that a hit takes.
How the store grows is in `growth`, which takes long and needs a quiet machine: `python -m tests.bench.cache.growth`.
"""

import sys

from tests.bench.cache import latency, replay, verifying

if __name__ == "__main__":
    sys.exit(max(verifying.main(), replay.main([]), latency.main([])))
