"""`python -m runtimes.embeddings FD`: started by the supervisor with one end of a socketpair."""

import contextlib
import faulthandler
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from runtimes.embeddings.messages import LoadFailed, encode
from runtimes.worker.confinement import confine

# Before the libraries are loaded that read them. The threads are ONNX Runtime's; what the others do is small.
os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})


def main() -> None:
    faulthandler.enable()  # a crash in native code leaves the Python frames on stderr
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold texts
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the daemon's to handle
    connection = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the daemon is gone
        try:
            from runtimes.embeddings.worker import serve  # noqa: PLC0415 - what it needs may be missing
        except ImportError as error:
            why = f"ONNX Runtime is missing ({error}): install this package with its extra cpu or gpu"
            connection.sendall(encode(LoadFailed(why, final=True)))
            return
        # Devices, and the cache of kernels that a GPU's driver compiles.
        unconfined = confine([Path("/dev"), Path(os.environ.get("HOME", "/")) / ".nv"])
        serve(connection, unconfined)


if __name__ == "__main__":
    main()
