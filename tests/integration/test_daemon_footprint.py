"""What the daemon itself holds, without its worker, and what requests that share a prompt cost the engine."""

import asyncio
import re
from pathlib import Path

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import Daemon, chat_body

CHAT = "/v1/chat/completions"
REQUESTS, AT_ONCE = 200, 8
MEMORY_MIB = 150
SHARING, SYSTEM_TOKENS = 40, 1000


def memory_mib(pid: int, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


async def test_the_daemon_stays_small_over_many_requests(launch: Launch) -> None:
    daemon = launch().wait_ready()
    at_once = asyncio.Semaphore(AT_ONCE)
    async with daemon.async_client() as client:

        async def one(number: int) -> int:
            async with at_once:
                body = chat_body(f"Number {number}", max_tokens=1, stream=number % 2 == 0)
                return (await client.post(CHAT, json=body)).status_code

        statuses = await asyncio.gather(*(one(number) for number in range(REQUESTS)))
    assert set(statuses) == {200}
    resident, peak = memory_mib(daemon.pid, "VmRSS"), memory_mib(daemon.pid, "VmHWM")
    print(f"daemon without worker after {REQUESTS} requests: {resident:.0f} MiB, at most {peak:.0f} MiB")
    assert peak < MEMORY_MIB


async def test_forty_requests_with_one_system_prompt_compute_it_once(daemon: Daemon) -> None:
    words = "You answer questions about the river, the forest and the town in one short and friendly sentence. "
    async with daemon.async_client() as client:

        async def tokens(**what: object) -> list[int]:
            response = await client.post("/v1/tokenize", json={"model": "auto", **what})
            assert response.status_code == 200, response.text
            found: list[int] = response.json()["tokens"]
            return found

        per_repetition = len(await tokens(prompt=words))
        system = words * (SYSTEM_TOKENS // per_repetition)
        conversations = [
            [{"role": "system", "content": system}, {"role": "user", "content": f"{number}: what is the river called?"}]
            for number in range(SHARING)
        ]
        prompts = [await tokens(messages=messages) for messages in conversations]
        shared = next(n for n in range(len(prompts[0])) if len({tuple(p[: n + 1]) for p in prompts}) > 1)
        assert shared > SYSTEM_TOKENS * 0.9

        async def ask(messages: list[dict[str, str]]) -> tuple[int, int]:
            body = {"model": "auto", "messages": messages, "max_tokens": 1, "temperature": 0}
            response = await client.post(CHAT, json=body)
            assert response.status_code == 200, response.text
            usage = response.json()["usage"]
            return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

        before = daemon.engine()["counters"]["computed_prompt_tokens"]
        usages = await asyncio.gather(*(ask(messages) for messages in conversations))
        counted = daemon.engine()["counters"]["computed_prompt_tokens"] - before
    assert [count for count, _ in usages] == [len(prompt) for prompt in prompts]
    computed = sum(count - cached for count, cached in usages)
    least = shared + sum(len(prompt) - shared for prompt in prompts)
    print(f"prompt tokens: {sum(map(len, prompts))} asked, {computed} computed, {least} at the least")
    assert computed <= 1.1 * least
    assert counted <= 1.1 * least  # the engine's own count, not only what usage says
