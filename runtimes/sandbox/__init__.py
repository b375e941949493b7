"""Child processes for work that a client or a model file could make endless: they are killed, and nothing else stops.

`process` is the parent's side, `child` the child's, `frames` what goes between them.
"""
