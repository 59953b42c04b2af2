"""The trees of sessions as their roots said last: kept in memory, for who looks at them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import msgspec

from sapwood.head import calls
from sapwood.session.session_life import SessionState


class TreeRegistry:
    """What a head knows of trees; roots tell each head anew, so nothing is written down.

    Example:
        >>> record = calls.SessionRecord(
        ...     id="5b", name="day", state="detached", on="head", created=1.0
        ... )
        >>> root = calls.SessionPlace(rank=0, parent=-1, kind="root", state="ready")
        >>> registry = TreeRegistry()
        >>> registry.note(calls.SessionTree(id="5b", places=[root]))
        >>> (tree,) = registry.changed(calls.KnownTrees(), [record]).changed
        >>> tree.name, len(tree.places)
        ('day', 1)
        >>> registry.changed(calls.KnownTrees(versions={"5b": tree.version}), [record]).changed
        []
    """

    def __init__(self) -> None:
        self._versions = itertools.count(time.time_ns() // 1000)  # others than a former head's
        self._trees: dict[str, calls.SessionTree] = {}

    def note(self, tree: calls.SessionTree) -> None:
        """Note what a root says."""
        self._trees[tree.id] = msgspec.structs.replace(tree, version=next(self._versions))

    def changed(
        self, known: calls.KnownTrees, sessions: Sequence[calls.SessionRecord]
    ) -> calls.SessionTrees:
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
        return calls.SessionTrees(ids=wanted, changed=changed)
