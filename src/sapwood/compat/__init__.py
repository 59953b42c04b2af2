"""Programs that were written for other systems, unchanged."""
