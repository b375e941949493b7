"""A process that reads GPUs through the NVML that its linker finds, on a clock that the test moves.

It takes a command a line, `word [seconds]`, and answers each with a line of JSON. It ends when its input does.
"""

import os
import sys

from pydantic import TypeAdapter

from appliance.telemetry.hardware import GpuReading, HardwareSample, Sampler, ThisMachine


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def main() -> None:
    clock = Clock()
    machine = ThisMachine(lambda: {"reader": os.getpid()}, clock)
    sampler = Sampler(machine, clock, every_s=0.01)
    for line in sys.stdin:
        word, _, seconds = line.strip().partition(" ")
        answer = b"null"
        if word == "read":
            answer = TypeAdapter(GpuReading).dump_json(machine.gpus())
        elif word == "start":
            sampler.start()
        elif word == "latest":
            answer = TypeAdapter(HardwareSample | None).dump_json(sampler.latest())
        elif word == "stop":
            sampler.stop()
        elif word == "advance":
            clock.now_s += float(seconds)
        print(answer.decode(), flush=True)


main()
