"""Transports: how bytes get from one process to another."""
