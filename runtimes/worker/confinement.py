"""Takes from the worker what it never needs: the network, and writing to files. A model file is untrusted input to
native code; whoever takes over that code should find nothing to reach for.

Linux only, best effort: a kernel or a sandbox that refuses either measure leaves the other. The daemon's socket and
files that are open already stay usable. Sources: seccomp(2), landlock(7); numbers from the kernel's headers.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_DENY = 0x00050000 | errno.EPERM  # the call fails with EPERM
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF instructions on 32-bit words
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data; little-endian low word
_X32_CALLS = 0x40000000  # the x86-64 kernel's second set of numbers for the same calls
_IO_URING_SETUP = 425  # opens sockets without socket(2)
# machine: (audit architecture, number of socket(2))
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}

_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION = 1  # flag of create: ask for the version
_PATH_BENEATH = 1
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGE_FOLDERS = sum(1 << bit for bit in range(4, 13))  # remove and make anything
_TRUNCATE_SINCE = 3

_libc = ctypes.CDLL(None, use_errno=True)


def confine(writable: Iterable[Path]) -> list[str]:
    """Applies to this thread and all that it starts from now on, for good. Returns what could not be applied."""
    if platform.system() != "Linux":
        return [f"{platform.system()} has none of what confines the worker"]
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return ["no_new_privs is refused"]
    problems = [_forbid_network(), _forbid_writing(writable)]
    return [problem for problem in problems if problem]


def _forbid_network() -> str | None:
    """Sockets other than Unix ones cannot be opened."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return f"no network filter for {platform.machine()}"
    architecture, socket_call = machine
    deny = 10
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 0, deny - 2, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, deny - 4, 0, _X32_CALLS),
        (_IF_EQUAL, deny - 5, 0, _IO_URING_SETUP),
        (_IF_EQUAL, 1, 0, socket_call),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 0, deny - 9, 1),  # AF_UNIX
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _DENY),
    ]
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HxxxxxxP", len(program), ctypes.addressof(buffer))
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) != 0:
        return f"the network filter is refused: {os.strerror(ctypes.get_errno())}"
    return None


def _forbid_writing(writable: Iterable[Path]) -> str | None:
    """No file can be opened for writing, made or removed, but below `writable`."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if version < 1:
        return "this kernel has no Landlock, so files stay writable"
    access = _WRITE_FILE | _CHANGE_FOLDERS | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    attributes = struct.pack("@Q", access)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return f"Landlock is refused: {os.strerror(ctypes.get_errno())}"
    try:
        for path in writable:
            try:
                folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # what is not there cannot be written to
            rule = struct.pack("=Qi", access, folder)
            _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
            os.close(folder)
        if _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
            return f"Landlock is refused: {os.strerror(ctypes.get_errno())}"
    finally:
        os.close(ruleset)
    return None
