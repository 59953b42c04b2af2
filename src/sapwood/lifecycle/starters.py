"""Keys of starters: which of several starts the process of a rank."""

from __future__ import annotations

import enum
from dataclasses import dataclass

Command = tuple[str, ...]
"""The command that starts an interpreter; empty for the one that all run on by default."""


class SharedAgentsKey(enum.Enum):
    """Key of the starter of ranks that are agents of another session."""

    SHARED_AGENTS = "agents of another session"


class JoinedAgentsKey(enum.Enum):
    """Key of the starter of ranks whose processes join by an invitation."""

    JOINED_AGENTS = "agents that others start"


@dataclass(frozen=True)
class OnHost:
    """Key of the starter of ranks on another machine: its node.

    Attributes:
        host: Number of the machine; 0 is the root's.
    """

    host: int


StarterKey = Command | SharedAgentsKey | JoinedAgentsKey | OnHost
"""By an interpreter of this machine, or by what starts processes elsewhere."""

SHARED_AGENTS = SharedAgentsKey.SHARED_AGENTS

JOINED_AGENTS = JoinedAgentsKey.JOINED_AGENTS
