"""The step loop: many requests, one model, one forward pass at a time."""

from runtimes.engine.cost_curve import CostCurve
from runtimes.engine.engine import Engine, EngineStats
from runtimes.engine.sequence import Job
from runtimes.engine.thinking import Thinking

__all__ = ["CostCurve", "Engine", "EngineStats", "Job", "Thinking"]
