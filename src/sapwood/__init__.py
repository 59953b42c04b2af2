"""Sapwood."""
