"""A language model's yes or no on two questions that the rules leave open, and when it is to be believed. Pure."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cache.budget import upper_bound

PROMPT: Final = (
    "Two people ask an assistant. Would exactly the same answer be right and complete for both? Another name, number, "
    "time, condition, negation or direction makes it another question.\n\nFirst: {first}\n\nSecond: {second}\n\n"
    "Say only yes or no."
)
CALIBRATION_FILE: Final = "calibration.json"
LEAST_SAID: Final = 0.2  # of the probability, by yes and no together: else it did not answer
LEAST_FOUND: Final = 0.2  # share of the pairs that have one answer: a model that finds fewer is no use


@dataclass(frozen=True, slots=True)
class OpenPair:
    """Two questions that no rule refuses and none is sure of."""

    a: str
    b: str
    hit: bool  # one answer would do


@dataclass(frozen=True, slots=True)
class Worth:
    """What a model's opinion was worth on pairs whose truth is known."""

    threshold: float | None  # of the probability of yes; None: it is not to be asked
    found: int  # pairs that have one answer, and are at the threshold or above
    pairs: int  # that have one
    traps: int  # that have not, of which none is above the threshold
    upper_bound: float  # of the share of traps that are, with 95 % confidence


def certainty(tokens: Iterable[tuple[str, float]]) -> float | None:
    """The probability of yes, from the likeliest first tokens and their logprobs; None: it said something else."""
    said = {"yes": 0.0, "no": 0.0}
    for text, logprob in tokens:
        word = text.strip(" .,!\n\"'").lower()
        if word in said:
            said[word] += math.exp(logprob)
    both = sum(said.values())
    return said["yes"] / both if both >= LEAST_SAID else None


def worth(opinions: Sequence[tuple[float | None, bool]]) -> Worth:
    """From a model's certainty on each pair, and whether one answer would do: it is believed above every trap."""
    traps = [0.0 if sure is None else sure for sure, hit in opinions if not hit]
    hits = [sure for sure, hit in opinions if hit]
    least = max(traps, default=1.0)
    above = [sure for sure in hits if sure is not None and sure > least]
    useful = bool(traps) and len(above) >= LEAST_FOUND * len(hits) > 0
    bound = upper_bound(0, len(traps)) if traps else 1.0
    return Worth(min(above) if useful else None, len(above), len(hits), len(traps), bound)


def mark_of(model: str, created: int) -> str:
    """A model and its very file, by the file's Unix time in seconds: another of the same name may be worth less."""
    return f"{model}@{created}"


def read_worth(path: Path, mark: str) -> Worth | None:
    """What was measured of a model, by its mark; None: nothing that can be read."""
    try:
        return Worth(**json.loads(path.read_bytes())["second_opinion"][mark])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_worth(path: Path, mark: str, measured: Worth) -> None:
    """Replaces what the file says of the model. Raises OSError."""
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    opinions = known.get("second_opinion")
    whole = {**known, "second_opinion": {**(opinions if isinstance(opinions, dict) else {}), mark: asdict(measured)}}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def open_pairs() -> list[OpenPair]:
    """Written for this purpose."""
    lines = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    return [OpenPair(**json.loads(line)) for line in lines]
