"""Decides what each step computes: who is admitted, which rows go into the batch, whose cells are given up.

Pure: no backend, no clock, no randomness. It answers with `Operation`s and rows for the engine to carry out, and
keeps an exact mirror of the KV cache meanwhile.

First come, first served within a class; the more critical class comes first, and takes slots and cells from the others.
A prompt shares the cells of the resident sequence with the longest common prefix; one whose prefix is being computed
right now waits for it instead of computing it again.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from runtimes.contracts import Row, TokenArray
from runtimes.engine.archive import Archive
from runtimes.engine.batching import Crowd, Share
from runtimes.engine.cells import CellLedger
from runtimes.engine.prefix_tree import Match, PrefixTree
from runtimes.engine.sequence import RANKS, UNPLACED, Sequence

# Waiting a step for a prefix that another prompt computes pays from about one chunk of a kernel's rows on.
SHARE_AT_LEAST_TOKENS = 16
# A retained cell slows every later row: attention passes over it. Measured on a 135M model, two cores: for each row,
# 1/19,000 of what computing the cell again costs, 1/5,000 with 12,000 cells; 16 finished streams of 134 tokens make
# the next 16 some 9 % slower. So it leaves soon once host memory has a copy. To make the copy costs 1/170 of computing
# a cell, and 1/30 where memory is fresh; better in a moment without work, which an agent leaves between its steps.
RETAIN_SAVED_FOR_WORK_TOKENS = 128
RETAIN_FOR_WORK_TOKENS = 512
# Without host memory to move it to, it stays as long as pays when one in twenty is used again.
RETAIN_WITHOUT_ARCHIVE_FOR_WORK_TOKENS = 1024
# Room that a newcomer leaves each running stream, so that it does not have to step back right after its prefill.
HEADROOM_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Fork:
    source: int
    target: int
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Truncate:
    sequence: int
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Save:
    """Copy a sequence's cells to host memory, under a key."""

    sequence: int
    key: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Copy saved cells into an empty sequence. The saved copy stays."""

    key: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Forget:
    """A saved copy is not needed any more."""

    key: int


Operation = Fork | Truncate | Save | Restore | Forget


@dataclass(frozen=True, slots=True)
class Limits:
    slots: int  # sequences that run at once
    max_sequences: int  # those and the retained ones: at least one more
    kv_tokens: int
    shares_prefixes: bool = True
    archive_tokens: int = 0  # of finished sequences, in host memory


@dataclass(slots=True)
class Plan:
    operations: list[Operation] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    parts: list[tuple[Sequence, int]] = field(default_factory=list)  # (sequence, its rows), in the order of `rows`
    decode_rows: int = 0

    @property
    def sampled(self) -> list[Sequence]:
        """Those that get a new token, in the order of the logits."""
        return [sequence for sequence, n in self.parts if sequence.computed + n == len(sequence.tokens)]


class Scheduler:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: list[Sequence] = []  # by class, then in order of arrival
        self.running: list[Sequence] = []  # in order of admission
        self._arrivals = 0
        self._steps = 0
        self.cells = CellLedger(limits.kv_tokens)
        self.preemptions = 0
        self.archive = Archive(limits.archive_tokens)
        self._retain_for = RETAIN_FOR_WORK_TOKENS if limits.archive_tokens else RETAIN_WITHOUT_ARCHIVE_FOR_WORK_TOKENS
        self._saved_slots: set[int] = set()  # of retained sequences that have a copy
        self._refused = False  # the last batch did not fit after all
        self.work_tokens = 0
        self._tree = PrefixTree()
        self._computed: dict[int, int] = {}  # by slot, of the resident sequences
        self._retained: OrderedDict[int, tuple[TokenArray, int]] = OrderedDict()  # slot: (tokens, work when last used)
        self._free_slots = list(range(limits.max_sequences - 1, -1, -1))

    @property
    def retained_sequences(self) -> int:
        return len(self._retained)

    def add(self, sequence: Sequence) -> None:
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self._wait(sequence)

    def crowd(self, patient: Collection[Sequence] = ()) -> Crowd:
        """Who is there, but for `patient` streams that rest."""
        prompts = [*(s for s in self.running if not s.decoding and s.rows_left), *self.waiting]
        best = min((s.rank for s in prompts), default=len(RANKS))
        streams = [s for s in self.running if s.decoding and not (s in patient and best <= s.rank)]
        critical = sum(s.critical for s in streams)
        return Crowd(
            critical_streams=critical,
            critical_prompts=any(s.critical for s in prompts),
            other_streams=len(streams) - critical,
            other_prompts=any(not s.critical for s in prompts),
        )

    def schedule(self, share: Share, patient: Collection[Sequence] = ()) -> Plan:
        """The next step, with at most `share.prefill_rows` rows beside the streams' own.

        `patient` streams have no row in it if there are prompts to compute that are as critical.
        """
        plan = Plan()
        self._steps += 1
        if share.other_streams is None:  # to save cells takes a moment, which critical streams are spared
            self._forget_expensive(plan)
        streams = sum(sequence.decoding and sequence not in patient for sequence in self.running)
        if not (self._refused and self.running):  # whoever stepped back must not come straight back
            self._admit(plan)
        self._refused = False
        self._fill(plan, share, patient, streams)
        if not plan.rows and share.other_streams is not None:  # nobody is there whom the others could be in the way of
            self._fill(plan, share := Share(share.prefill_rows), patient, streams)
        # Prompts may hold all cells between them: then the newest steps back.
        while not plan.rows and any(sequence.rows_left for sequence in self.running):
            self._preempt(plan, self._least())
            self._prefill(plan, share, share.prefill_rows)
        return plan

    def _fill(self, plan: Plan, share: Share, patient: Collection[Sequence], streams: int) -> None:
        prompts = [s.rank for s in self.running if not s.decoding and s.rows_left]
        resting = {id(s) for s in patient if prompts and min(prompts) <= s.rank}
        decoding = [s for s in self.running if s.decoding and id(s) not in resting]
        others = sorted((s for s in decoding if not s.critical), key=lambda s: (s.last_step, s.rank))
        chosen = {id(s) for s in others[: share.other_streams]}
        for sequence in sorted(decoding, key=lambda s: s.rank):
            wanted = sequence.critical or id(sequence) in chosen
            if wanted and sequence.slot != UNPLACED and self._make_room(plan, for_=sequence):
                self._put(plan, sequence, 1)
                plan.decode_rows += 1
        # A resumed stream whose cells were all still there is none of those that were counted.
        self._prefill(plan, share, share.prefill_rows - max(0, plan.decode_rows - streams))

    def commit(self, plan: Plan) -> None:
        """Notes that the rows of `plan` are in the KV cache."""
        for sequence, n in plan.parts:
            sequence.computed += n
            self._computed[sequence.slot] = sequence.computed
        self.work_tokens += len(plan.rows)

    def undo(self, plan: Plan) -> list[Operation]:
        """Takes back the rows of a plan that the backend refused, and makes room: of what is retained, else of the
        newest sequence. No operations: there is nothing left to give up."""
        for sequence, _ in plan.parts:
            self.cells.truncate(sequence.slot, sequence.computed)
        self._refused = True
        again = Plan()
        while self._retained:
            self._free(again, next(iter(self._retained)))
        if not again.operations and len(self.running) > 1:
            self._preempt(again, self._least())
        return again.operations

    def finish(self, sequences: Iterable[Sequence], *, retain: bool = True) -> list[Operation]:
        """Takes sequences out, wherever they are; their prefixes stay resident while that is cheap."""
        plan = Plan()
        for sequence in sequences:
            if sequence.slot == UNPLACED:
                if sequence in self.waiting:
                    self.waiting.remove(sequence)
                continue
            self.running.remove(sequence)
            if retain and self.limits.shares_prefixes and sequence.computed >= SHARE_AT_LEAST_TOKENS:
                self._retain(plan, sequence)
            else:
                self._free(plan, sequence.slot)
            sequence.slot = UNPLACED
        return plan.operations

    def save_ahead(self) -> list[Operation]:
        """Copies one retained sequence to host memory; it stays here too. None: all that fit are there."""
        for slot, (tokens, _) in self._retained.items():
            if len(tokens) > self.archive.free_tokens:  # nothing is pushed out for this
                continue
            key, forgotten = self.archive.put(tokens)
            self._saved_slots.add(slot)
            if key is not None:
                return [*(Forget(old) for old in forgotten), Save(slot, key)]
        return []

    def _admit(self, plan: Plan) -> None:
        passed_over: list[Sequence] = []
        promised = sum(s.rows_left for s in self.running if not s.decoding)
        while self.waiting:
            sequence = self.waiting[0]
            if len(self.running) >= self.limits.slots and not self._displace(plan, sequence):
                break
            del self.waiting[0]
            tokens = sequence.token_array()
            now, later = self._tree.longest(tokens[:-1], self._computed)  # the last token is computed for its logits
            saved = self.archive.longest(tokens[:-1])
            worth_waiting = later.tokens > max(now.tokens, saved.tokens) and later.tokens >= SHARE_AT_LEAST_TOKENS
            if worth_waiting and any(s.slot == later.sequence and s.rank <= sequence.rank for s in self.running):
                passed_over.append(sequence)
                continue
            matches = (now, saved)
            while not (placed := self._settle(plan, sequence, tokens, matches, promised)):
                if not self._displace(plan, sequence):
                    break
                promised = sum(s.rows_left for s in self.running if not s.decoding)
            if not placed:
                passed_over.append(sequence)  # nobody behind it may pass: it would starve
                break
            promised += len(tokens) - sequence.computed
        for sequence in passed_over:
            self._wait(sequence)

    def _settle(
        self, plan: Plan, sequence: Sequence, tokens: TokenArray, matches: tuple[Match, Match], promised: int
    ) -> bool:
        """Gives a sequence its place, with what is resident or saved of it; False when there is no room now."""
        now, saved = matches
        revives = saved.tokens >= now.tokens + SHARE_AT_LEAST_TOKENS
        return (revives and self._revive(plan, sequence, tokens, saved, promised)) or self._place(
            plan, sequence, tokens, now, promised
        )

    def _displace(self, plan: Plan, for_: Sequence) -> bool:
        """Lets the newest of the least critical class stand back for one of a more critical one; its cells stay while
        there is room. Whether there was any."""
        victim = self._least() if self.running else for_
        if victim.rank <= for_.rank:
            return False
        self.running.remove(victim)
        if self.limits.shares_prefixes and victim.computed >= SHARE_AT_LEAST_TOKENS:
            self._retain(plan, victim)
        else:
            self._free(plan, victim.slot)
        victim.slot, victim.computed = UNPLACED, 0
        self._wait(victim)
        self.preemptions += 1
        return True

    def _least(self) -> Sequence:
        """Who runs and steps back first: the newest of the least critical class."""
        return max(reversed(self.running), key=lambda s: s.rank)

    def _wait(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=lambda s: (s.rank, s.arrival))

    def _place(self, plan: Plan, sequence: Sequence, tokens: TokenArray, match: Match, promised: int) -> bool:
        """Gives a sequence a slot and the cells it shares; False when its prompt does not fit now."""
        shared = match.tokens if match.tokens >= SHARE_AT_LEAST_TOKENS else 0
        needed = len(tokens) - shared + 1 + promised + HEADROOM_TOKENS * len(self.running)
        if needed > self.cells.free:  # would it fit without all that is retained?
            kept = [(s.slot, len(s.tokens)) for s in self.running]
            if needed > self.cells.capacity - self.cells.distinct([*kept, (match.sequence, shared)]):
                return False
        if match.sequence in self._retained:
            self._retained[match.sequence] = (self._retained[match.sequence][0], self.work_tokens)
            self._retained.move_to_end(match.sequence)
        slot = self._take_slot(plan)
        if shared:  # first of all, so that the source itself may be evicted
            self.cells.fork(match.sequence, slot, shared)
            plan.operations.append(Fork(match.sequence, slot, shared))
        self._evict_for(plan, needed)
        self._run(sequence, tokens, slot, shared)
        return True

    def _revive(self, plan: Plan, sequence: Sequence, tokens: TokenArray, saved: Match, promised: int) -> bool:
        """Gives a sequence a slot and a copy of saved cells; False when there is no room for all that was saved."""
        whole = self.archive.length(saved.sequence)
        needed = max(len(tokens) + 1, whole) + promised + HEADROOM_TOKENS * len(self.running)
        kept = [(s.slot, len(s.tokens)) for s in self.running]
        if needed > self.cells.capacity - self.cells.distinct(kept):
            return False
        self.archive.touch(saved.sequence)
        slot = self._take_slot(plan)
        self._evict_for(plan, needed)
        if saved.sequence not in self.archive:  # what was evicted took its place
            self._free_slots.append(slot)
            return False
        self.cells.extend(slot, whole)
        self.cells.truncate(slot, saved.tokens)
        plan.operations += [Restore(saved.sequence, slot), Truncate(slot, saved.tokens)]
        self._run(sequence, tokens, slot, saved.tokens)
        return True

    def _take_slot(self, plan: Plan) -> int:
        if not self._free_slots:
            self._dismiss(plan, next(iter(self._retained)))  # the least recently used; never the one matched last
        return self._free_slots.pop()

    def _run(self, sequence: Sequence, tokens: TokenArray, slot: int, computed: int) -> None:
        sequence.slot, sequence.computed = slot, computed
        self._computed[slot] = computed
        if self.limits.shares_prefixes:
            self._tree.insert(slot, tokens)
        if not sequence.started:
            sequence.cached_tokens = computed
        self.running.append(sequence)

    def _prefill(self, plan: Plan, share: Share, budget: int) -> None:
        prompts = [s for s in self.running if not s.decoding and (s.critical or share.others_prefill)]
        for sequence in sorted(prompts, key=lambda s: s.critical if share.others_first else s.rank):
            if budget <= 0:
                return
            wanted = min(sequence.rows_left, budget)
            self._evict_for(plan, wanted)
            n = min(wanted, self.cells.free)
            if n:
                self._put(plan, sequence, n)
                budget -= n

    def _put(self, plan: Plan, sequence: Sequence, n: int) -> None:
        self.cells.extend(sequence.slot, n)
        last = len(sequence.tokens) - 1
        plan.rows.extend(
            Row(sequence.tokens[i], i, sequence.slot, i == last)
            for i in range(sequence.computed, sequence.computed + n)
        )
        plan.parts.append((sequence, n))
        sequence.last_step = self._steps

    def _make_room(self, plan: Plan, *, for_: Sequence) -> bool:
        """One free cell for a running stream; False when it had to step back itself."""
        while self.cells.free == 0 and not self._evict_for(plan, 1):
            planned = {id(s) for s, _ in plan.parts}
            victim = max((s for s in reversed(self.running) if id(s) not in planned), key=lambda s: s.rank)
            self._preempt(plan, victim)
            if victim is for_:
                return False
        return for_.slot != UNPLACED

    def _preempt(self, plan: Plan, sequence: Sequence) -> None:
        """Back to the head of its class, with its text so far; its KV is computed again when there is room."""
        self.running.remove(sequence)
        self._free(plan, sequence.slot)
        sequence.slot, sequence.computed = UNPLACED, 0
        self._wait(sequence)
        self.preemptions += 1

    def _retain(self, plan: Plan, sequence: Sequence) -> None:
        tokens = np.array(sequence.tokens[: sequence.computed], dtype=np.int32)
        for slot, (older, _) in list(self._retained.items()):
            if len(older) <= len(tokens) and np.array_equal(older, tokens[: len(older)]):
                self._free(plan, slot)  # the new one holds all of it
        self._retained[sequence.slot] = (tokens, self.work_tokens)
        self._tree.insert(sequence.slot, tokens)

    def _forget_expensive(self, plan: Plan) -> None:
        while self._retained:
            slot, (_, used) = next(iter(self._retained.items()))
            if self.work_tokens - used <= (
                RETAIN_SAVED_FOR_WORK_TOKENS if slot in self._saved_slots else self._retain_for
            ):
                return
            self._dismiss(plan, slot)

    def _evict_for(self, plan: Plan, n_tokens: int) -> bool:
        """Frees retained sequences, least recently used first, until `n_tokens` cells are free."""
        while self.cells.free < n_tokens and self._retained:
            self._dismiss(plan, next(iter(self._retained)))
        return self.cells.free >= n_tokens

    def _dismiss(self, plan: Plan, slot: int) -> None:
        """A retained sequence leaves the cache, for host memory when that is worth it."""
        key, forgotten = self.archive.put(self._retained[slot][0])
        plan.operations += [Forget(old) for old in forgotten]
        if key is not None:
            plan.operations.append(Save(slot, key))
        self._free(plan, slot)

    def _free(self, plan: Plan, slot: int) -> None:
        self._retained.pop(slot, None)
        self._saved_slots.discard(slot)
        self._tree.remove(slot)
        self._computed.pop(slot, None)
        self.cells.truncate(slot, 0)
        self._free_slots.append(slot)
        plan.operations.append(Truncate(slot, 0))
