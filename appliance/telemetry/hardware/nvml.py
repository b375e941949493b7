"""The GPUs that NVML shows, and what becomes of them: a driver that goes away, and one that comes back.

Keeps no thread: a call blocks for as long as the driver hangs, and whoever reads has a thread to spare for that.
"""

import contextlib
import math
from collections.abc import Callable
from typing import Final

from appliance.telemetry.hardware.nvml_calls import Gone, Nvml
from appliance.telemetry.hardware.nvml_card import Card
from appliance.telemetry.hardware.sample import GpuReading, GpuState

# Between two attempts to find what is missing. Where the driver keeps no state while nobody uses it (persistence mode
# off), nvmlInit has to set up every GPU first, which takes a second or more.
RETRY_S: Final = 10.0


class NvmlGpus:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._nvml: Nvml | None = None
        self._initialised = False
        self._cards: list[Card] = []
        self._seen: dict[str, str] = {}  # what to call every card that ever answered, by its UUID
        self._problems: list[str] = []
        self._absent = False
        self._connect_at_s = -math.inf

    def read(self) -> GpuReading:
        """Raises nothing that NVML does: it is in the state and the problem."""
        if self._clock() >= self._connect_at_s:
            self._connect()
        gpus = []
        for card in tuple(self._cards):
            try:
                gpus.append(card.read())
            except Gone as gone:
                self._cards.remove(card)
                card.close()
                self._problems.append(f"{card.title}: {gone}")
                self._connect_at_s = self._clock() + RETRY_S
        return GpuReading(tuple(gpus), self._state, "; ".join(self._problems) or None)

    @property
    def _state(self) -> GpuState:
        if self._absent:
            return "absent"
        return "lost" if self._problems else "ok"

    def _connect(self) -> None:
        """Begins anew, with whatever GPUs there are now."""
        if self._nvml is None:
            self._nvml = Nvml()
        self._disconnect(self._nvml)
        self._problems = []
        self._absent = False
        try:
            self._nvml.do("nvmlInit")
            self._initialised = True
            count = self._nvml.do("nvmlDeviceGetCount")
        except Gone as gone:
            self._problems.append(f"NVML cannot be used: {gone}")
            self._absent = gone.no_driver and not self._seen
        else:
            self._find_cards(self._nvml, count)
        self._connect_at_s = self._clock() + RETRY_S if self._problems else math.inf

    def _find_cards(self, nvml: Nvml, count: int) -> None:
        for index in range(count):
            try:
                card = Card(nvml, index)
            except Gone as gone:
                if not gone.forbidden:  # somebody else's
                    self._problems.append(f"GPU {index}: {gone}")
            else:
                self._cards.append(card)
        present = {card.uuid: card.title for card in self._cards}
        missing = [title for uuid, title in self._seen.items() if uuid not in present]
        self._seen.update(present)
        if not self._seen and not self._problems:
            self._absent = True
            self._problems.append("NVML shows no GPU")
        elif not self._problems:
            self._problems.extend(f"{title}: it is not there any more" for title in missing)

    def _disconnect(self, nvml: Nvml) -> None:
        for card in self._cards:
            card.close()
        self._cards = []
        if self._initialised:
            self._initialised = False
            with contextlib.suppress(Gone):
                nvml.do("nvmlShutdown")
