"""The head of a long-lived cluster: a separate process to which clients and nodes connect."""
