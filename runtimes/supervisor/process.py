"""One worker process and the socket to it: frames out, frames in, its last words, its end. It keeps no requests."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from runtimes.supervisor.frames import Frames
from runtimes.worker import messages

LAST_WORDS = 20  # lines of a worker's stderr to explain its death with
# What a worker may know of the daemon's environment: where its libraries and devices are, and no more.
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
ENVIRONMENT_PREFIXES = ("CUDA_", "NVIDIA_", "GGML_", "OMP_", "GOMP_")
END_TIMEOUT_S = 5.0


class WorkerProcess:
    def __init__(
        self,
        process: asyncio.subprocess.Process,
        transport: asyncio.Transport,
        frames: Frames,
        encode: Callable[[object], bytes] = messages.encode,
    ) -> None:
        self._process = process
        self._transport = transport
        self._frames = frames
        self._encode = encode
        self._out_of_memory_kills = _out_of_memory_kills()  # so far
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._stderr_task = asyncio.create_task(self._follow_stderr())

    @classmethod
    async def start(
        cls,
        environ: Mapping[str, str],
        module: str = "runtimes.worker",
        *,
        encode: Callable[[object], bytes] = messages.encode,
        decode: Callable[[bytes], Any] = messages.decode,
    ) -> "WorkerProcess":
        """Runs `python -m MODULE FD`, which speaks what `encode` makes and `decode` reads. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the working directory is no place to import from
                "-m",
                module,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={
                    name: value
                    for name, value in environ.items()
                    if name in ENVIRONMENT or name.startswith(ENVIRONMENT_PREFIXES)
                },
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        try:
            transport, frames = await asyncio.get_running_loop().create_connection(lambda: Frames(decode), sock=ours)
        except BaseException:  # whoever wanted it has left
            process.kill()
            await process.wait()
            raise
        return cls(process, transport, frames, encode)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: object) -> None:
        """Queues a message. A worker that is gone loses it: the supervisor hears of the death by `deliver`."""
        if not self._transport.is_closing():
            self._transport.write(self._encode(message))

    async def first_message(self) -> Any | None:
        """What the worker says first; None when it has closed the socket, or sends what is no message."""
        return await self._frames.first()

    async def deliver(self, take: Callable[[Any], None]) -> None:
        """Gives `take` every further message, until the worker closes the socket or sends what is no message."""
        await self._frames.deliver(take)

    async def end(self) -> str:
        """Kills what is left of the process, frees all it held, and says how it ended."""
        self._transport.abort()  # what it has not read by now it will not read
        with contextlib.suppress(TimeoutError):  # it ends by itself when its socket closes, unless it hangs
            await asyncio.wait_for(self._process.wait(), 0.2)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        status = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stderr_task, END_TIMEOUT_S)
        return self._describe(status)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _describe(self, status: int) -> str:
        if status == -signal.SIGKILL and _out_of_memory_kills() > self._out_of_memory_kills:
            how = "was killed, out of memory"
        elif status < 0:
            how = f"died of {signal.Signals(-status).name}"
        else:
            how = f"exited with status {status}"
        words = " | ".join(self._last_words)
        return f"{how}: {words}" if words else how

    async def _follow_stderr(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line longer than the buffer
                continue
            if not line:
                return
            self._last_words.append(line.decode("utf-8", "replace").rstrip())


def _out_of_memory_kills() -> int:
    """How often the kernel has killed for memory in this control group; 0 where it cannot be read."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as groups:  # noqa: PTH123 - a kernel file
            path = next(line.rstrip().split("::", 1)[1] for line in groups if line.startswith("0::"))
        with open(os.path.join("/sys/fs/cgroup", path.lstrip("/"), "memory.events"), encoding="ascii") as events:  # noqa: PTH118, PTH123 - kernel files
            return next(int(line.split()[1]) for line in events if line.startswith("oom_kill "))
    except (OSError, StopIteration, IndexError, ValueError):
        return 0
