"""The communication stack: a core without I/O, and thin drivers around it."""
