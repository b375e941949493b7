"""What the figures were measured on: processor, memory, versions. No names or serial numbers of the machine."""

import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

PACKAGES = ("inference-appliance", "llama-cpp-python", "xllamacpp", "uvicorn", "fastapi")
NATIVE_FEATURES = {
    "llama-cpp-python": "import llama_cpp; print(llama_cpp.llama_print_system_info().decode())",
    "xllamacpp": "import xllamacpp; print(xllamacpp.get_system_info())",
}


@dataclass(frozen=True, slots=True)
class Machine:
    processor: str
    cores: int  # physical, of those that this process may use
    memory_gib: float
    system: str
    python: str
    load_1min: float  # before the benchmark
    versions: dict[str, str]
    native: dict[str, str]  # what instructions each llama.cpp was built for


def usable_cores() -> int:
    physical = psutil.cpu_count(logical=False) or 1
    return min(physical, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else physical


def describe() -> Machine:
    return Machine(
        processor=_processor(),
        cores=usable_cores(),
        memory_gib=psutil.virtual_memory().total / 2**30,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        load_1min=psutil.getloadavg()[0],
        versions={name: _version(name) for name in PACKAGES},
        native={name: _native(code) for name, code in NATIVE_FEATURES.items()},
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (found := re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)):
        return found.group(1)
    return platform.processor() or "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _native(code: str) -> str:
    """Asked in a process of its own: this one must stay free of native thread pools."""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    features = re.findall(r"(\w+) = 1", answer.stdout)
    return " ".join(features) or "unknown"
