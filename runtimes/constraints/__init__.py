"""Answers that must have a form: JSON of a schema, a pattern, a grammar. Compiled and followed by llguidance."""

from runtimes.constraints.compiler import ConstraintCompiler
from runtimes.constraints.grammar import InvalidConstraintError

__all__ = ["ConstraintCompiler", "InvalidConstraintError"]
