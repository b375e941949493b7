"""Scenario: which pairs of questions get one answer, by the verifier and by plain thresholds, class by class.

`pairs.jsonl`: pairs of which one answer would do ("hit") or not; those of split "test" were not looked at while the
verifier was made. GPTCache's default is read from its source (`SearchDistanceEvaluation`, a threshold of 0.8 of a
range of 4, over FAISS's squared L2 distance): a distance of 0.8 at most, which is a cosine of 0.6. Here over the same
vectors.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from appliance.cache_setup import embed_whole
from appliance.embedding import embedder_of, embedding_files
from appliance.settings import Settings, state_dir
from cache.verifier.verdict import Verdict, Verifier
from tests.bench import report
from tests.bench.claims import Claim

PAIRS: Final = Path(__file__).with_name("pairs.jsonl")
THRESHOLDS: Final = (0.6, 0.8, 0.9, 0.95, 0.97, 0.99)
GPTCACHE_DEFAULT: Final = 0.6
PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Pair:
    kind: str  # the class
    hit: bool
    similarity: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Share:
    """Of the pairs of one class: how many were answered alike."""

    kind: str
    hit: bool
    pairs: int
    served: Mapping[str, int]  # by way


@dataclass(frozen=True, slots=True)
class Verifying:
    split: str
    shares: tuple[Share, ...]
    guards: Mapping[str, tuple[int, int]]  # without one guard: right and wrong hits more than with it
    verdict_ms: float  # mean

    def total(self, way: str, *, hit: bool) -> tuple[int, int]:
        """Served, and all."""
        chosen = [share for share in self.shares if share.hit == hit]
        return sum(share.served[way] for share in chosen), sum(share.pairs for share in chosen)


def ways(level: float) -> dict[str, Callable[[Pair], bool]]:
    found: dict[str, Callable[[Pair], bool]] = {"ours": lambda pair: pair.verdict.score >= level}
    for threshold in THRESHOLDS:
        found[f">= {threshold}"] = lambda pair, threshold=threshold: pair.similarity >= threshold  # type: ignore[misc]
    return found


def run(folder: Path, split: str = "test") -> Verifying | None:
    """None: the embedding model is not here."""
    settings = Settings()
    rows = [row for row in map(json.loads, PAIRS.read_text(encoding="utf-8").splitlines()) if row["split"] == split]
    similarities = asyncio.run(_similarities(settings, folder, rows))
    if similarities is None:
        return None
    verifier = Verifier()
    verifier.verdict("What is loaded first?", "Which is loaded first?", 0.0)
    began_s = time.perf_counter()
    pairs = [
        Pair(row["class"], row["hit"], similarity, verifier.verdict(row["a"], row["b"], similarity))
        for row, similarity in zip(rows, similarities, strict=True)
    ]
    verdict_ms = (time.perf_counter() - began_s) * 1000 / len(pairs)
    level = settings.cache.policy.cold_level
    kinds = sorted({(not pair.hit, pair.kind) for pair in pairs})
    shares = [_share([p for p in pairs if (not p.hit, p.kind) == key], ways(level)) for key in kinds]
    return Verifying(split, tuple(shares), _without_each(pairs, level), verdict_ms)


def _share(pairs: Sequence[Pair], by: Mapping[str, Callable[[Pair], bool]]) -> Share:
    served = {name: sum(map(way, pairs)) for name, way in by.items()}
    return Share(pairs[0].kind, pairs[0].hit, len(pairs), served)


def _without_each(pairs: Sequence[Pair], level: float) -> dict[str, tuple[int, int]]:
    names = sorted({name for pair in pairs for name in pair.verdict.guards})
    more = {}
    for name in names:
        alone = [pair for pair in pairs if pair.verdict.guards == (name,) and pair.verdict.judge >= level]
        more[name] = (sum(pair.hit for pair in alone), sum(not pair.hit for pair in alone))
    return more


async def _similarities(settings: Settings, folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
    embedder = embedder_of(embedding_files(settings, folder))
    if embedder is None:
        return None
    embedder.start()
    try:
        embed, found = embed_whole(embedder, PATIENCE_S), []
        for row in rows:
            a, b = await embed(row["a"]), await embed(row["b"])
            found.append(0.0 if a is None or b is None else float(a.vector @ b.vector))
        return found
    finally:
        await embedder.stop()


def claims(verifying: Verifying) -> Iterator[Claim]:
    right, of = verifying.total("ours", hit=True)
    wrong, _ = verifying.total("ours", hit=False)
    if verifying.total("ours", hit=False)[1]:
        yield Claim("cache: wrong hits on held-out pairs", wrong, at_most=0)
    yield Claim("cache: recall on held-out pairs", right / of, at_least=0.6)


def lines(verifying: Verifying) -> list[str]:
    """One line a class; `tests.bench.report` is for ratios of engines."""
    names = list(verifying.shares[0].served)
    heads = ["class", "pairs", *names]
    grid = [
        [f"{'' if s.hit else 'NOT '}{s.kind}", str(s.pairs), *(str(s.served[n]) for n in names)]
        for s in verifying.shares
    ]
    for hit, name in ((True, "all that should hit"), (False, "all that should not")):
        served = {way: verifying.total(way, hit=hit) for way in names}
        if served["ours"][1]:
            grid.append([name, str(served["ours"][1]), *(str(served[way][0]) for way in names)])
    widths = [max(len(row[i]) for row in [heads, *grid]) for i in range(len(heads))]
    shown = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in [heads, *grid]
    ]
    guards = ", ".join(f"{name} +{right} right +{wrong} wrong" for name, (right, wrong) in verifying.guards.items())
    return [
        f"pairs of split {verifying.split}; GPTCache's default is >= {GPTCACHE_DEFAULT}",
        *shown,
        f"without a guard: {guards or '-'}",
        f"a verdict takes {verifying.verdict_ms:.2f} ms",
    ]


def main() -> int:
    measured = [run(state_dir(None, os.environ), split) for split in ("dev", "test")]
    whole = [verifying for verifying in measured if verifying is not None]
    if not whole:
        print("there is no embedding model: appliance pull all-minilm-l6-v2", file=sys.stderr)
        return 2
    print(*(line for verifying in whole for line in (*lines(verifying), "")), sep="\n")
    print(*report.claims(list(claims(whole[-1]))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
