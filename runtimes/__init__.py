"""Engines that run models on this machine, each in a process of its own."""
