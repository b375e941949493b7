"""Chat templates: from messages to the text a model was trained on, rendered in a process of their own."""
