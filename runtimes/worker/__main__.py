"""`python -m runtimes.worker FD`: started by the supervisor with one end of a socketpair."""

import faulthandler
import os
import resource
import signal
import socket
import sys
from pathlib import Path

import runtimes.llama_cpp  # noqa: F401 - now, because Python cannot cache what it compiles once confined
from runtimes.contracts import BackendError
from runtimes.worker.confinement import confine
from runtimes.worker.loading import load_llama_cpp
from runtimes.worker.worker import Worker


def main() -> None:
    faulthandler.enable()  # a crash in native code leaves the Python frames on stderr
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold prompts
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the daemon's to handle
    # Devices, and the cache of kernels that a GPU's driver compiles.
    unconfined = confine([Path("/dev"), Path(os.environ.get("HOME", "/")) / ".nv"])
    worker = Worker(socket.socket(fileno=int(sys.argv[1])), load_llama_cpp, unconfined)
    try:
        worker.run()
    except BackendError as error:
        sys.stderr.write(f"the engine stops: {error}\n")
        sys.exit(70)  # EX_SOFTWARE


if __name__ == "__main__":
    main()
