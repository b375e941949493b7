"""Answers of a frontier model that the cache gives again."""

from pathlib import Path

from tests.integration.frontier_fixture import Outcome, ask, frontier_daemon, openai_client, provider
from tests.integration.stand_in_fixture import StandIn

QUESTION = {"role": "user", "content": "Who are you?"}
SYNTHESIZE = {"x-appliance-step": "synthesize"}
SETTINGS = {"cache.enabled": True, "models.embedding": "", "routing.synthesize": "frontier", "routing.chat": "local"}


def test_a_cached_answer_of_the_frontier_costs_nothing_and_keeps_its_conversation_there(
    model_path: Path, tmp_path: Path
) -> None:
    stand_in = StandIn()
    try:
        first, again, later = (_talk(model_path, tmp_path, stand_in, turns) for turns in ([1], [1], [1, 2]))
        asked = len(stand_in.journal()["requests"])
    finally:
        stand_in.close()
    assert [talk[0].route for talk in (first, again, later)] == ["frontier", "cache-exact", "cache-exact"]
    assert first[0].text == again[0].text == "You said: Who are you?"
    assert again[0].headers["x-appliance-cost-usd"] == "0"
    assert later[1].route == "frontier"
    assert asked == 2  # the first turn once, and the second


def _talk(model_path: Path, folder: Path, stand_in: StandIn, turns: list[int]) -> list[Outcome]:
    """Each time a daemon that has the cache of the last one, and nothing else in its mind."""
    history: list[dict[str, str]] = [QUESTION]
    outcomes = []
    with (
        frontier_daemon(model_path, folder, [provider(stand_in)], SETTINGS) as daemon,
        openai_client(daemon) as client,
    ):
        for turn in turns:
            headers = SYNTHESIZE if turn == 1 else None
            messages = list(history)
            outcomes.append(ask(client, model="auto", messages=messages, headers=headers, temperature=0, max_tokens=50))
            history += [{"role": "assistant", "content": outcomes[-1].text}, {"role": "user", "content": "And then?"}]
    return outcomes
