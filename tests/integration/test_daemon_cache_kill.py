"""A daemon that is killed while it stores answers: afterwards all are whole."""

import os
import random
import signal
import time
from collections import Counter
from contextlib import closing

import apsw
import pytest

from tests.integration.cache_fixture import CACHED, KNOWN, ask, new, question, said, wait_cached
from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import BackgroundStream, Daemon, data_lines

SEED = int(os.environ.get("APPLIANCE_TEST_SEED", "20"))
KILLS = int(os.environ.get("APPLIANCE_TEST_DAEMON_CACHE_KILLS", "3"))
STORING_S = 0.004  # about what it takes


@pytest.mark.timeout(60 + 60 * KILLS)
def test_a_daemon_that_is_killed_while_it_stores_gives_whole_answers_ever_after(launch: Launch) -> None:
    print(f"seed {SEED}")
    source, routes = random.Random(SEED), Counter[str]()
    daemon = launch(CACHED).wait_ready()
    for _ in range(KILLS):
        wait_cached(daemon)
        numbers = [next(new) for _ in range(6)]
        others = [BackgroundStream(daemon, {**question(number), "stream": True}) for number in numbers[1:]]
        daemon.processes()
        kill_when_answered(daemon, numbers[0], source.uniform(0.0, STORING_S))
        for other in others:
            other.wait_end()
        daemon = launch(CACHED).wait_ready()
        assert {ask(daemon, number) for number in KNOWN} == {"cache-exact"}
        routes.update(ask(daemon, number) for number in numbers)
        with closing(apsw.Connection(str(daemon.state_dir / "cache.db"), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            assert db.pragma("integrity_check") == "ok"
        assert said(daemon) == []
    print(f"after a kill: {dict(routes)}")


def kill_when_answered(daemon: Daemon, number: int, after_s: float) -> None:
    """When the last word has come, the answer is about to be stored."""
    body = {**question(number), "stream": True}
    with daemon.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
        for data in data_lines(response):
            if '"finish_reason":"stop"' in data:
                time.sleep(after_s)
                daemon.process.kill()
                break
        else:
            raise AssertionError("the answer had no end")
    assert daemon.wait_exit() == -signal.SIGKILL
