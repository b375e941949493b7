"""Starts the stand-in for a frontier API: `python -m tests.frontier_stand_in --port 0 [--key KEY]`.

Prints one line, `listening on http://127.0.0.1:PORT`, when it is ready. Ends on SIGTERM or when its standard input
closes, so that it cannot outlive the test that started it.
"""

import argparse
import asyncio
import os
import signal
import threading

from tests.frontier_stand_in.server import StandInServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="frontier_stand_in", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--key", help="what clients must send; without it any key will do, or none")
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.key))


async def _serve(port: int, key: str | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    threading.Thread(target=_wait_for_the_end_of_input, args=(loop, stop), daemon=True).start()
    async with StandInServer(key).listening(port) as url:
        print(f"listening on {url}", flush=True)
        await stop.wait()


def _wait_for_the_end_of_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(0, 4096):  # not sys.stdin: a thread that waits in it would hold up the interpreter's end
        pass
    loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    main()
