"""How a client and a head greet each other, before the client may call anything."""

from __future__ import annotations

import msgspec

from sapwood.core.hostset import fold_hosts
from sapwood.security.rights import Rights

SERVICE_PROTOCOL = "sapwood-service/2"
"""The name under which the port of a head tells clients from anything else (ALPN)."""

GREET = "greet"
"""Call, without credential: who are you, what shall I sign? Answer: a :class:`Greeting`."""

PRESENT = "present"
"""Call: this is my credential. Value: a ``Shown``. Answer: its ``Rights``, which count from now on.
"""

CUT_OFF = "cut off"
"""Notice: this connection ends, as its credential does. Value: why."""


def context(cluster: str) -> str:
    """Return what a credential is shown for at a head."""
    return f"{SERVICE_PROTOCOL} {cluster}"


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """Who a head is.

    Attributes:
        cluster: Name of the cluster in certificates.
        authority: The certificate of its authority, PEM.
        challenge: What a credential must sign.
    """

    cluster: str
    authority: bytes
    challenge: bytes


class RightsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may do, as the head tells it.

    Attributes:
        names: Its rights.
        session: The session that they are for; empty for all.
        nodes: The nodes that they are for, folded; empty for all.
        not_after: When they end, seconds since 1970.
        subject: Name of the holder.
        id: Of the credential.
        user: The user of nodes as whom its processes run; empty for the user of their daemons.
        reserved: Whether it may use nodes that are reserved; see :class:`NodeRecord`.
    """

    names: list[str]
    session: str
    nodes: str
    not_after: float
    subject: str
    id: str
    user: str = ""
    reserved: bool = True

    @classmethod
    def of(cls, rights: Rights, *, reserved: bool) -> RightsFacts:
        """Return what rights are, as plain data.

        Args:
            rights: The rights.
            reserved: Whether reserved nodes may be used with them.
        """
        return cls(
            names=sorted(rights.names),
            session=rights.session,
            nodes="" if rights.nodes is None else fold_hosts(sorted(rights.nodes)) or "none",
            not_after=rights.not_after,
            subject=rights.subject,
            id=(rights.ids or ("",))[-1],
            user=rights.user,
            reserved=reserved,
        )
