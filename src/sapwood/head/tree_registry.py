"""The trees of sessions as their roots said last: kept in memory, for who looks at them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import msgspec

from sapwood.head import session_records
from sapwood.session.session_life import SessionState


class TreeRegistry:
    """What a head knows of trees; roots tell each head anew, so nothing is written down.

    Example:
        >>> record = session_records.SessionRecord(
        ...     id="5b", name="day", state="detached", on="head", created=1.0
        ... )
        >>> root = session_records.SessionPlace(rank=0, parent=-1, kind="root", state="ready")
        >>> registry = TreeRegistry()
        >>> registry.note(session_records.SessionTree(id="5b", places=[root]))
        >>> (tree,) = registry.changed(session_records.KnownTrees(), [record]).changed
        >>> tree.name, len(tree.places)
        ('day', 1)
        >>> known = session_records.KnownTrees(versions={"5b": tree.version})
        >>> registry.changed(known, [record]).changed
        []
    """

    def __init__(self) -> None:
        self._versions = itertools.count(time.time_ns() // 1000)  # others than a former head's
        self._trees: dict[str, session_records.SessionTree] = {}

    def note(self, tree: session_records.SessionTree) -> None:
        """Note what a root says."""
        self._trees[tree.id] = msgspec.structs.replace(tree, version=next(self._versions))

    def changed(
        self, known: session_records.KnownTrees, sessions: Sequence[session_records.SessionRecord]
    ) -> session_records.SessionTrees:
        """Return the trees that differ from a client's; forget trees of ended sessions.

        Args:
            known: What it has.
            sessions: The sessions that there are.
        """
        live = [one for one in sessions if not SessionState(one.state).is_over]
        self._trees = {one.id: self._trees[one.id] for one in live if one.id in self._trees}
        names = {one.id: one.name for one in sorted(live, key=lambda one: -one.created)}
        wanted = [
            one
            for one, name in names.items()
            if one in self._trees and known.session in {"", one, name, f"{name}#{one}"}
        ]
        changed = [
            msgspec.structs.replace(self._trees[one], name=names[one])
            for one in wanted
            if self._trees[one].version != known.versions.get(one)
        ]
        return session_records.SessionTrees(ids=wanted, changed=changed)
