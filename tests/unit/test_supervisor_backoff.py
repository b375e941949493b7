"""When a dead worker is replaced."""

from runtimes.supervisor.backoff import LONGEST_S, Backoff


def test_a_worker_that_had_become_ready_is_replaced_at_once_every_time() -> None:
    backoff = Backoff()
    assert [backoff.after_ready() for _ in range(50)] == [0.0] * 50


def test_starts_that_fail_wait_twice_as_long_each_time_up_to_a_bound() -> None:
    backoff = Backoff()
    waits = [backoff.after_failed_start() for _ in range(10)]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == LONGEST_S


def test_one_good_start_forgets_the_failed_ones() -> None:
    backoff = Backoff()
    backoff.after_failed_start()
    backoff.after_failed_start()
    backoff.after_ready()
    assert backoff.after_failed_start() == 0.5
