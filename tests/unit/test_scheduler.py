"""The scheduler's plans, without any backend: an exact mirror of the cache, and first come, first served."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.protocol import Sampling, Stopping
from runtimes.contracts import Row
from runtimes.engine.batching import Share
from runtimes.engine.sampler import Sampler
from runtimes.engine.scheduler import SHARE_AT_LEAST_TOKENS, Fork, Limits, Operation, Plan, Scheduler, Truncate
from runtimes.engine.sequence import UNPLACED, Job, Sequence
from runtimes.engine.stop_matcher import StopMatcher

CONTEXT = 90
KV = 120
SLOTS = 3


def sequence(name: str, tokens: list[int], *, grows: int = 20) -> Sequence:
    request = Job(name, tuple(tokens), Sampling(), Stopping())
    sampler = Sampler(Sampling(), 300, 1, np.array(tokens, dtype=np.int32), ())
    length = min(CONTEXT, len(tokens) + grows)
    return Sequence(request, 0, sampler, StopMatcher(()), 0.0, list(tokens), length)


class Cache:
    """What a backend would hold, told only by the plans: (sequence, position) to a cell of one token."""

    def __init__(self) -> None:
        self.held: dict[int, list[tuple[int, int]]] = {}  # by slot: (token, cell)
        self.next_cell = 0

    @property
    def used(self) -> int:
        return len({cell for held in self.held.values() for _, cell in held})

    def carry_out(self, operations: list[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Truncate):
                self.held[operation.sequence] = self.held.get(operation.sequence, [])[: operation.n_tokens]
            else:
                assert isinstance(operation, Fork)
                assert not self.held.get(operation.target)
                assert len(self.held[operation.source]) >= operation.n_tokens > 0
                self.held[operation.target] = self.held[operation.source][: operation.n_tokens]

    def compute(self, rows: list[Row]) -> None:
        for row in rows:
            held = self.held.setdefault(row.sequence, [])
            assert row.position == len(held)
            held.append((row.token, self.next_cell))
            self.next_cell += 1
        assert self.used <= KV


class SchedulerMachine(RuleBasedStateMachine):
    """Jobs come, grow, end, are cancelled, and forwards are refused, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(Limits(SLOTS, SLOTS + 2, KV))
        self.cache = Cache()
        self.alive: list[Sequence] = []

    @rule(
        prefix=st.sampled_from([0, 0, 10, SHARE_AT_LEAST_TOKENS, 40]),
        kind=st.integers(1, 2),
        rest=st.lists(st.integers(0, 3), min_size=1, max_size=40),
        grows=st.integers(1, 60),
    )
    def add(self, prefix: int, kind: int, rest: list[int], grows: int) -> None:
        new = sequence(f"s{len(self.alive)}", [kind] * prefix + rest, grows=grows)
        self.alive.append(new)
        self.scheduler.add(new)

    def plan(self, budget: int) -> Plan:
        plan = self.scheduler.schedule(Share(budget))
        self.cache.carry_out(plan.operations)
        assert len(plan.rows) - plan.decode_rows <= budget
        assert len(plan.rows) == sum(n for _, n in plan.parts)
        assert sum(row.logits for row in plan.rows) == len(plan.sampled)
        assert plan.rows or not self.alive, "there is work, and nothing was planned"
        return plan

    @rule(budget=st.integers(1, 64))
    def step(self, budget: int) -> None:
        plan = self.plan(budget)
        self.cache.compute(plan.rows)
        sampled = plan.sampled
        self.scheduler.commit(plan)
        for grown in sampled:
            grown.tokens.append(7)
            if len(grown.tokens) >= grown.max_length:
                self.end(grown)

    @rule(budget=st.integers(1, 64))
    def refused_step(self, budget: int) -> None:
        plan = self.plan(budget)
        if plan.rows:
            self.cache.carry_out(self.scheduler.undo(plan))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.end(self.alive[data.draw(st.integers(0, len(self.alive) - 1))])

    def end(self, ended: Sequence) -> None:
        self.alive.remove(ended)
        self.cache.carry_out(self.scheduler.finish([ended]))
        assert ended.slot == UNPLACED

    @invariant()
    def mirrors_the_cache(self) -> None:
        assert self.scheduler.cells.used == self.cache.used

    @invariant()
    def every_sequence_holds_its_own_tokens(self) -> None:
        for running in self.scheduler.running:
            tokens = [token for token, _ in self.cache.held.get(running.slot, [])]
            assert tokens == running.tokens[: running.computed]

    @invariant()
    def everyone_is_running_or_waiting_once(self) -> None:
        placed = [*self.scheduler.running, *self.scheduler.waiting]
        assert {id(s) for s in placed} == {id(s) for s in self.alive}
        assert len(placed) == len(self.alive)
        assert len(self.scheduler.running) <= SLOTS
        slots = [s.slot for s in self.scheduler.running]
        assert len(set(slots)) == len(slots)
        assert all(s.slot == UNPLACED for s in self.scheduler.waiting)

    def teardown(self) -> None:
        """Whatever happened, what is left runs to its end."""
        for _ in range(2_000):
            if not self.alive:
                return
            self.step(16)
        raise AssertionError("the scheduler makes no progress")


SchedulerMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_any_order_of_events_keeps_the_mirror_exact_and_everyone_served = SchedulerMachine.TestCase


def scheduler(kv_tokens: int = 1000, slots: int = 4) -> Scheduler:
    return Scheduler(Limits(slots, slots + 4, kv_tokens))


def test_a_prompt_is_cut_into_chunks_of_the_budget() -> None:
    one = scheduler()
    one.add(sequence("a", [1] * 50))
    sizes = []
    for _ in range(3):
        plan = one.schedule(Share(20))
        sizes.append(len(plan.rows))
        assert [row.logits for row in plan.rows[:-1]] == [False] * (len(plan.rows) - 1)
        one.commit(plan)
    assert sizes == [20, 20, 10]
    assert plan.rows[-1].logits


def test_the_oldest_prompt_is_served_first() -> None:
    one = scheduler()
    one.add(sequence("a", [1] * 30))
    one.add(sequence("b", [2] * 30))
    plan = one.schedule(Share(40))
    assert [(part.job.id, n) for part, n in plan.parts] == [("a", 30), ("b", 10)]


def test_a_prompt_waits_for_a_prefix_that_is_being_computed() -> None:
    one = scheduler()
    one.add(sequence("a", [1] * 60 + [2]))
    one.add(sequence("b", [1] * 60 + [3]))
    one.add(sequence("c", [5] * 10))
    one.commit(plan := one.schedule(Share(30)))
    assert [part.job.id for part, _ in plan.parts] == ["a"]
    assert [s.job.id for s in one.running] == ["a", "c"]
    one.commit(one.schedule(Share(100)))
    plan = one.schedule(Share(100))
    assert any(isinstance(operation, Fork) and operation.n_tokens == 60 for operation in plan.operations)
    assert next(row for row in plan.rows if row.token == 3).position == 60


def test_nobody_passes_one_that_waits_for_room() -> None:
    one = scheduler(kv_tokens=100)
    for name, tokens in (("a", [1] * 50), ("b", [2] * 80), ("c", [3])):
        one.add(sequence(name, tokens))
    one.schedule(Share(200))
    assert [s.job.id for s in one.running] == ["a"]
    assert [s.job.id for s in one.waiting] == ["b", "c"]


def test_one_token_of_a_known_prompt_is_always_computed() -> None:
    """Its logits are wanted, and logits are not kept."""
    one = scheduler()
    one.add(first := sequence("a", [1] * 40))
    one.commit(one.schedule(Share(100)))
    first.tokens.append(9)
    one.finish([first])
    one.add(sequence("b", [1] * 40))
    plan = one.schedule(Share(100))
    assert [(row.position, row.logits) for row in plan.rows] == [(39, True)]
