"""Reads the host and some of its processes through psutil. What the processes are for is not known here."""

from collections.abc import Callable, Mapping

import psutil

from appliance.telemetry.hardware.sample import HostSample, ProcessSample


class Host:
    """To be read by one thread: what psutil knows of the CPU is since that thread's last reading."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        """`processes`: their ids now, by name. It is called from the thread that reads."""
        self._wanted = processes
        self._known: dict[str, psutil.Process] = {}
        self._was_read = False

    def read(self) -> HostSample:
        memory = psutil.virtual_memory()
        cpu = psutil.cpu_percent() / 100
        sample = HostSample(
            cpu=cpu if self._was_read else None,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            load_1m=psutil.getloadavg()[0],
            processes=self._processes(),
        )
        self._was_read = True
        return sample

    def _processes(self) -> dict[str, ProcessSample]:
        before, self._known = self._known, {}
        samples = {}
        for name, pid in self._wanted().items():
            try:
                process = before.get(name)
                same = process is not None and process.pid == pid and process.is_running()  # no other with its id
                if process is None or not same:
                    process = psutil.Process(pid)
                samples[name] = _sample(process, seen_before=same)
            except psutil.Error:  # it is gone, or nothing that we may read
                continue
            self._known[name] = process
        return samples


def _sample(process: psutil.Process, *, seen_before: bool) -> ProcessSample:
    with process.oneshot():
        cpu = process.cpu_percent() / 100
        return ProcessSample(process.memory_info().rss, cpu if seen_before else None)
