"""Scenario: how often the step of a request is told without a hint, and how long that takes.

Over the held-out half of the labelled prompts. No model computes meanwhile but the embedding one.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.embedding import embed_with, embedder_of, embedding_files
from appliance.protocol import Request
from appliance.routing.classifier import Classifier
from appliance.routing.decision import Decision, Situation, decide
from appliance.routing.exemplars import load_exemplars
from appliance.settings import Settings
from tests.bench.claims import Claim
from tests.bench.stats import percentile
from tests.routing.labelled import Labelled, labelled

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Guesses:
    """Of one way to guess, over all prompts."""

    accuracy: float  # of all guesses, sure or not
    abstained: float  # share below `routing.min_confidence`
    accuracy_when_sure: float  # of the others
    p50_ms: float  # of a whole decision
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Routing:
    prompts: int
    by_words: Guesses
    by_both: Guesses | None  # None: the embedding model is not here


def run(state_dir: Path) -> Routing:
    return asyncio.run(_run(state_dir))


async def _run(state_dir: Path) -> Routing:
    prompts, exemplars, settings = labelled("test"), load_exemplars(), Settings()
    words = Classifier(exemplars)
    words.fit()
    by_words = await _guesses(words, prompts, settings)
    embedder = embedder_of(embedding_files(settings, state_dir))
    if embedder is None:
        return Routing(len(prompts), by_words, None)
    embedder.start()
    try:
        both = Classifier(exemplars, embed_with(embedder))
        await both.prepare()
        return Routing(len(prompts), by_words, await _guesses(both, prompts, settings))
    finally:
        await embedder.stop()


async def _guesses(classifier: Classifier, prompts: Sequence[Labelled], settings: Settings) -> Guesses:
    decisions: list[tuple[Decision, bool]] = []
    times_ms: list[float] = []
    for number in range(ROUNDS):
        for prompt in prompts:
            began_s = time.perf_counter()
            decision, step = await _decided(classifier, prompt.request, settings)
            times_ms.append((time.perf_counter() - began_s) * 1000)
            if number == 0:
                decisions.append((decision, step == prompt.step))
    sure = [right for decision, right in decisions if decision.confidence >= settings.routing.min_confidence]
    return Guesses(
        accuracy=sum(right for _, right in decisions) / len(decisions),
        abstained=1 - len(sure) / len(decisions),
        accuracy_when_sure=sum(sure) / max(1, len(sure)),
        p50_ms=percentile(times_ms, 50),
        p99_ms=percentile(times_ms, 99),
    )


async def _decided(classifier: Classifier, request: Request, settings: Settings) -> tuple[Decision, str | None]:
    guess = await classifier.guess(request)
    situation = Situation(
        local_models=frozenset({"local-model"}),
        has_frontier=True,
        offline=False,
        excluded_field=None,
        too_long=False,
        before=None,
        guess=guess,
    )
    return decide(request, settings.routing, situation), guess.step


def claims(routing: Routing) -> Iterator[Claim]:
    yield Claim("a routing decision by words, P99, ms", routing.by_words.p99_ms, at_most=1)
    if routing.by_both is not None:
        yield Claim("a routing decision with an embedding, P99, ms", routing.by_both.p99_ms, at_most=10)
