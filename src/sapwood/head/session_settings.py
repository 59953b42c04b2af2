"""The settings that a creator who is not the head's user may give a session.

The root of a session is a process of the head's user. Its settings name programs, files and
arguments of commands, so whoever chose them all could have that user do anything. The head's own
settings count for a session of such a creator, except the settings of an allow-list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.core.host_tree import parse_shape
from sapwood.environment.settings import Settings

ALLOWED: Final = frozenset(
    {
        "cluster.agents",
        "cluster.fanout",
        "cluster.shape",
        "cluster.spares",
        "cluster.lost_nodes",
        "cluster.node_patience",
        "cluster.ready_timeout",
        "cluster.join_timeout",
        "nodes.topology",
        "limits.memory",
        "limits.time",
        "limits.keep",
        "limits.output",
        "limits.idle",
        "limits.bind",
        "limits.check_memory",
        "comm.heartbeat",
        "comm.failure_after",
        "comm.grace",
        "comm.inline_limit",
        "comm.shared_memory",
        "restart.limit",
        "restart.window",
        "restart.backoff",
        "restart.backoff_max",
    }
)
"""Settings that any creator of a session may choose: numbers, and choices between a few words."""

OF_CLIENTS: Final = (
    "cache.",
    "cluster.on",
    "comm.backlog",
    "comm.fastpath",
    "head.",
    "limits.iterations",
    "limits.checkpoints",
    "limits.run_time",
    "limits.spin",
    "log.",
    "policy.",
    "runs.",
    "tasks.",
)
"""What a client has for itself: a session does not act by it, and the head's own counts."""

_SHAPES: Final = frozenset({"cluster.shape", "nodes.topology"})


def allowed_settings(wanted: Any, own: Settings) -> Any:
    """Return the settings of a session whose creator is not the head's user.

    Args:
        wanted: All settings as its creator has them, as plain values; None for the head's.
        own: Those of the head.

    Raises:
        ConfigurationError: They are not settings.
        SecurityError: One is not for others to choose, and is neither the default nor the head's.

    Example:
        >>> mine = {"limits": {"memory": 4096}, "log": {"file": "/root/.profile"}}
        >>> found = allowed_settings(mine, Settings())
        >>> found["limits"]["memory"], found["log"]["file"]
        (4096, '')
        >>> allowed_settings({"cluster": {"interpreter": ["/home/ann/mine"]}}, Settings())
        Traceback (most recent call last):
        sapwood.core.errors.SecurityError: cluster.interpreter: only the user of the head chooses \
this setting of a session. Hint: leave it out; what the head's configuration says counts
    """
    if wanted is None:
        return None
    try:
        chosen = typed.convert(wanted, Settings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"the settings of the session are wrong: {error}") from error
    plain: dict[str, Any] = msgspec.to_builtins(own)
    default, current = dict(_leaves(msgspec.to_builtins(Settings()))), dict(_leaves(plain))
    for key, value in _leaves(msgspec.to_builtins(chosen)):
        if key in ALLOWED:
            if key in _SHAPES and value and parse_shape(value)[0] == "file":
                raise _refused(key)
            section, _, name = key.partition(".")
            plain[section][name] = value
        elif value not in (default.get(key), current.get(key)) and not key.startswith(OF_CLIENTS):
            raise _refused(key)
    return plain


def _refused(key: str) -> SecurityError:
    return SecurityError(
        f"{key}: only the user of the head chooses this setting of a session",
        hint="leave it out; what the head's configuration says counts",
    )


def _leaves(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the settings of a table of sections, by dotted key."""
    for section, values in table.items():
        for name, value in values.items():
            yield f"{section}.{name}", value
