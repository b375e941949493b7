"""Text embeddings: a small model in a process of its own, so that a lookup never waits for a generation step.

`supervisor` is the daemon's side, `worker` the child's, `messages` what goes between them, `model` what it runs.
"""
