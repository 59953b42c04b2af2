"""Launchers: how the first process on a machine is started, one file an engine."""
