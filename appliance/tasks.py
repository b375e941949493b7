"""The requests under way of each agent task, so that a whole task can be cancelled. Knows no HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from appliance.errors import Cancelled

_Name = tuple[str, str]  # whose task it is, and what its owner calls it


class Tasks:
    def __init__(self) -> None:
        self._under_way: dict[_Name, set[asyncio.Timeout]] = {}

    @asynccontextmanager
    async def part_of(self, key: str, task: str | None) -> AsyncIterator[None]:
        """For as long as a request of the task is worked on. Raises `Cancelled` inside when the task is."""
        if task is None:
            yield
            return
        name = (key, task)
        try:
            async with asyncio.timeout(None) as scope:
                self._under_way.setdefault(name, set()).add(scope)
                try:
                    yield
                finally:
                    scopes = self._under_way.get(name, set())
                    scopes.discard(scope)
                    if not scopes:
                        self._under_way.pop(name, None)
        except TimeoutError:
            if not scope.expired():
                raise
            raise Cancelled("The task of this request was cancelled.") from None

    def cancel(self, key: str, task: str) -> int:
        """Ends every request of the task that is under way. How many there were."""
        scopes = self._under_way.pop((key, task), set())  # those that are still ending are not ended again
        now_s = asyncio.get_running_loop().time()
        for scope in scopes:
            scope.reschedule(now_s)
        return len(scopes)
