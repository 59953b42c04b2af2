"""OpenTelemetry: traces and metrics, where its variables ask for them.

``environment/tracing.py`` is the seam. Delete this room, and everything works without.
"""
