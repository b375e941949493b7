"""Who has had the least: whose request goes next, of those that are equally critical.

Least attained service, between keys first and then between the tasks of a key; it counts in seconds of the engine. Who
comes anew starts with the least that anybody present has had, so that nobody saves up a claim. Pure.
"""

from collections import Counter
from collections.abc import Iterable

from appliance.admission.ticket import Ticket


class Fairness:
    def __init__(self) -> None:
        self._present: Counter[tuple[str, ...]] = Counter()  # tickets, waiting or in the engine
        self._attained_s: dict[tuple[str, ...], float] = {}

    def came(self, ticket: Ticket) -> None:
        for who, peers in _levels(ticket):
            if not self._present[who]:
                others = [s for other, s in self._attained_s.items() if len(other) == len(who) and other[:-1] == peers]
                self._attained_s[who] = min(others, default=0.0)
            self._present[who] += 1

    def left(self, ticket: Ticket) -> None:
        for who, _ in _levels(ticket):
            self._present[who] -= 1
            if not self._present[who]:
                del self._present[who], self._attained_s[who]

    def charge(self, ticket: Ticket, seconds: float) -> None:
        """What it was given; or less than nothing, when it took less than was charged."""
        for who, _ in _levels(ticket):
            self._attained_s[who] += seconds

    def next(self, waiting: Iterable[Ticket]) -> Ticket:
        """Of at least one; of those with an equal claim the first."""
        return min(waiting, key=self._claim)

    def _claim(self, ticket: Ticket) -> tuple[float, ...]:
        return tuple(self._attained_s[who] for who, _ in _levels(ticket))


def _levels(ticket: Ticket) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """(who, whose peers they are), the key first. A request without a task is one of a common task."""
    return ((ticket.key,), ()), ((ticket.key, ticket.task or ""), (ticket.key,))
