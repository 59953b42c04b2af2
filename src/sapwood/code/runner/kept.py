"""Values that a runner keeps by name for what agents do together."""

from __future__ import annotations

from typing import Any

kept: dict[str, Any] = {}
"""The values; they live as long as this process."""
