"""The cache as the daemon uses it: a request is looked up before anything is spent on it, and its answer kept after.

It never raises for a fault of its own: what goes wrong is a miss, is counted, and is in the log once.
"""

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from appliance.protocol import Event, Request
from cache.answers import Answer, UnreadableAnswer, answer_of, packed, text_of, unpacked
from cache.budget import LEVELS, SECOND_OPINION, Checks, Stand, enough, level_of, stand
from cache.canonical import Identity, identify
from cache.comparison import same_answer
from cache.eligibility import not_semantic, obstacle, unfit
from cache.policy import CachePolicy
from cache.store import Candidate, Entry, Store, Stored
from cache.verifier.verdict import Verifier

log = logging.getLogger(__name__)

NOTED_EVERY_S: Final = 2.0
TIDIED_EVERY_BEATS: Final = 300
NEAREST: Final = 2  # candidates that are verified
LEAST_SIMILAR: Final = 0.5  # a candidate below is no candidate
PATIENCE_S: Final = 2.0  # with a lookup; what takes longer is a fault
MOST_FAULTS: Final = 20  # that are told apart in the log
Tier = Literal["exact", "semantic"]


@dataclass(frozen=True, slots=True)
class Embedded:
    vector: npt.NDArray[np.float32]  # of length one
    whole: bool  # it says something of all of the text


Embed = Callable[[str], Awaitable[Embedded | None]]  # None: there is none in time
SameAnswer = Callable[[str, str], Awaitable[bool]]  # whether one answer would do for both


