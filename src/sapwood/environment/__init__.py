"""Configuration, logging, component life cycle and supervision, and what the machine offers.

Nothing is imported here: agents load single modules of this room and must start fast.
"""
