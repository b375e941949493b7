"""A daemon whose local model was found good enough asks it about what the cache's rules leave open."""

import shutil
import sqlite3
from pathlib import Path

from cache.second_opinion import CALIBRATION_FILE, Worth, mark_of, open_pairs, write_worth
from tests.integration.daemon_fixture import Daemon, chat_body, wait_until


def test_it_is_asked_and_its_hits_are_not_served_before_they_are_proven(
    model_path: Path, embedding_model: Path, tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    shutil.copytree(embedding_model, state_dir / "models" / embedding_model.name)
    name = model_path.name.removesuffix(".gguf")
    sure = Worth(threshold=0.0, found=9, pairs=9, traps=9, upper_bound=0.3)  # of whatever it says
    write_worth(state_dir / CALIBRATION_FILE, mark_of(name, int(model_path.stat().st_mtime)), sure)
    pair = next(pair for pair in open_pairs() if pair.hit)
    daemon = Daemon(model_path, state_dir, tmp_path, {"cache.enabled": True})
    try:
        daemon.wait_ready()

        def is_asked() -> bool:
            """The embedding model may still be loading."""
            with daemon.client() as client:
                client.delete("/admin/v1/cache").raise_for_status()
                for text in (pair.a, pair.b):
                    body = chat_body(text, temperature=0, structured_outputs={"choice": ["yes", "no"]})
                    response = client.post("/v1/chat/completions", json=body)
                    assert response.headers["x-appliance-route"] == "local"
                return bool(client.get("/admin/v1/cache").json()["unproven"])

        wait_until(is_asked, "a would-be hit", timeout_s=60)
    finally:
        daemon.close()
    with sqlite3.connect(state_dir / "ledger.db") as ledger:
        ((asked, tokens),) = ledger.execute(
            "SELECT count(*), max(completion_tokens) FROM attempts WHERE reason = 'second-opinion'"
        )
    assert asked >= 1
    assert tokens == 1
