"""The inference appliance: a local, OpenAI-compatible endpoint for agents."""

__version__ = "0.1.0"
