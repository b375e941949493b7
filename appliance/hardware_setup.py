"""Where samples of the hardware come from: this machine, or the trace that the settings name."""

import time
from collections.abc import Callable, Mapping

from appliance.settings import ConfigError, Settings
from appliance.telemetry import logs
from appliance.telemetry.hardware import HardwareSample, Recorded, Source, ThisMachine, read_trace

log = logs.get(__name__)

KEY = "telemetry.hardware_trace"


def trace_of(settings: Settings) -> tuple[HardwareSample, ...] | None:
    """None: this machine is to be read. Raises `ConfigError` for a trace that cannot be replayed."""
    path = settings.telemetry.hardware_trace_path
    if path is None:
        return None
    if not path.is_file():
        raise ConfigError(KEY, f"there is no file {path}")
    try:
        with path.open(encoding="utf-8") as file:
            samples = read_trace(file)
    except OSError as error:
        raise ConfigError(KEY, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(KEY, f"{path} is not UTF-8 text") from None
    except ValueError as error:
        raise ConfigError(KEY, f"{path}: {error}") from None
    if not samples:
        raise ConfigError(KEY, f"{path} has no sample")
    return samples


def hardware_of(settings: Settings, processes: Callable[[], Mapping[str, int]]) -> Source:
    """A trace begins now. `processes`: their ids, by name; called from another thread than the caller's."""
    samples = trace_of(settings)
    if samples is None:
        return ThisMachine(processes, time.monotonic)
    seconds = round(samples[-1].at_s, 3)
    log.warning("hardware_replayed", trace=settings.telemetry.hardware_trace, samples=len(samples), seconds=seconds)
    return Recorded(samples, time.monotonic)
