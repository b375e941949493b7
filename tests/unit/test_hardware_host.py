"""Reading the host and processes on it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from appliance.telemetry.hardware.host import Host


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with process:
        yield process
        process.kill()


def burn() -> None:
    """Some time of the processor, enough for the operating system's clock of it to see (10 ms)."""
    until_s = time.process_time() + 0.05
    while time.process_time() < until_s:
        pass


def test_the_hosts_memory_and_load_are_read() -> None:
    sample = Host(dict).read()
    assert sample.memory_total_bytes == psutil.virtual_memory().total
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes
    assert sample.load_1m >= 0
    assert sample.processes == {}


def test_what_the_processor_does_is_known_from_the_second_reading_on() -> None:
    host = Host(lambda: {"daemon": os.getpid()})
    first = host.read()
    assert (first.cpu, first.processes["daemon"].cpu) == (None, None)
    burn()
    second = host.read()
    assert second.cpu is not None
    assert 0 < second.cpu <= 1
    used = second.processes["daemon"].cpu
    assert used is not None
    assert used > 0
    assert second.processes["daemon"].rss_bytes > 1 << 20


def test_a_process_that_is_gone_is_left_out(child: subprocess.Popen[bytes]) -> None:
    host = Host(lambda: {"daemon": os.getpid(), "worker": child.pid})
    assert set(host.read().processes) == {"daemon", "worker"}
    child.kill()
    child.wait()
    assert set(host.read().processes) == {"daemon"}


def test_a_worker_that_was_replaced_begins_anew(child: subprocess.Popen[bytes]) -> None:
    workers = {"worker": os.getpid()}
    host = Host(lambda: workers)
    host.read()
    assert host.read().processes["worker"].cpu is not None
    workers["worker"] = child.pid
    assert host.read().processes["worker"].cpu is None
    assert host.read().processes["worker"].cpu is not None


def test_a_process_is_asked_for_under_each_of_its_names_until_it_is_not() -> None:
    wanted = {"daemon": os.getpid(), "embeddings": os.getpid()}
    host = Host(lambda: wanted)
    assert set(host.read().processes) == {"daemon", "embeddings"}
    del wanted["embeddings"]
    assert set(host.read().processes) == {"daemon"}
