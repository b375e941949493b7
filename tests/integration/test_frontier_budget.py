"""What the frontier may cost: budgets hold under load and across restarts, and the ledger agrees with the bill."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.daemon_fixture import Daemon, appliance, wait_until
from tests.integration.frontier_fixture import (
    ANSWER,
    HELLO,
    UNPRICED,
    ask,
    attempts,
    frontier_daemon,
    ledger,
    openai_client,
    provider,
    spent_usd,
)
from tests.integration.stand_in_fixture import StandIn

# An answer of 45 words to a prompt of six tokens costs 96 millionths of a dollar. What is set aside for it is more: all
# of `MAX_TOKENS`, and a token for each byte of the request.
WORDS = "word " * 45
EACH_USD = 96e-6
MAX_TOKENS = 50
BURST = 100
DAY_USD = 0.002
SYNTHESIZE = {"x-appliance-step": "synthesize"}


@pytest.fixture(scope="module")
def running() -> Iterator[StandIn]:
    stand_in = StandIn()
    try:
        yield stand_in
    finally:
        stand_in.close()


@pytest.fixture
def stand_in(running: StandIn) -> StandIn:
    running.reset()
    running.control(text=WORDS.strip())
    return running


def bill_usd(stand_in: StandIn) -> float:
    return float(stand_in.journal()["billed_usd"])


def new_key(daemon: Daemon, name: str, *options: str) -> str:
    """The secret of a new key."""
    made = appliance("--state-dir", daemon.state_dir, "keys", "create", "--name", name, *options, home=daemon.home)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


async def burst(daemon: Daemon, count: int) -> list[tuple[int, str | None, str | None]]:
    """(status, code, Retry-After) of requests that all come at once, every other one streamed."""
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        create: Any = client.chat.completions.with_raw_response.create

        async def one(number: int) -> tuple[int, str | None, str | None]:
            is_streamed = number % 2 == 1
            try:
                raw = await create(model="frontier", messages=HELLO, max_tokens=MAX_TOKENS, stream=is_streamed)
                if is_streamed:
                    async for _ in raw.parse():
                        pass
            except openai.APIStatusError as error:
                return error.status_code, error.code, error.response.headers.get("retry-after")
            return raw.status_code, None, None

        return await asyncio.gather(*map(one, range(count)))


def books_agree(daemon: Daemon, stand_in: StandIn) -> None:
    """The ledger, the status and the bill say the same."""
    asked = len(stand_in.journal()["requests"])
    wait_until(lambda: len([row for row in ledger(daemon) if row.route == "frontier"]) == asked, "all is written down")
    assert spent_usd(ledger(daemon)) == pytest.approx(bill_usd(stand_in), abs=1e-9)
    frontier = daemon.status()["frontier"]
    assert frontier["spent_day_usd"] == pytest.approx(bill_usd(stand_in), abs=1e-9)
    assert frontier["reserved_usd"] == 0


def test_a_burst_spends_no_more_than_there_is_and_a_restart_forgets_nothing(
    model_path: Path, tmp_path: Path, stand_in: StandIn
) -> None:
    stand_in.control(word_delay_s=0.002)
    with frontier_daemon(model_path, tmp_path, [provider(stand_in)], {"economics.day_budget_usd": DAY_USD}) as daemon:
        counts: Counter[int] = Counter()
        for _ in range(2):
            for status, code, retry_after in asyncio.run(burst(daemon, BURST)):
                counts[status] += 1
                assert (status, code) in {(200, None), (429, "budget_exceeded")}
                assert status == 200 or 1 <= int(retry_after or 0) <= 86_400
            assert bill_usd(stand_in) <= DAY_USD
        books_agree(daemon, stand_in)
        assert counts[200] >= 5
        assert counts[429] >= BURST
        assert bill_usd(stand_in) == pytest.approx(counts[200] * EACH_USD, abs=1e-9)
        with openai_client(daemon) as client:
            while (outcome := ask(client, max_tokens=MAX_TOKENS)).status == 200:
                assert bill_usd(stand_in) <= DAY_USD
        assert (outcome.status, outcome.code) == (429, "budget_exceeded")
        books_agree(daemon, stand_in)
        spent, asked = bill_usd(stand_in), len(stand_in.journal()["requests"])

    # The month is still the same, and what it has cost is known.
    settings = {"economics.month_budget_usd": DAY_USD, "economics.at_limit": "local"}
    with frontier_daemon(model_path, tmp_path, [provider(stand_in)], settings) as daemon:
        frontier = daemon.status()["frontier"]
        assert frontier["spent_month_usd"] == pytest.approx(spent, abs=1e-9)
        with openai_client(daemon) as client:
            for stream in (False, True):
                here = ask(client, model="auto", headers=SYNTHESIZE, max_tokens=MAX_TOKENS, stream=stream)
                assert (here.status, here.route, here.reason) == (200, "local", "budget")
                assert here.headers["x-appliance-degraded"] == "true"
                by_name = ask(client, max_tokens=MAX_TOKENS, stream=stream)
                assert (by_name.status, by_name.code) == (429, "budget_exceeded")
                assert 1 <= int(by_name.headers["retry-after"]) <= 31 * 86_400
            assert len(stand_in.journal()["requests"]) == asked
            cheap = ask(client, max_tokens=5)  # there is something left, and this fits in
            assert (cheap.status, cheap.finish) == (200, "length")
        books_agree(daemon, stand_in)


@pytest.fixture(scope="module")
def with_key_budget(
    running: StandIn, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Daemon, str]]:
    """And the secret of a key for its owner."""
    settings = {"economics.key_day_budget_usd": DAY_USD}
    providers = [
        provider(running, attempts=1),
        provider(running, "unpriced", model=UNPRICED, cannot=["tools"], also=["top_k"]),
    ]
    with frontier_daemon(model_path, tmp_path_factory.mktemp("keys"), providers, settings) as daemon:
        yield daemon, new_key(daemon, "owner", "--scope", "admin")


def test_a_key_spends_its_own_budget_and_no_other_s(with_key_budget: tuple[Daemon, str], stand_in: StandIn) -> None:
    daemon, _ = with_key_budget
    first, second = new_key(daemon, "first"), new_key(daemon, "second")
    with openai_client(daemon, first) as client:
        answers = 0
        while (outcome := ask(client, max_tokens=MAX_TOKENS)).status == 200:
            answers += 1
        assert (outcome.status, outcome.code) == (429, "budget_exceeded")
        assert "key" in outcome.message
        assert bill_usd(stand_in) == pytest.approx(answers * EACH_USD)
        assert bill_usd(stand_in) <= DAY_USD
    with openai_client(daemon, second) as client:
        outcome = ask(client, max_tokens=MAX_TOKENS)
        assert outcome.status == 200
    (row,) = attempts(daemon, outcome, 1)
    keys = Counter(attempt.key for attempt in ledger(daemon))
    assert row.key is not None
    assert keys[row.key] == 1
    assert answers in keys.values()


def test_a_model_without_a_price_is_not_asked_where_there_is_a_budget(
    with_key_budget: tuple[Daemon, str], stand_in: StandIn
) -> None:
    daemon, _ = with_key_budget
    with openai_client(daemon, new_key(daemon, "third")) as client:
        outcome = ask(client, marks={"top_k": 3})  # which only the unpriced one knows
    assert (outcome.status, outcome.code) == (502, "frontier_error")
    assert "price" in outcome.message
    assert stand_in.journal()["requests"] == []


def test_an_answer_that_outgrows_what_was_set_aside_is_cut(
    with_key_budget: tuple[Daemon, str], stand_in: StandIn
) -> None:
    daemon, _ = with_key_budget
    stand_in.fault("endless")
    with openai_client(daemon, new_key(daemon, "fourth")) as client:
        outcome = ask(client, stream=True, max_tokens=10, headers={"x-appliance-timeout": "2"})
    assert outcome.text.startswith("word")
    assert bill_usd(stand_in) <= DAY_USD


# --- Without a budget ---


@pytest.fixture(scope="module")
def daemon(running: StandIn, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    providers = [
        provider(running, cannot=["top_k"]),
        provider(running, "claude", "anthropic", also=["min_p"]),
        provider(running, "unpriced", model=UNPRICED, also=["min_tokens"]),
    ]
    with frontier_daemon(model_path, tmp_path_factory.mktemp("free"), providers) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai_client(daemon) as client:
        yield client


def test_a_cost_that_nobody_knows_is_not_shown(client: openai.OpenAI, daemon: Daemon, stand_in: StandIn) -> None:
    stand_in.control(text=ANSWER)
    for stream in (False, True):
        outcome = ask(client, stream=stream, marks={"min_tokens": 1})
        assert (outcome.status, outcome.text) == (200, ANSWER)
        assert outcome.headers["x-appliance-model"] == UNPRICED
        assert "x-appliance-cost-usd" not in outcome.headers
        assert outcome.usage is not None
        assert "cost_usd" not in outcome.usage
        (row,) = attempts(daemon, outcome, 1)
        assert (row.cost_usd, row.flags, row.outcome) == (None, "price-unknown", "completed")
        assert row.completion_tokens == 5


@pytest.mark.parametrize("marks", [None, {"min_p": 0.01}], ids=["openai", "anthropic"])
def test_a_cost_is_shown_to_the_last_digit(
    client: openai.OpenAI, daemon: Daemon, stand_in: StandIn, marks: dict[str, object] | None
) -> None:
    stand_in.control(text=None, cached=4, reasoning="Let me think")
    for stream in (False, True):
        before = bill_usd(stand_in)
        outcome = ask(client, stream=stream, marks=marks)
        cost_usd = (2 * 1.0 + 4 * 0.1 + 8 * 2.0) / 1e6
        assert bill_usd(stand_in) - before == pytest.approx(cost_usd, abs=1e-9)
        assert outcome.usage is not None
        assert outcome.usage["prompt_tokens_details"] == {"cached_tokens": 4}
        assert outcome.usage["completion_tokens_details"] == {"reasoning_tokens": 3}
        assert (outcome.usage["prompt_tokens"], outcome.usage["completion_tokens"]) == (6, 8)
        assert outcome.usage["cost_usd"] == pytest.approx(cost_usd, abs=1e-9)
        if not stream:
            assert float(outcome.headers["x-appliance-cost-usd"]) == pytest.approx(cost_usd, abs=1e-8)
        (row,) = attempts(daemon, outcome, 1)
        assert row.cost_usd == pytest.approx(cost_usd, abs=1e-9)


def test_all_that_was_spent_is_in_the_status_and_the_metrics(
    client: openai.OpenAI, daemon: Daemon, stand_in: StandIn
) -> None:
    def totals() -> tuple[float, float]:
        with daemon.client() as raw:
            lines = raw.get("/metrics").text.splitlines()
        costs = [
            float(line.rpartition(" ")[2]) for line in lines if line.startswith("appliance_frontier_cost_usd_total{")
        ]
        return float(daemon.status()["frontier"]["spent_day_usd"]), sum(costs)

    before = totals()
    for _ in range(3):
        assert ask(client).status == 200
    assert [now - then for now, then in zip(totals(), before, strict=True)] == pytest.approx([3 * EACH_USD] * 2)
