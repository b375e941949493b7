"""A deterministic model of bytes for tests of the engine's policy; it loads in no time and never errs."""

from runtimes.fake.backend import FakeBackend

__all__ = ["FakeBackend"]
