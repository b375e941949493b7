"""Single flight: identical requests at the same time are answered by one generation. Knows events only."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing
from dataclasses import dataclass, field

from appliance.errors import DeadlineExceeded, InternalError
from appliance.exchange import Exchange
from appliance.protocol import Event

Start = Callable[[], AsyncGenerator[Event, None]]


@dataclass(slots=True, eq=False)
class Flight:
    """One generation, for everyone who listens. It goes on as long as somebody does."""

    key: Hashable
    exchange: Exchange  # of the request that began it
    events: list[Event] = field(default_factory=list)
    ended: bool = False
    error: Exception | None = None
    listeners: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def run(self, start: Start) -> None:
        try:
            async with aclosing(start()) as events:
                async for event in events:
                    self.events.append(event)
                    self._tell()
            self.end(None)
        except Exception as error:  # noqa: BLE001 - it is the listeners' to handle
            self.end(error)

    def end(self, error: Exception | None) -> None:
        """There is no more to hear."""
        self.error, self.ended = error, True
        self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class Flights:
    def __init__(self) -> None:
        self._flights: dict[Hashable, Flight] = {}

    def find(self, key: Hashable) -> Flight | None:
        """One that can still be joined."""
        flight = self._flights.get(key)
        return flight if flight is not None and not flight.ended else None

    def begin(self, key: Hashable, exchange: Exchange, start: Start) -> Flight:
        flight = Flight(key, exchange)
        self._flights[key] = flight
        flight.task = asyncio.create_task(flight.run(start))
        flight.task.add_done_callback(lambda _: self._forget(flight))
        return flight

    async def listen(self, flight: Flight, deadline_s: float) -> AsyncGenerator[Event, None]:
        """All of its events, from the first. Raises what ended it, and `DeadlineExceeded` (`deadline_s`: the event
        loop's time). Whoever stops listening ends it for nobody else."""
        flight.listeners += 1
        heard = 0
        try:
            while True:
                while heard < len(flight.events):
                    heard += 1
                    yield flight.events[heard - 1]
                if flight.ended:
                    break
                try:
                    async with asyncio.timeout_at(deadline_s):
                        await flight.news.wait()
                except TimeoutError:
                    raise DeadlineExceeded("The deadline of the request has passed.") from None
            if flight.error is not None:
                raise flight.error
        finally:
            flight.listeners -= 1
            if not flight.listeners and flight.task is not None and not flight.ended:
                self._forget(flight)  # nobody is to join what is being ended
                flight.task.cancel()
                await asyncio.gather(flight.task, return_exceptions=True)

    def _forget(self, flight: Flight) -> None:
        if flight.task is not None and flight.task.done() and not flight.ended:  # it was cancelled
            flight.end(InternalError("The generation was ended."))
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
