"""The paths of the daemon, one module a family."""
