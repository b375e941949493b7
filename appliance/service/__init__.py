"""The daemon as a service of the machine: what the service manager is told."""
