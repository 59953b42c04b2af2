"""Execution contexts: processes on this machine, started fast and watched."""
