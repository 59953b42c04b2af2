"""Waves that the thread which wants them sends and gathers by itself."""
