"""Rights: the permitted actions in a cluster, and its sessions and nodes they apply to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from sapwood.core.errors import SecurityError
from sapwood.core.suggest import suggest

CONNECT: Final = "connect"
CREATE: Final = "create"
DELETE: Final = "delete"
ATTACH: Final = "attach"
RUN: Final = "run"
MERGE: Final = "merge"
ALLOCATE: Final = "allocate"
SPAWN: Final = "spawn"
OBSERVE: Final = "observe"
ADMIN: Final = "admin"

RIGHTS: Final = {
    CONNECT: "reach the head, and see its nodes",
    CREATE: "make sessions on nodes",
    DELETE: "end sessions",
    ATTACH: "see what the agents of a session print",
    RUN: "with attach, work with the agents of a session; run commands on its nodes; tell how runs "
    "ended",
    MERGE: "have the agents of a session take part in streams of another one",
    ALLOCATE: "take nodes for a session",
    SPAWN: "begin processes on nodes",
    OBSERVE: "see what runs on nodes, also commands of others; logs, events, runs and metrics",
    ADMIN: "all that observe lets one see; let machines join, remove them, issue and revoke "
    "credentials, end the cluster",
}
"""Every right, and what it lets its holder do."""


ROLES: Final = {
    "owner": tuple(RIGHTS),
    "user": (CONNECT, CREATE, DELETE, ATTACH, RUN, MERGE, ALLOCATE, SPAWN),
    "operator": (CONNECT, DELETE, ADMIN),
    "watcher": (CONNECT, ATTACH),
    "observer": (CONNECT, OBSERVE),
}
"""Roles that every cluster has, and what they allow unless its policy says something else."""


def read_rights(texts: Iterable[str]) -> frozenset[str]:
    """Return names of rights as a set.

    Raises:
        SecurityError: One is not a right.

    Example:
        >>> sorted(read_rights(["run", "attach"]))
        ['attach', 'run']
    """
    found = frozenset(texts)
    for name in sorted(found - RIGHTS.keys()):
        raise SecurityError(
            f"unknown right {name[:40]!a}",
            hint=suggest(name, RIGHTS),
        )
    return found


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of a credential.

    Attributes:
        names: The rights themselves.
        session: The one session that they are for; empty for all.
        nodes: The nodes that they are for; None for all.
        not_after: When they end, seconds since 1970.
        cluster: The cluster that they are for.
        subject: Name of the holder, from the issuer and from holders that passed them on.
        ids: Of each block of the credential that gives them; none without a credential.
        holder: The public key of the only holder of that credential; empty for any holder.
        user: The user of nodes as whom its processes run; empty for the user of their daemons.
        owner: Whose is what they make: whom the issuer wrote, whatever was added since; without
            that, the first block of the credential. Empty without a credential.
        issued_user: The user that the issuer wrote; empty for none.
        issued_session: The session that the issuer wrote; empty for none. What holders add only
            narrows, so it makes nothing theirs.
    """

    names: frozenset[str]
    session: str = ""
    nodes: frozenset[str] | None = None
    not_after: float = math.inf
    cluster: str = ""
    subject: str = ""
    ids: tuple[str, ...] = ()
    holder: bytes = b""
    user: str = ""
    owner: str = ""
    issued_session: str = ""
    issued_user: str = ""

    def require(self, right: str, now: float, *, session: str = "", node: str = "") -> None:
        """Refuse what these rights do not allow.

        Args:
            right: The right that is needed.
            now: The time, seconds since 1970.
            session: The session in question; empty for what is about no single one.
            node: The node in question; empty for what is about no single one.

        Raises:
            SecurityError: They do not allow it; the error says why.

        Example:
            >>> Rights(names=frozenset({"run"}), subject="ann").require("admin", 0.0)
            Traceback (most recent call last):
            sapwood.core.errors.SecurityError: the credential of ann does not give the right \
'admin'. Hint: it gives run
        """
        if now >= self.not_after:
            raise SecurityError(f"{self._whose()} has expired", hint="ask for a new one")
        if right not in self.names and not (right == OBSERVE and ADMIN in self.names):
            raise SecurityError(
                f"{self._whose()} does not give the right '{right}'",
                hint=f"it gives {', '.join(sorted(self.names)) or 'no right at all'}",
            )
        if self.session and session != self.session and right != CONNECT:
            raise SecurityError(
                f"{self._whose()} is for the session '{self.session}'",
                where=f"session {session}" if session else "",
                hint="ask for one that is for more than that session",
            )
        if self.nodes is not None and (node or right == ADMIN) and node not in self.nodes:
            raise SecurityError(
                f"{self._whose()} is for other nodes",
                where=f"node {node}" if node else "",
                hint="`sapwood credential show FILE` says for which",
            )

    def allows(self, right: str, now: float, *, session: str = "", node: str = "") -> bool:
        """Say whether these rights allow something; see :meth:`require`."""
        try:
            self.require(right, now, session=session, node=node)
        except SecurityError:
            return False
        return True

    def _whose(self) -> str:
        return f"the credential of {self.subject}" if self.subject else "the credential"


ALL_RIGHTS: Final = Rights(names=frozenset(RIGHTS))
"""What the user of the head may do, who is known to be that user."""
