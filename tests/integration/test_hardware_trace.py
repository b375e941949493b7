"""A daemon that replays recorded hardware: what its GPUs did opens the breaker, for the reason that it names."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.telemetry.hardware import GpuSample, HardwareSample, Throttle, TraceWriter
from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import (
    LONG_STREAM,
    BackgroundStream,
    Daemon,
    appliance,
    chat_body,
    post_raw,
    wait_until,
)
from tests.unit.hardware_samples import GPU, HOST

CALM = replace(GPU, utilisation=0.3, throttle=frozenset())
FULL = replace(CALM, utilisation=1.0)
LOST = HardwareSample(0.0, (), HOST, "lost", "GPU 0 (NVIDIA RTX 4090): GPU is lost")
OF_THE_GPU = {"gpu-utilisation", "thermal-throttling", "power-throttling", "stale-sample"}

# One slot, so that the second request waits. All that waiting itself says is made small: what opens the breaker is the
# GPU's.
SETTINGS = {
    "engine.slots": 1,
    "engine.kv_tokens": 16_384,
    "slo.queue_wait_s": 1_000_000,
    "admission.trip_at": 1.0,
    "admission.dwell_s": 0.2,
}
OPEN_TIMEOUT_S = 60.0  # it takes two or three seconds

Replay = Callable[..., Daemon]


def sample(gpu: GpuSample, at_s: float = 0.0, **fields: Any) -> HardwareSample:
    return replace(HardwareSample(at_s, (gpu,), HOST, "ok", None), **fields)


def written(path: Path, *samples: HardwareSample) -> str:
    with path.open("w", encoding="utf-8") as file:
        writer = TraceWriter(file)
        for one in samples:
            writer.write(one)
    return str(path)


@pytest.fixture
def replay(launch: Launch, tmp_path: Path) -> Replay:
    """Starts a daemon on a trace. Of the last sample, it stays at that."""

    def start(*samples: HardwareSample) -> Daemon:
        return launch({**SETTINGS, "telemetry.hardware_trace": written(tmp_path / "trace.jsonl", *samples)})

    return start


@pytest.fixture
def requests() -> Iterator[Callable[[Daemon], None]]:
    """One that runs for as long as the test looks, and two that wait."""
    with ExitStack() as stack:

        def send(daemon: Daemon) -> None:
            for _ in range(3):
                stack.enter_context(closing(post_raw(daemon, chat_body(**LONG_STREAM))))
            wait_until(lambda: daemon.engine()["waiting"] == 2, "two wait")

        yield send


def transitions(admission: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["from"], one["to"], one["reason"]) for one in admission["transitions"]]


def wait_opened(daemon: Daemon, reason: str) -> None:
    """Until the breaker opens for that reason. Whatever else slows this machine may be first: then it is closed, and
    has to open again."""

    def opened() -> bool:
        admission = daemon.status()["admission"]
        if ("closed", "open", reason) in transitions(admission):
            return True
        if admission["breaker"] != "closed":
            with daemon.client() as client:
                client.post("/admin/v1/breaker", json={"action": "reset"})
        return False

    wait_until(opened, f"the breaker opens for {reason}", OPEN_TIMEOUT_S)


def test_a_full_gpu_opens_the_breaker_only_while_requests_wait(replay: Replay, requests: Callable[..., None]) -> None:
    daemon = replay(sample(FULL)).wait_ready()
    hardware = daemon.status()["hardware"]
    assert hardware["gpus"]["0"]["utilisation"] == 1.0
    assert hardware["replayed_from"].endswith("trace.jsonl")
    assert hardware["memory_total_bytes"] == HOST.memory_total_bytes
    with daemon.client() as client:  # nobody waits behind it, for more than a second
        assert client.post("/v1/chat/completions", json=chat_body(max_tokens=200, ignore_eos=True)).status_code == 200
    admission = daemon.status()["admission"]
    assert "gpu-utilisation" not in {reason for _, _, reason in transitions(admission)}
    assert "gpu-utilisation" not in admission["signals"]
    requests(daemon)
    wait_opened(daemon, "gpu-utilisation")


@pytest.mark.parametrize(("throttle", "reason"), [("thermal", "thermal-throttling"), ("power", "power-throttling")])
def test_a_gpu_that_is_held_down_opens_the_breaker_while_requests_wait(
    replay: Replay, requests: Callable[..., None], throttle: Throttle, reason: str
) -> None:
    daemon = replay(sample(replace(CALM, throttle=frozenset({throttle})))).wait_ready()
    requests(daemon)
    wait_opened(daemon, reason)


def test_a_driver_that_hangs_opens_the_breaker_and_critical_requests_are_answered(replay: Replay) -> None:
    daemon = replay(sample(CALM), sample(CALM, 1.0, gpu_state="blocked", problem="it hangs")).wait_ready()
    wait_opened(daemon, "stale-sample")
    assert daemon.status()["hardware"]["gpu_state"] == "blocked"
    assert daemon.status()["hardware"]["gpu_problem"] == "it hangs"
    with daemon.client() as client:
        for criticality, status in (("critical", 200), ("sheddable", 429)):
            headers = {"x-appliance-criticality": criticality}
            assert client.post("/v1/chat/completions", json=chat_body(), headers=headers).status_code == status


def test_a_gpu_that_is_not_read_and_then_lost_opens_the_breaker_and_lets_it_recover(replay: Replay) -> None:
    silent_s = 8.0  # an idle daemon looks once a second: two for the gap, four to open, two to spare
    daemon = replay(sample(CALM), replace(LOST, at_s=silent_s)).wait_ready()
    wait_opened(daemon, "stale-sample")
    wait_until(lambda: daemon.status()["hardware"]["gpu_state"] == "lost", "the trace goes on", OPEN_TIMEOUT_S)
    work = BackgroundStream(daemon, chat_body(**LONG_STREAM))  # a daemon that works looks ten times a second
    expected = [("open", "half-open", "recovered"), ("half-open", "closed", "room-for-all")]
    wait_until(lambda: transitions(daemon.status()["admission"])[-2:] == expected, "the breaker closes", OPEN_TIMEOUT_S)
    hardware = daemon.status()["hardware"]
    assert (hardware["gpus"], hardware["gpu_problem"]) == ({}, LOST.problem)
    wait_until(lambda: not OF_THE_GPU & set(daemon.status()["admission"]["signals"]), "no GPU signal is left")
    work.wait_first_token()


def test_without_a_trace_the_status_says_that_hardware_is_real(daemon: Daemon) -> None:
    assert wait_until(lambda: daemon.status()["hardware"], "a sample was taken")["replayed_from"] is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"", "has no sample"),
        (b"\xff\xfe\n", "is not UTF-8 text"),
        (b"GOOD\nGOOD\n{}\n", "line 3 is no sample: at_s"),
        (b'GOOD\n{"at_s": ', "line 2 is no sample"),
    ],
    ids=["missing", "empty", "no-text", "no-sample", "cut"],
)
@pytest.mark.parametrize("command", [("serve", "--port", "0", "--model"), ("config", "check")], ids=["serve", "check"])
def test_a_trace_that_cannot_be_replayed_is_an_error_of_the_configuration(
    command: tuple[str, ...], content: bytes | None, message: str, model_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    good = Path(written(tmp_path / "good.jsonl", sample(CALM))).read_bytes().strip()
    if content is not None:
        path.write_bytes(content.replace(b"GOOD", good))
    arguments = (*command, str(model_path)) if command[-1] == "--model" else command
    ended = appliance(*arguments, home=tmp_path, settings={"telemetry.hardware_trace": str(path)})
    assert ended.returncode == 78
    (line,) = ended.stderr.splitlines()
    assert "telemetry.hardware_trace" in line
    assert str(path) in line
    assert message in line
