"""Stores: what the head of a cluster keeps, and what outlives it."""
