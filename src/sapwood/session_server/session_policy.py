"""By which values of the policy a session acts: those of now, but for what its creator chose."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any, Final

from sapwood.core import typed
from sapwood.environment.schema import find_setting
from sapwood.environment.settings import DisconnectPolicy
from sapwood.environment.settings_toml import render_value
from sapwood.head import session_records
from sapwood.head.parts.policy import PolicyRow

IDLE: Final = "idle.session"
OUTPUT: Final = "disconnect.output"
BUFFER: Final = "disconnect.buffer"

BY_CREATOR: Final = "chosen when the session was made"
AT_FIRST: Final = "the policy when the session was made"


class SessionPolicy:
    """The values of one session. No I/O.

    Args:
        idle: Seconds without attached clients after which it ends; 0 for never.
        disconnect: Treatment of results that arrive without an attached client.
        chosen: Whether its creator has chosen ``idle``; then it stays.

    Attributes:
        rows: Each value as TOML, and where it comes from.

    Example:
        >>> policy = SessionPolicy(60.0, DisconnectPolicy(), chosen=True)
        >>> row = PolicyRow(key=IDLE, value="5.0", origin="ann", expected="", about="")
        >>> policy.take([row]), policy.idle
        (False, 60.0)
    """

    def __init__(self, idle: float, disconnect: DisconnectPolicy, *, chosen: bool) -> None:
        values = {IDLE: idle, OUTPUT: disconnect.output, BUFFER: disconnect.buffer}
        origins = dict.fromkeys(values, AT_FIRST) | ({IDLE: BY_CREATOR} if chosen else {})
        self._values: dict[str, Any] = values
        self.rows = [
            session_records.SessionValue(key, render_value(_parts(key), value), origins[key])
            for key, value in values.items()
        ]

    @property
    def idle(self) -> float:
        """Seconds without attached clients after which it ends; 0 for never."""
        return float(self._values[IDLE])

    @property
    def disconnect(self) -> DisconnectPolicy:
        """Treatment of results that arrive without an attached client."""
        return typed.convert(
            {"output": self._values[OUTPUT], "buffer": self._values[BUFFER]}, DisconnectPolicy
        )

    def take(self, received: Sequence[PolicyRow]) -> bool:
        """Take over what the policy of the cluster says; return whether anything is different.

        Raises:
            ConfigurationError: A value is not one of this version.
        """
        known = {one.key: one for one in received}
        rows, values = list(self.rows), dict(self._values)
        for index, row in enumerate(rows):
            if row.origin == BY_CREATOR or row.key not in known:
                continue
            new = known[row.key]
            written = tomllib.loads(f"value = {new.value}")["value"]
            values[row.key] = find_setting(_parts(row.key), "policy").convert(written, "policy")
            rows[index] = session_records.SessionValue(row.key, new.value, new.origin)
        changed = rows != self.rows
        self.rows, self._values = rows, values
        return changed


def _parts(key: str) -> tuple[str, ...]:
    return ("policy", *key.split("."))
