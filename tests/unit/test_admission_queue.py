"""Who waits, who goes next, who has to go."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.admission.queue import AGED_S, SHED_AT_ONCE, Drain, Queue, Room
from appliance.admission.ticket import CLASSES, RANK, Ticket
from appliance.admission.work import Work
from appliance.protocol import Criticality

ROOM = Room(slots=4, others=4)


def ticket(
    criticality: Criticality = "normal",
    *,
    key: str = "k",
    task: str | None = None,
    sequences: int = 1,
    seconds: float = 1.0,
    at_s: float = 0.0,
) -> Ticket:
    return Ticket(criticality, key, task, Work(sequences, 10, 10, 0), seconds, at_s, at_s + 60)


def queue(*waiting: Ticket, most_waiting: int = 100, most_tokens: int = 10_000) -> Queue:
    one = Queue(most_waiting, most_tokens)
    for each in waiting:
        one.come(each)
    return one


def drained(one: Queue, room: Room, now_s: float = 0.0) -> list[Ticket]:
    """Everybody who may go now, in order."""
    went = []
    while (each := one.next(room, now_s)) is not None:
        one.start(each, now_s)
        went.append(each)
    return went


def test_the_more_critical_class_goes_first() -> None:
    sheddable, normal, critical = ticket("sheddable"), ticket("normal"), ticket("critical")
    assert drained(queue(sheddable, normal, critical), ROOM) == [critical, normal, sheddable]


def test_critical_work_may_fill_all_slots_whatever_else_runs() -> None:
    one = queue(*(ticket() for _ in range(4)))
    assert len(drained(one, ROOM)) == 4
    for _ in range(5):
        one.come(ticket("critical"))
    assert len(drained(one, ROOM)) == 4


def test_others_wait_where_room_is_kept_for_critical_work() -> None:
    one = queue(*(ticket() for _ in range(4)))
    assert len(drained(one, Room(slots=4, others=2))) == 2


def test_a_saturated_machine_lets_in_one_class_after_the_other() -> None:
    for saturation, classes in ((0.0, 3), (0.7, 2), (0.9, 1)):
        one = queue(ticket("critical"), ticket("normal"), ticket("sheddable"))
        assert len(drained(one, Room(4, 4, machine=saturation))) == classes


def test_an_idle_engine_takes_a_request_of_more_sequences_than_it_has_slots() -> None:
    for criticality in CLASSES:
        assert len(drained(queue(ticket(criticality, sequences=9)), ROOM)) == 1


def test_nobody_passes_a_large_request_of_its_class() -> None:
    one = queue(ticket(), ticket(sequences=4, key="a"), ticket(key="b"))
    assert len(drained(one, ROOM)) == 1


def test_keys_and_then_their_tasks_take_turns() -> None:
    flood = [ticket(key="a", task="1") for _ in range(4)]
    second, other = ticket(key="a", task="2"), ticket(key="b")
    order = []
    one = queue(*flood, second, other)
    while (each := one.next(ROOM, 0.0)) is not None:
        one.start(each, 0.0)
        order.append(each)
        one.leave(each)
        one.fairness.came(each)  # it asks again at once
    assert order.index(other) == 1
    assert order.index(second) == 2


def test_whoever_comes_late_has_saved_up_no_claim() -> None:
    old, new = ticket(key="old", seconds=100), ticket(key="new")
    one = queue(old)
    drained(one, ROOM)
    one.come(new)
    again = ticket(key="old")
    one.come(again)
    assert one.next(ROOM, 0.0) is new
    one.start(new, 0.0)
    one.come(ticket(key="new"))
    assert one.next(ROOM, 0.0) is again


def test_who_has_waited_long_goes_before_its_turn_one_at_a_time() -> None:
    busy = [ticket("critical", at_s=AGED_S) for _ in range(8)]
    old = [ticket("normal"), ticket("sheddable")]
    one = queue(*old, *busy)
    went = drained(one, ROOM, now_s=AGED_S)
    assert went[0] is old[0]
    assert old[1] not in went
    assert sum(t.criticality == "critical" for t in went) == 3  # the one that was let through keeps its slot
    one.leave(old[0])
    assert one.next(ROOM, AGED_S) is old[1]


@given(st.lists(st.tuples(st.sampled_from(CLASSES), st.floats(0.1, 5)), max_size=30), st.floats(0, 0.99))
def test_before_anybody_is_old_no_class_goes_before_a_better_one(
    coming: list[tuple[Criticality, float]], machine: float
) -> None:
    one = queue(*(ticket(name, seconds=seconds, key=str(i)) for i, (name, seconds) in enumerate(coming)))
    went = [RANK[t.criticality] for t in drained(one, Room(3, 3, machine=machine))]
    assert went == sorted(went)


@given(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=40), st.integers(1, 8))
def test_everybody_has_a_turn_in_the_end(coming: list[Criticality], slots: int) -> None:
    one = queue(*(ticket(name) for name in coming))
    served = 0
    while len(one) or one.running:
        served += len(drained(one, Room(slots, slots)))
        one.leave(one.running[0])
    assert served == len(coming)


def test_a_full_queue_says_so_and_less_critical_ones_take_no_place_in_it() -> None:
    one = queue(*(ticket("sheddable") for _ in range(3)), most_waiting=3)
    assert one.full(ticket("sheddable")) is not None
    assert one.full(ticket("normal")) is None


def test_a_queue_is_full_of_tokens_too_but_takes_one_of_any_size() -> None:
    assert queue(most_tokens=5).full(ticket()) is None
    assert queue(ticket(), most_tokens=25).full(ticket()) is not None


def test_the_newest_branches_are_shed_first_few_at_a_time_after_their_grace() -> None:
    branches = [ticket("sheddable") for _ in range(4)]
    normal = ticket("normal")
    one = queue(*branches, normal)
    for i, each in enumerate((normal, *branches)):
        one.start(each, float(i))
    assert one.to_shed(now_s=5.5, grace_s=2.0) == branches[2::-1][:SHED_AT_ONCE]
    assert one.to_shed(now_s=1.0, grace_s=2.0) == []


def test_a_wait_is_expected_from_what_goes_first_and_how_fast_it_goes() -> None:
    one = queue(ticket("critical", seconds=1), ticket("normal", seconds=2), ticket("sheddable", seconds=4))
    assert one.expected_wait_s(rank=1) == 3
    assert one.expected_wait_s(rank=2) == 7
    one.drain.rate = 0.5
    assert one.expected_wait_s(rank=1) == 6


def test_the_drain_follows_what_was_done_and_forgets_when_nothing_is_to_do() -> None:
    drain = Drain()
    for i in range(300):
        drain.observe(i * 0.1, done_s=i * 0.04, busy=True)
    assert 0.35 < drain.rate < 0.45
    for i in range(300, 600):
        drain.observe(i * 0.1, done_s=12.0, busy=False)
    assert drain.rate > 0.95
