"""Three times the load that a machine can take: who is served, how fast, and who is turned away."""
