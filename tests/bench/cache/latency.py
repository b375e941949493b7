"""What an answer from the cache takes, through the running daemon, by the number of entries.

`python -m tests.bench.cache.latency`: nothing else should run.

--entries N       a size; repeatable. 1,000,000 take 3 GB of disk
--fingerprints N  that the entries are spread over, as with several system prompts; 1, the default, is the worst case
--rounds N        starts of the daemon for each size

A `cache.db` of each size is made first (`filling`). A round starts the daemon on each of them in turn (`served`), so
that what else the machine does meets all sizes alike.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import psutil

from appliance.cache_setup import CACHE_FILE
from appliance.settings import Settings, state_dir
from tests.bench import report
from tests.bench.cache.filling import Filled, fill
from tests.bench.cache.served import CONFIG, MODEL, Round, Setup, What, round_of, setup
from tests.bench.claims import Claim
from tests.bench.stats import Spread, median, percentile, spread

SIZES: Final = (1_000, 10_000, 100_000)
CLAIMED_AT: Final = 100_000  # entries
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Size:
    filled: Filled
    rounds: tuple[Round, ...]

    def ms(self, what: What, q: float) -> Spread:
        """Percentile of each round."""
        return spread([percentile(one.times_s[what], q) * 1000 for one in self.rounds])


def run(common: Setup, sizes: Sequence[int], rounds: int, scratch: Path, *, fingerprints: int = 1) -> tuple[Size, ...]:
    files: list[tuple[Path, Filled]] = []
    for entries in sizes:
        folder = scratch / str(entries)
        folder.mkdir()
        (folder / "models").symlink_to(common.models)
        (folder / CONFIG).touch()
        known, identity, tag = common.asked.known, common.requests.identity, common.files.tag
        files.append((folder, fill(folder / CACHE_FILE, entries, known, identity, tag, fingerprints=fingerprints)))
    found: list[list[Round]] = [[] for _ in files]
    for _ in range(rounds):
        for so_far, (folder, filled) in zip(found, files, strict=True):
            so_far.append(round_of(common, filled, folder))
    return tuple(Size(filled, tuple(so_far)) for so_far, (_, filled) in zip(found, files, strict=True))


def claims(sizes: Sequence[Size]) -> Iterator[Claim]:
    for size in sizes:
        if size.filled.entries == CLAIMED_AT:
            found = size.ms("found", 99).median
            yield Claim(f"cache: the lookup of an exact hit at {CLAIMED_AT:,} entries, P99, ms", found, at_most=2)
            semantic = size.ms("semantic", 99).median
            yield Claim(f"cache: a semantic hit at {CLAIMED_AT:,} entries, P99, ms", semantic, at_most=15)


def lines(sizes: Sequence[Size]) -> list[str]:
    """A table of times and one of sizes."""
    times = [
        (
            f"{size.filled.entries:,}",
            *(
                f"{size.ms(what, 50).median:.2f} / {p99.median:.2f} ({p99.low:.2f}-{p99.high:.2f})"
                for what in get_args(What)
                for p99 in [size.ms(what, 99)]
            ),
        )
        for size in sizes
    ]
    others = [
        (
            f"{size.filled.entries:,}",
            _first_ms(size, "exact"),
            _first_ms(size, "semantic"),
            str(sum(one.missed for one in size.rounds)),
            f"{median(one.grown_bytes for one in size.rounds) / MIB:.0f}",
            f"{size.filled.file_bytes / MIB:.0f}",
            f"{size.filled.put_per_s:.0f}",
            f"{size.filled.bulk_per_s:.0f}",
            f"{max(one.elsewhere for one in size.rounds):.0%}",
        )
        for size in sizes
    ]
    columns = (
        "first exact ms",
        "first semantic ms",
        "missed",
        "memory MiB",
        "file MiB",
        "puts/s",
        "in bulk/s",
        "others",
    )
    return [
        "milliseconds, P50 / P99 of a round: medians of all rounds (P99: least-greatest)",
        *report.table(("entries", *get_args(What)), times),
        "",
        *report.table(("entries", *columns), others),
    ]


def _first_ms(size: Size, what: What) -> str:
    """After a start: what is loaded with the first of its kind is in it."""
    times_s = [one.first_s[what] for one in size.rounds if what in one.first_s]
    return f"{median(times_s) * 1000:.0f}" if times_s else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cache.latency", description="The cache's latency.")
    parser.add_argument("--entries", type=int, action="append", help=f"a size (repeatable); default: {SIZES}")
    parser.add_argument("--fingerprints", type=int, default=1, help="that the entries are spread over")
    parser.add_argument("--rounds", type=int, default=3, help="starts of the daemon for each size")
    options = parser.parse_args(arguments)
    common = setup(state_dir(None, os.environ))
    if common is None:
        print(f"missing: `appliance pull {MODEL} {Settings().models.embedding}`", file=sys.stderr)
        return 2
    before = psutil.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as scratch:
        sizes = run(common, options.entries or SIZES, options.rounds, Path(scratch), fingerprints=options.fingerprints)
    asked = common.asked
    print(f"{len(asked.alike)} questions in other words, {len(asked.strangers)} others; load {before:.2f} before")
    print(*lines(sizes), "", *report.claims(list(claims(sizes))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
