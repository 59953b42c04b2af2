"""Bytes that never change, by their SHA-256: stored, passed on between machines, and named."""
