"""The head of a long-lived cluster: a process of its own, which front ends and nodes come to."""
