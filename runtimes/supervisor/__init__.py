"""The daemon's side of an engine worker: start it, watch it, replace it."""

from runtimes.supervisor.supervisor import EngineError, Interruption, Limits, Status, Supervisor

__all__ = ["EngineError", "Interruption", "Limits", "Status", "Supervisor"]
