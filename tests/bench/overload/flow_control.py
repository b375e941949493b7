"""What admission itself costs a request that need not wait: real policies and futures in an event loop, no engine."""

import asyncio
import time
from typing import Final

from appliance.admission.admission import Admission
from appliance.admission.controller import Controller
from appliance.admission.saturation import MachineLoad
from appliance.admission_settings import AdmissionSettings, SloSettings
from appliance.protocol import ChatPrompt, Message, Request, TextPart
from runtimes.engine import CostCurve
from runtimes.supervisor import Status
from tests.bench.overload.machines import CPU
from tests.bench.overload.simulator import status
from tests.bench.stats import percentile

REQUESTS: Final = 5000
BESIDE: Final = 8  # requests that are in the engine meanwhile
TEXT: Final = "What is written in the third paragraph? " * 50


class _Engine:
    curve: CostCurve | None = CPU.curve

    def status(self) -> Status:
        return status(CPU, running=BESIDE)


def cost_s() -> tuple[float, float]:
    """(P50, P99) of the time from a request's coming to its place in the engine, and from its end to its leaving."""
    return asyncio.run(_cost_s())


async def _cost_s() -> tuple[float, float]:
    controller = Controller(["m"], AdmissionSettings(), SloSettings(), slots=16, most_waiting=512)
    admission = Admission({"m": _Engine()}, controller, machine=lambda _: MachineLoad())
    looking = asyncio.create_task(admission.run())
    ends = asyncio.Event()
    beside = [asyncio.create_task(_stays(admission, ends)) for _ in range(BESIDE)]
    taken_s = []
    for _ in range(REQUESTS):
        await asyncio.sleep(0)
        came_s = time.perf_counter()
        async with admission.place(_request(), "m", "key", admission.now_s() + 60) as place:
            await place.granted(5.0)
            granted_s = time.perf_counter()
            ended_s = time.perf_counter()
        taken_s.append(granted_s - came_s + time.perf_counter() - ended_s)
    ends.set()
    await asyncio.gather(*beside)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    return percentile(taken_s, 50), percentile(taken_s, 99)


async def _stays(admission: Admission, ends: asyncio.Event) -> None:
    async with admission.place(_request(), "m", "key", admission.now_s() + 600) as place:
        await place.granted(5.0)
        await ends.wait()


def _request() -> Request:
    return Request("r", "m", (ChatPrompt((Message("user", (TextPart(TEXT),)),)),))
