"""A trace of samples is written, read and replayed."""

import io
from dataclasses import replace

import pytest

from appliance.telemetry.hardware import GpuReading, HardwareSample, Recorded, TraceWriter, read_trace
from appliance.telemetry.hardware.sampler import BLOCKED_AFTER_S
from tests.unit.hardware_samples import GPU, HOST

SAMPLES = (
    HardwareSample(500.0, (GPU, replace(GPU, index=1, throttle=None, utilisation=None)), HOST, "ok", None),
    HardwareSample(500.25, (), replace(HOST, processes={}, cpu=None), "lost", "GPU 0: it is lost\nfor good"),
    HardwareSample(502.5, (replace(GPU, throttle=frozenset()),), HOST, "blocked", "it hangs"),
)


def written(*samples: HardwareSample) -> str:
    file = io.StringIO()
    writer = TraceWriter(file)
    for sample in samples:
        writer.write(sample)
    return file.getvalue()


def test_a_trace_is_read_as_it_was_written_with_times_from_its_beginning() -> None:
    text = written(*SAMPLES)
    assert len(text.splitlines()) == len(SAMPLES)
    assert read_trace(io.StringIO(text)) == tuple(replace(sample, at_s=sample.at_s - 500) for sample in SAMPLES)


@pytest.mark.parametrize(
    "line",
    ["{}", "[1", "\n", '{"at_s": "soon"}', written(SAMPLES[0]).replace('"at_s":0.0', '"at_s":NaN')],
    ids=["empty", "cut", "blank", "no-number", "no-time"],
)
def test_a_line_that_is_no_sample_is_named_in_one_line(line: str) -> None:
    with pytest.raises(ValueError, match=r"^line 2 is no sample: ") as caught:
        read_trace([written(SAMPLES[0]), line])
    assert "\n" not in str(caught.value)


def test_a_sample_from_before_the_one_above_it_is_named() -> None:
    with pytest.raises(ValueError, match=r"^line 3 is from before"):
        read_trace(written(SAMPLES[0], SAMPLES[2], SAMPLES[1]).splitlines())


def test_a_replay_gives_the_newest_sample_of_its_time_and_stays_at_the_last() -> None:
    trace = read_trace(written(*SAMPLES).splitlines())
    replay = Recorded(trace, lambda: 0.0)
    assert [replay.at(elapsed_s) for elapsed_s in (-1.0, 0.0, 0.2, 0.25, 2.4, 2.5, 1e9)] == [
        trace[index] for index in (0, 0, 0, 1, 1, 2, 2)
    ]


def test_a_replay_begins_when_it_is_made() -> None:
    now_s = 7000.0
    replay = Recorded(read_trace(written(*SAMPLES).splitlines()), lambda: now_s)
    assert (replay.gpus().state, replay.host()) == ("ok", HOST)
    now_s += 0.3
    assert (replay.gpus().state, replay.gpus().problem) == ("lost", "GPU 0: it is lost\nfor good")
    assert replay.host().processes == {}


def test_while_the_next_sample_is_long_in_coming_the_gpus_are_blocked() -> None:
    first, after = replace(SAMPLES[0], at_s=0.0), replace(SAMPLES[0], at_s=60.0)
    # It begins at the first of these times. The last sample stays, however long.
    times_s = [0.0, 0.0, BLOCKED_AFTER_S, BLOCKED_AFTER_S + 0.1, 12.0, 59.9, 60.0, 1e9]
    replay = Recorded((first, after), iter(times_s).__next__)
    readings = [replay.gpus() for _ in times_s[1:]]
    assert [reading.state for reading in readings] == ["ok", "ok", "blocked", "blocked", "blocked", "ok", "ok"]
    assert readings[3] == GpuReading(first.gpus, "blocked", "the trace has no sample for 12 s")


def test_an_empty_trace_cannot_be_replayed() -> None:
    with pytest.raises(ValueError, match="needs a sample"):
        Recorded(read_trace([]), lambda: 0.0)
