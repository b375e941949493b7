"""The live terminal monitor. It talks to the daemon over HTTP and imports nothing of ours."""
