"""The process that runs one model: messages, prompt preparation and the loop around the engine."""
