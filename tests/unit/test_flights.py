"""One generation serves everyone who asks the same: each hears all of it, and it lasts as long as one listens."""

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from appliance.errors import DeadlineExceeded, EngineCrashed
from appliance.exchange import Exchange
from appliance.flights import Flight, Flights
from appliance.protocol import Delta, Event, Finished, Started

FAR_S = float("inf")
EVENTS: list[Event] = [Started(0, 5, 0, 0.0), *(Delta(0, f"{i} ", 1) for i in range(20)), Finished(0, "stop", 20)]


class Source:
    """A generation that says what it is told to say."""

    def __init__(self) -> None:
        self.begun = 0
        self.ending = asyncio.Event()
        self.closed = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_close.set()
        self._next = asyncio.Queue[Event | BaseException | None]()

    def says(self, *events: Event | BaseException) -> None:
        for event in events:
            self._next.put_nowait(event)

    def ends(self) -> None:
        self._next.put_nowait(None)

    async def events(self) -> AsyncGenerator[Event, None]:
        self.begun += 1
        try:
            while (event := await self._next.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.ending.set()
            await self.may_close.wait()
            self.closed.set()


@pytest.fixture
def flights() -> Flights:
    return Flights()


@pytest.fixture
def source() -> Source:
    return Source()


def begin(flights: Flights, source: Source, key: Any = "key") -> Flight:
    return flights.begin(key, Exchange("r1", 0.0), source.events)


async def all_of(flights: Flights, flight: Flight, deadline_s: float = FAR_S) -> list[Event]:
    return [event async for event in flights.listen(flight, deadline_s)]


async def turn() -> None:
    """Until all that was ready has run."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()


async def landed(flights: Flights, flight: Flight) -> None:
    """Nothing of it is left."""
    assert flight.task is not None
    await asyncio.wait({flight.task})
    await turn()
    assert flight.listeners == 0
    assert flights.find(flight.key) is None
    assert flights._flights == {}


# Hearing


async def test_one_generation_is_heard_by_all_from_its_first_event_to_its_last(
    flights: Flights, source: Source
) -> None:
    flight = begin(flights, source)
    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(all_of(flights, flight)) for _ in range(50)]
        for event in EVENTS:
            source.says(event)
            await turn()
        source.ends()
    assert [task.result() for task in listening] == [EVENTS] * 50
    assert source.begun == 1
    assert source.closed.is_set()
    await landed(flights, flight)


async def test_who_comes_late_hears_what_was_said_before(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(*EVENTS[:5])
    first = flights.listen(flight, FAR_S)
    heard = [await anext(first) for _ in range(5)]
    joined = flights.find("key")
    assert joined is flight
    second = flights.listen(joined, FAR_S)
    assert [await anext(second) for _ in range(5)] == heard == EVENTS[:5]
    source.says(*EVENTS[5:])
    source.ends()
    assert [event async for event in second] == [event async for event in first] == EVENTS[5:]
    assert source.begun == 1
    await landed(flights, flight)


async def test_events_are_told_as_they_come(flights: Flights, source: Source) -> None:
    listening = flights.listen(begin(flights, source), FAR_S)
    for event in EVENTS:
        source.says(event)
        assert await anext(listening) == event  # while the generation waits for its next
    source.ends()
    assert [event async for event in listening] == []


async def test_a_slow_listener_loses_nothing_and_holds_up_nobody(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    slow = flights.listen(flight, FAR_S)
    source.says(*EVENTS)
    source.ends()
    heard = [await anext(slow)]
    assert await all_of(flights, flight) == EVENTS
    assert flight.ended
    heard += [event async for event in slow]
    assert heard == EVENTS
    await landed(flights, flight)


async def test_a_generation_without_events_is_heard_to_its_end(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.ends()
    assert await all_of(flights, flight) == []
    await landed(flights, flight)


async def test_a_flight_knows_whose_request_began_it(flights: Flights, source: Source) -> None:
    exchange = Exchange("r9", 0.0)
    flight = flights.begin("key", exchange, source.events)
    found = flights.find("key")
    assert found is not None
    assert found.exchange is exchange
    source.ends()
    await all_of(flights, flight)


# Keys


async def test_two_keys_are_two_flights(flights: Flights) -> None:
    sources = {key: Source() for key in (("a", "any"), ("a", "local-only"), "b")}
    found = {key: begin(flights, source, key) for key, source in sources.items()}
    for i, (key, flight) in enumerate(found.items()):
        assert flights.find(key) is flight
        sources[key].says(EVENTS[i])
        sources[key].ends()
        assert await all_of(flights, flight) == [EVENTS[i]]
    assert flights.find("c") is None
    for flight in found.values():
        assert flight.task is not None
        await asyncio.wait({flight.task})
    await turn()
    assert flights._flights == {}


async def test_a_flight_that_has_ended_is_joined_by_nobody(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(*EVENTS)
    source.ends()
    listening = flights.listen(flight, FAR_S)
    while not flight.ended:
        await anext(listening)
    assert flights.find("key") is None  # though one still listens
    later = Source()
    next_flight = begin(flights, later)
    assert next_flight is not flight
    await listening.aclose()
    await turn()
    assert flights.find("key") is next_flight
    later.ends()
    await all_of(flights, next_flight)
    await landed(flights, next_flight)


# Leaving


async def test_who_leaves_ends_it_for_nobody_else(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(EVENTS[0])
    first, second, third = (flights.listen(flight, FAR_S) for _ in range(3))
    for listening in (first, second, third):
        await anext(listening)
    await first.aclose()  # the one that began it
    source.says(EVENTS[1])
    assert await anext(second) == await anext(third) == EVENTS[1]
    await third.aclose()
    assert flights.find("key") is flight
    assert not source.closed.is_set()
    source.says(*EVENTS[2:])
    source.ends()
    assert [event async for event in second] == EVENTS[2:]
    await landed(flights, flight)


async def test_the_last_to_leave_ends_it_and_has_the_source_closed(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(EVENTS[0])
    first, second = (flights.listen(flight, FAR_S) for _ in range(2))
    for listening in (first, second):
        await anext(listening)
    await first.aclose()
    assert not source.ending.is_set()
    await second.aclose()
    assert source.closed.is_set()  # by now, not at some later time
    await landed(flights, flight)


async def test_a_listener_that_is_cancelled_has_left(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    tasks = [asyncio.create_task(all_of(flights, flight)) for _ in range(3)]
    await turn()
    assert flight.listeners == 3
    for left, task in zip((2, 1, 0), tasks, strict=True):
        assert not source.ending.is_set()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert flight.listeners == left
    await source.closed.wait()
    await landed(flights, flight)


async def test_who_leaves_before_the_first_event_ends_it_too(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    task = asyncio.create_task(all_of(flights, flight))
    await turn()
    await turn()
    assert source.begun == 1
    task.cancel()
    await asyncio.wait({task})
    assert source.closed.is_set()
    await landed(flights, flight)


async def test_nobody_joins_what_is_being_ended(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.may_close.clear()
    source.says(EVENTS[0])
    listening = flights.listen(flight, FAR_S)
    await anext(listening)
    leaving = asyncio.create_task(listening.aclose())
    await source.ending.wait()
    assert flights.find("key") is None
    later = Source()
    another = begin(flights, later)
    later.says(*EVENTS)
    heard = flights.listen(another, FAR_S)
    assert await anext(heard) == EVENTS[0]
    source.may_close.set()
    await leaving
    await turn()
    assert flights.find("key") is another  # the end of the one before is not its end
    later.ends()
    assert [event async for event in heard] == EVENTS[1:]
    await landed(flights, another)


async def test_a_listener_who_is_cancelled_twice_still_leaves_nothing(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.may_close.clear()
    task = asyncio.create_task(all_of(flights, flight))
    await turn()
    await turn()
    task.cancel()
    await source.ending.wait()
    task.cancel()
    await asyncio.wait({task})
    source.may_close.set()
    await landed(flights, flight)


async def test_who_leaves_after_the_end_has_nothing_to_end(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(*EVENTS)
    source.ends()
    listening = flights.listen(flight, FAR_S)
    await anext(listening)
    await landed_but_for_one(flights, flight)
    await listening.aclose()
    assert flight.task is not None
    assert not flight.task.cancelled()
    await landed(flights, flight)


async def landed_but_for_one(flights: Flights, flight: Flight) -> None:
    assert flight.task is not None
    await asyncio.wait({flight.task})
    await turn()
    assert flight.listeners == 1
    assert flights._flights == {}


# What goes wrong


async def test_an_error_reaches_everyone_after_what_was_said_before_it(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    crash = EngineCrashed("It crashed.")
    source.says(*EVENTS[:3])
    listening = [flights.listen(flight, FAR_S) for _ in range(3)]
    for each in listening:
        assert await anext(each) == EVENTS[0]
    source.says(crash)
    for each in listening:
        assert [await anext(each) for _ in range(2)] == EVENTS[1:3]
        with pytest.raises(EngineCrashed) as caught:
            await anext(each)
        assert caught.value is crash
    assert source.closed.is_set()
    await landed(flights, flight)


@pytest.mark.parametrize("error", [EngineCrashed("It crashed."), OSError("It broke."), DeadlineExceeded("Its own.")])
async def test_an_error_before_the_first_event_does_too(flights: Flights, source: Source, error: Exception) -> None:
    flight = begin(flights, source)
    tasks = [asyncio.create_task(all_of(flights, flight)) for _ in range(3)]
    source.says(error)
    assert await asyncio.gather(*tasks, return_exceptions=True) == [error] * 3
    await landed(flights, flight)


async def test_a_generation_that_cannot_begin_is_an_error_like_any(flights: Flights) -> None:
    def start() -> AsyncGenerator[Event, None]:
        raise EngineCrashed("There is none.")

    flight = flights.begin("key", Exchange("r1", 0.0), start)
    with pytest.raises(EngineCrashed):
        await all_of(flights, flight)
    await landed(flights, flight)


async def test_an_error_while_the_source_is_closed_is_not_kept_from_the_listeners(flights: Flights) -> None:
    async def start() -> AsyncGenerator[Event, None]:
        try:
            yield EVENTS[0]
        finally:
            raise EngineCrashed("It could not be closed.")

    with pytest.raises(EngineCrashed):
        await all_of(flights, flights.begin("key", Exchange("r1", 0.0), start))


async def test_a_generation_that_was_cancelled_is_not_taken_for_one_that_came_to_its_end(
    flights: Flights, source: Source
) -> None:
    flight = begin(flights, source)
    source.says(*EVENTS[:3], asyncio.CancelledError())
    heard: list[Event] = []
    with pytest.raises((asyncio.CancelledError, Exception)):  # noqa: PT012 - what was heard before counts
        async for event in flights.listen(flight, FAR_S):
            heard.append(event)  # noqa: PERF401 - what was heard before the error counts
    assert heard == EVENTS[:3]


async def test_after_an_error_the_next_begins_anew(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(EngineCrashed("It crashed."))
    with pytest.raises(EngineCrashed):
        await all_of(flights, flight)
    assert flights.find("key") is None
    later = Source()
    later.says(*EVENTS)
    later.ends()
    assert await all_of(flights, begin(flights, later)) == EVENTS


# Deadlines


async def test_a_deadline_ends_one_listener_only(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(EVENTS[0])
    hurried = flights.listen(flight, asyncio.get_running_loop().time())
    patient = flights.listen(flight, FAR_S)
    assert await anext(patient) == await anext(hurried) == EVENTS[0]
    with pytest.raises(DeadlineExceeded):
        await anext(hurried)
    assert flight.listeners == 1
    assert flights.find("key") is flight
    source.says(*EVENTS[1:])
    source.ends()
    assert [event async for event in patient] == EVENTS[1:]
    await landed(flights, flight)


async def test_the_deadline_of_the_only_listener_ends_the_generation(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(EVENTS[0])
    listening = flights.listen(flight, asyncio.get_running_loop().time())
    with pytest.raises(DeadlineExceeded):  # noqa: PT012 - whichever comes to it
        while True:
            await anext(listening)
    assert source.closed.is_set()
    await landed(flights, flight)


async def test_a_whole_answer_is_heard_though_the_deadline_has_passed_since(flights: Flights, source: Source) -> None:
    flight = begin(flights, source)
    source.says(*EVENTS)
    source.ends()
    assert await all_of(flights, flight) == EVENTS
    assert await all_of(flights, flight, asyncio.get_running_loop().time()) == EVENTS


# All of it at once


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_listeners_do_each_hears_the_beginning_of_it_in_order(
    flights: Flights, source: Source, seed: int
) -> None:
    print("seed", seed)
    draw = random.Random(seed)
    flight = begin(flights, source)
    listening = {flights.listen(flight, FAR_S): list[Event]()}
    source.says(EVENTS[0])
    said = 1
    for each, heard in listening.items():
        heard.append(await anext(each))
    for _ in range(200):
        match draw.choice(("say", "hear", "hear", "hear", "join", "leave")):
            case "say" if said < len(EVENTS):
                source.says(EVENTS[said])
                said += 1
                await turn()
            case "hear":
                each = draw.choice(list(listening))
                if len(listening[each]) < said:
                    listening[each].append(await anext(each))
            case "join":
                each = flights.listen(flight, FAR_S)
                listening[each] = [await anext(each)]
            case "leave" if len(listening) > 1:
                each = draw.choice(list(listening))
                del listening[each]
                await each.aclose()
        assert all(heard == EVENTS[: len(heard)] for heard in listening.values())
        assert flight.listeners == len(listening)
        assert source.begun == 1
        assert not source.ending.is_set()
    for each in list(listening):
        await each.aclose()
    assert source.closed.is_set()
    await landed(flights, flight)
