"""Which answers of a replayed trace were wrong, and what the cache spared. Pure: answers in, counts out.

The interface does not say which stored answer a hit was. But it was made in the same context, says the same byte for
byte, and is as old as the hit's header says: where no such answer was made for the hit's meaning, the hit is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.bench.cache.trace import SHARES, Category, Step

Saving = Literal["exact", "semantic", "prefix"]
SLACK_S: Final = 1.5  # the header has whole seconds, and the answer is stored a moment before it is here


@dataclass(frozen=True, slots=True)
class Answered:
    """A request, and what came back."""

    step: Step
    route: str  # "local", "cache-exact" or "cache-semantic"
    finish: str
    answer: str
    prompt_tokens: int
    cached_tokens: int  # of them, those that were not computed
    came_s: float  # by one clock for all
    age_s: float | None = None  # of a hit
    similarity: float | None = None

    @property
    def is_hit(self) -> bool:
        return self.route.startswith("cache-")


@dataclass(frozen=True, slots=True)
class Hit:
    answered: Answered
    origins: tuple[Answered, ...]  # one of them it was

    @property
    def is_wrong(self) -> bool:
        return all(origin.step.meaning != self.answered.step.meaning for origin in self.origins)

    @property
    def is_certain(self) -> bool:
        """That it was right or wrong does not depend on which of the origins it was."""
        return len({origin.step.meaning == self.answered.step.meaning for origin in self.origins}) <= 1


@dataclass(frozen=True, slots=True)
class CategoryCount:
    category: Category
    sent: int
    exact: int
    semantic: int
    wrong: int  # of these hits
    cut: int  # answers that came to no end, which are never kept

    @property
    def computed(self) -> int:
        return self.sent - self.exact - self.semantic


def hits(answered: Sequence[Answered]) -> Iterator[Hit]:
    """In the order in which they were sent, which `answered` has."""
    for number, answer in enumerate(answered):
        if answer.is_hit:
            yield Hit(answer, tuple(_origins(answer, answered[:number])))


def _origins(hit: Answered, earlier: Sequence[Answered]) -> list[Answered]:
    alike = [
        made
        for made in earlier
        if not made.is_hit and made.step.context == hit.step.context and made.answer == hit.answer
    ]
    of_age = [made for made in alike if abs(hit.came_s - made.came_s - (hit.age_s or 0.0)) <= SLACK_S]
    return of_age or alike


def saved_tokens(answered: Sequence[Answered]) -> dict[Saving, int]:
    """Prompt tokens that were not computed, by what spared them."""
    tiers: Mapping[str, Saving] = {"cache-exact": "exact", "cache-semantic": "semantic"}
    saved: dict[Saving, int] = {"exact": 0, "semantic": 0, "prefix": 0}
    for answer in answered:
        tier = tiers.get(answer.route)
        saved[tier or "prefix"] += answer.prompt_tokens if tier else answer.cached_tokens
    return saved


def by_category(answered: Sequence[Answered], wrong: Sequence[Hit]) -> Iterator[CategoryCount]:
    for category in SHARES:
        those = [answer for answer in answered if answer.step.category == category]
        routes = [answer.route for answer in those]
        yield CategoryCount(
            category,
            sent=len(those),
            exact=routes.count("cache-exact"),
            semantic=routes.count("cache-semantic"),
            wrong=sum(hit.answered.step.category == category for hit in wrong),
            cut=sum(answer.finish == "length" for answer in those),
        )


def missed(answered: Sequence[Answered]) -> Iterator[tuple[Answered, tuple[str, ...]]]:
    """Paraphrases that were computed, with the texts of the same meaning whose answers were there."""
    for number, answer in enumerate(answered):
        if answer.step.category == "paraphrase" and not answer.is_hit:
            key = (answer.step.context, answer.step.meaning)
            there = [
                made.step.text
                for made in answered[:number]
                if not made.is_hit and made.finish == "stop" and (made.step.context, made.step.meaning) == key
            ]
            yield answer, tuple(dict.fromkeys(there))


def as_data(answer: Answered) -> dict[str, Any]:
    step = answer.step
    return {
        "task": step.task,
        "agent": step.agent,
        "category": step.category,
        "context": step.context,
        "meaning": step.meaning,
        "apart": step.apart,
        "text": step.text,
        "route": answer.route,
        "finish": answer.finish,
        "answer": answer.answer,
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "similarity": answer.similarity,
    }
