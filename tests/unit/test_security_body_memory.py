"""Bodies that are held at a time stay below one bound, and nothing is counted that is not held any more."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from appliance.errors import Overloaded
from appliance.security.body_memory import BodyMemory

MAX_BYTES = 100


class App:
    """Reads its body to the end, and then does as it is told."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self.end: Callable[[], object] = lambda: None
        self.may_end = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            self.read_bytes += len(message.get("body", b""))
            if not message.get("more_body", False):
                break
        await self.may_end.wait()
        self.end()


async def nothing_sent(message: Message) -> None:
    raise AssertionError(message)


def asked(memory: BodyMemory, *pieces: int, whole: bool = True) -> "asyncio.Task[None]":
    """A request whose body comes in pieces of so many bytes. Not whole: then the client is gone."""
    messages: list[Message] = [{"type": "http.request", "body": b"x" * size, "more_body": True} for size in pieces]
    messages.append({"type": "http.request", "body": b""} if whole else {"type": "http.disconnect"})

    async def receive() -> Message:
        await asyncio.sleep(0)
        return messages.pop(0)

    async def call() -> None:
        await memory({"type": "http"}, receive, nothing_sent)

    return asyncio.create_task(call())


async def turns(count: int = 50) -> None:
    """Of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def refused(memory: BodyMemory, *pieces: int) -> Overloaded:
    request = asked(memory, *pieces)
    await turns()
    assert request.done(), "it was taken"
    error = request.exception()
    assert isinstance(error, Overloaded)
    return error


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
def memory(app: App) -> BodyMemory:
    return BodyMemory(app, MAX_BYTES)


async def test_bodies_up_to_the_bound_are_held_and_one_more_byte_is_refused(app: App, memory: BodyMemory) -> None:
    first, second = asked(memory, 30, 30), asked(memory, 40)
    await turns()
    assert memory.held_bytes == MAX_BYTES
    error = await refused(memory, 1)
    assert error.retry_after_s == 1
    assert "server.max_held_body_bytes" in error.message
    assert memory.held_bytes == MAX_BYTES
    app.may_end.set()
    await asyncio.gather(first, second)
    assert memory.held_bytes == 0
    await asked(memory, MAX_BYTES)


async def test_a_body_counts_until_its_request_has_ended(app: App, memory: BodyMemory) -> None:
    request = asked(memory, 60)
    await turns()
    assert app.read_bytes == 60  # the application has it all, and is at work
    await refused(memory, 60)
    app.may_end.set()
    await request
    assert memory.held_bytes == 0


async def test_what_was_read_of_a_refused_body_is_given_back(memory: BodyMemory) -> None:
    await refused(memory, 60, 40, 1)
    assert memory.held_bytes == 0


async def test_a_client_that_leaves_a_fault_and_a_cancellation_give_all_of_it_back(
    app: App, memory: BodyMemory
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    left = asked(memory, 20, whole=False)
    cancelled = asked(memory, 30)
    await turns()
    assert memory.held_bytes == 50
    cancelled.cancel()
    await turns()
    assert memory.held_bytes == 20
    app.end = fail
    app.may_end.set()
    with pytest.raises(ZeroDivisionError):
        await left
    assert memory.held_bytes == 0


async def test_a_request_without_a_body_is_answered_while_all_is_taken(app: App, memory: BodyMemory) -> None:
    full = asked(memory, MAX_BYTES)
    await turns()
    bodiless = asked(memory)
    app.may_end.set()
    await asyncio.gather(full, bodiless)
