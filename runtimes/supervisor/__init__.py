"""The daemon's side of an engine worker: start it, watch it, replace it."""

from runtimes.supervisor.supervisor import EngineError, Limits, Status, Supervisor

__all__ = ["EngineError", "Limits", "Status", "Supervisor"]
