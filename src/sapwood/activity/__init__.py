"""Runs and tasks: what agents do, iteration after iteration, and what it cost."""
