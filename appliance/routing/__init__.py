"""Where a request is answered: `decide` is the whole policy, pure; the rest finds out what it needs to know."""
