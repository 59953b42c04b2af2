"""The tree of a session, as its server tells it to the head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sapwood.core.topology import ROOT, Tree
from sapwood.head import session_records
from sapwood.session.embedded import EmbeddedSession

MAX_PLACES: Final = 10_000
"""Most places of a session that are reported: the lowest ranks."""


def tree_of(
    session: EmbeddedSession, number: str, name_of: Callable[[int], str]
) -> session_records.SessionTree:
    """Return the places of a session; on its loop's thread.

    Args:
        session: It.
        number: Its id.
        name_of: Returns the name of a node, by its number.
    """
    tree, hosts = session.tree, session.hosts
    ranks = [rank for rank in range(1, tree.size) if rank in tree]
    reported = [session_records.SessionPlace(rank=ROOT, parent=-1, kind="root", state="ready")]
    for one in session.processes(ranks[: MAX_PLACES - 1]):
        host = hosts[one.rank] if one.rank < len(hosts) else 0
        reported.append(
            session_records.SessionPlace(
                rank=one.rank,
                parent=tree.parents[one.rank],
                kind=_kind(tree, one.rank),
                state=one.state.shown,
                node=name_of(host),
                pid=one.pid,
                incarnation=one.incarnation,
            )
        )
    return session_records.SessionTree(
        id=number, places=reported, left_out=len(ranks) + 1 - len(reported)
    )


def _kind(tree: Tree, rank: int) -> str:
    if tree.is_agent(rank):
        return "agent"
    return "spare" if rank in tree.spares else "junction"
