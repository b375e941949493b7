"""Cancelling what belongs to one agent task."""

import asyncio

import pytest

from appliance.errors import Cancelled
from appliance.tasks import Tasks


async def test_a_task_that_is_still_ending_is_not_cancelled_again() -> None:
    tasks, ended = Tasks(), asyncio.Event()

    async def slow_to_end() -> None:
        async with tasks.part_of("key", "task"):
            try:
                await asyncio.Event().wait()
            finally:
                await ended.wait()

    running = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    assert tasks.cancel("key", "task") == 1
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert tasks.cancel("key", "task") == 0
    ended.set()
    with pytest.raises(Cancelled):
        await running
