"""Nodes: the daemon of a machine, the control tree over all of them, and how machines join."""
