"""Fortran as a language of Sapwood programs."""