@dataclass(frozen=True, slots=True)
class Hit:
    tier: Tier
    answer: Answer
    id: int
    similarity: float
    score: float
    age_s: float
    text: str  # that the answer was made for


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is known of a request to the cache."""

    identity: Identity | None  # None: it may not be cached at all
    hit: Hit | None = None
    near: Hit | None = None  # what would have been one, were its class of scores to be trusted
    is_semantic: bool = False  # another text's answer would have done, and this one's may for another
    embedded: Embedded | None = None


@dataclass(frozen=True, slots=True)
class _Nearest:
    """What the verifier says of the entries that are most similar."""

    hit: Hit | None  # that it takes
    open: Candidate | None  # that no guard refuses, whether it takes it or not
    refused: str | None  # the first guard that refused one, "judge" if none did


class SemanticCache:
    def __init__(
        self,
        store: Store,
        verifier: Callable[[], Verifier],
        embed: Embed | None,
        policy: CachePolicy,
        *,
        tag: str,
        realm: str,
        second_opinion: SameAnswer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`tag` names the embedding model, `realm` the models that answer. `second_opinion` is asked about pairs that
        no guard refuses and the judge is not sure of."""
        self._store = store
        self._verifier = verifier
        self._embed = embed
        self._policy = policy
        self._tag = tag
        self._realm = realm
        self._second_opinion = second_opinion
        self._clock = clock
        self._flags = Counter[str]()
        self._touched: list[int] = []  # not yet in the file, like the next
        self._checked: list[tuple[str, str, str]] = []
        self._checks = _by_level(store.totals())
        self._faults: set[str] = set()  # that are in the log

    async def find(self, request: Request, namespace: str) -> Lookup:
        """A fault of the cache's own is a miss."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._found(request, namespace)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request goes on without a cache
            self._failed(error)
            return Lookup(None)

    async def keep(self, lookup: Lookup, request: Request, events: Sequence[Event], model: str) -> None:
        """Stores a whole answer that is fit for it, in one transaction, and notes whether it says what a near miss
        would have said."""
        if lookup.identity is None or unfit(events) is not None:
            return
        try:
            await self._kept(lookup.identity, lookup, request, answer_of(events, model))
        except Exception as error:  # noqa: BLE001 - the answer is whole, and its client has it
            self._failed(error)
        if lookup.near is not None:
            self.compare(lookup.near, lookup.identity.namespace, request.hints.step, events)

    async def _found(self, request: Request, namespace: str) -> Lookup:
        why = obstacle(request, sampled=self._policy.sampled) if self._policy.enabled else "off"
        if why is not None:
            self._count(f"not-{why}")
            return Lookup(None)
        identity = identify(request, namespace, self._realm)
        semantic = self._embed is not None and not_semantic(identity, request.hints, self._policy) is None
        if request.hints.cache == "refresh":
            return Lookup(identity, is_semantic=semantic)
        stored, has_others = await asyncio.to_thread(self._stored, identity, semantic=semantic)
        if stored is not None and (hit := self._hit("exact", stored, 1.0, 1.0)) is not None:
            self._count("hit-exact")
            return Lookup(identity, hit=hit)
        return await self._compared(identity, request) if has_others else Lookup(identity, is_semantic=semantic)

    async def _kept(self, identity: Identity, lookup: Lookup, request: Request, answer: Answer) -> None:
        now, embedded = self._clock(), lookup.embedded
        if embedded is None and lookup.is_semantic and self._embed is not None:
            embedded = await self._embed(identity.text)
        vector = embedded.vector if embedded is not None and embedded.whole else None
        entry = Entry(
            key=identity.key,
            fingerprint=identity.fingerprint,
            namespace=identity.namespace,
            step=request.hints.step,
            text=identity.text if vector is not None else "",
            vector=vector,
            embedding=self._tag if vector is not None else "",
            answer=packed(answer),
            model=answer.model,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            created_at=now,
            expires_at=now + self._policy.ttl_s(request.hints.step),
        )
        self._count("stored" if await asyncio.to_thread(self._store.put, entry) else "dropped")

    def served(self, hit: Hit) -> None:
        """It is on its way to a client."""
        self._flags[f"saved-{hit.tier}"] += hit.answer.prompt_tokens
        self._touched.append(hit.id)

    def compare(self, hit: Hit, namespace: str, step: str | None, events: Sequence[Event]) -> None:
        """Notes whether a fresh answer says what a semantic hit, served or not, would have said."""
        right = same_answer(hit.answer.text, text_of(events)) if unfit(events) is None else None
        if right is not None:
            self.check(namespace, step, hit.score, right=right)

    def check(self, namespace: str, step: str | None, score: float, *, right: bool) -> None:
        """Notes what a would-be hit was worth."""
        level = level_of(score)
        if level is not None:
            checks = self._checks.setdefault((namespace, step or ""), {})
            checks[level] = checks.get(level, Checks()).plus(right=right)
            self._checked.append((namespace, step or "", f"{'right' if right else 'wrong'}-{level}"))

    def stand(self, namespace: str, step: str | None) -> Stand:
        """What the semantic tier may serve to a namespace, for a kind of step."""
        checks = self._checks.get((namespace, step or ""), {})
        return stand(checks, self._policy.false_hit_budget, self._policy.cold_level)

    def evict(self, **conditions: Any) -> int:
        """As `Store.evict`."""
        return self._store.evict(**conditions)

    async def tend(self) -> None:
        """Writes down what was hit and checked, and tidies up. Until it is cancelled."""
        for beat in itertools.count():
            await asyncio.sleep(NOTED_EVERY_S)
            await asyncio.to_thread(self._note)
            if beat % TIDIED_EVERY_BEATS == 0:
                await asyncio.to_thread(self._store.tidy)

    def close(self) -> None:
        self._note()
        self._store.close()

    def _note(self) -> None:
        touched, self._touched = self._touched, []
        checked, self._checked = self._checked, []
        self._store.touch(touched)
        for (namespace, step, name), count in Counter(checked).items():
            self._store.add(namespace, step, {name: count})

    def status(self) -> dict[str, Any]:
        """As the status endpoint shows it."""
        stats = self._store.stats()
        return {
            "enabled": self._policy.enabled,
            "semantic": self._policy.semantic and self._embed is not None,
            "entries": stats.entries,
            "bytes": stats.bytes_on_disk,
            "namespaces": dict(stats.namespaces),
            "evictions": stats.evictions,
            "quarantines": stats.quarantines,
            "damaged": stats.damaged,
            "failures": stats.failures,
            "problem": stats.problem,
            "hits": {tier: self._flags[f"hit-{tier}"] for tier in ("exact", "semantic")},
            "prompt_tokens_saved": {tier: self._flags[f"saved-{tier}"] for tier in ("exact", "semantic")},
            "stored": self._flags["stored"],
            "dropped": self._flags["dropped"],
            "failed": self._flags["failed"],
            "misses": self._flags["miss"],
            "unproven": self._flags["near"],
            "near_misses": self._named("refused-"),
            "not_cached": self._named("not-"),
            "false_hits": [self._measured(namespace, step) for namespace, step in sorted(self._checks)],
            "false_hit_budget": self._policy.false_hit_budget,
            "checks_that_prove_it": enough(self._policy.false_hit_budget),
        }

    def _named(self, prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): n for name, n in sorted(self._flags.items()) if name.startswith(prefix)}

    def _measured(self, namespace: str, step: str) -> dict[str, Any]:
        now = self.stand(namespace, step or None)
        return {
            "namespace": namespace,
            "step": step or None,
            "state": now.state,
            "threshold": now.threshold,
            "checked": now.checked,
            "wrong": now.wrong,
            "rate": now.rate,
            "upper_bound": round(now.upper_bound, 5),
        }

    async def _compared(self, identity: Identity, request: Request) -> Lookup:
        """The semantic tier. Only where there is something to compare with: else nobody waits for a vector."""
        embedded = None if self._embed is None else await self._embed(identity.text)
        if embedded is None or not embedded.whole:
            return Lookup(identity, is_semantic=True)
        nearest = await asyncio.to_thread(self._nearest, identity, embedded.vector)
        hit = await self._opined(nearest, identity.text) or nearest.hit
        if hit is None:
            self._count(f"refused-{nearest.refused}" if nearest.refused else "miss")
            return Lookup(identity, is_semantic=True, embedded=embedded)
        if self.stand(identity.namespace, request.hints.step).serves(hit.score):
            self._count("hit-semantic")
            return Lookup(identity, hit=hit)
        self._count("near")
        return Lookup(identity, is_semantic=True, near=hit, embedded=embedded)

    async def _opined(self, nearest: "_Nearest", text: str) -> Hit | None:
        """A hit by a second opinion, where the verifier leaves one open."""
        if self._second_opinion is None or nearest.open is None:
            return None
        if nearest.hit is not None and nearest.hit.score >= SECOND_OPINION:
            return None
        if not await self._second_opinion(nearest.open.text, text):
            return None
        return await asyncio.to_thread(self._hit_by, nearest.open, SECOND_OPINION)

    # In other threads: each change of thread costs, the more the busier the machine is, so that one does all there is

    def _stored(self, identity: Identity, *, semantic: bool) -> tuple[Stored | None, bool]:
        """The entry of the very same request; if there is none, whether there are others to compare with."""
        stored = self._store.get(identity.key)
        return stored, stored is None and semantic and self._store.holds(identity.fingerprint, self._tag)

    def _nearest(self, identity: Identity, vector: npt.NDArray[np.float32]) -> "_Nearest":
        hit: Hit | None = None
        left_open: Candidate | None = None
        refused: str | None = None
        for candidate in self._store.near(identity.fingerprint, self._tag, vector, NEAREST):
            if candidate.similarity < LEAST_SIMILAR:
                break
            verdict = self._verifier().verdict(candidate.text, identity.text, candidate.similarity)
            left_open = left_open or (None if verdict.guards else candidate)
            hit = None if level_of(verdict.score) is None else self._hit_by(candidate, verdict.score)
            if hit is not None:
                break
            refused = refused or next(iter(verdict.guards), "judge")
        return _Nearest(hit, left_open, refused)

    def _hit_by(self, candidate: Candidate, score: float) -> Hit | None:
        stored = self._store.entry(candidate.id)
        return None if stored is None else self._hit("semantic", stored, candidate.similarity, score)

    def _hit(self, tier: Tier, stored: Stored, similarity: float, score: float) -> Hit | None:
        try:
            answer = unpacked(stored.entry.answer)
        except UnreadableAnswer as error:
            log.warning("a cached answer cannot be read", extra={"fields": {"reason": str(error)}})
            return None
        age_s = max(0.0, self._clock() - stored.entry.created_at)
        return Hit(tier, answer, stored.id, similarity, score, age_s, stored.entry.text)

    def _count(self, name: str) -> None:
        self._flags[name] += 1

    def _failed(self, error: Exception) -> None:
        self._count("failed")
        fault = f"{type(error).__name__}: {error}"
        if fault not in self._faults and len(self._faults) < MOST_FAULTS:
            self._faults.add(fault)
            log.error("the cache failed; requests go on without it", exc_info=error)


def _by_level(totals: Mapping[tuple[str, str], Mapping[str, int]]) -> dict[tuple[str, str], dict[float, Checks]]:
    """What the store has counted under "right-0.9" and the like."""
    return {
        whose: {
            level: Checks(counts.get(f"right-{level}", 0), counts.get(f"wrong-{level}", 0))
            for level in (*LEVELS, SECOND_OPINION)
        }
        for whose, counts in totals.items()
    }
