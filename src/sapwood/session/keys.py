"""The secrets of a session: which machine gets which of them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from sapwood.comm.place_keys import PlaceKeys, token_for
from sapwood.core.topology import ROOT, Tree, gateways

KEY = 32
"""Bytes of a secret or token."""


class SessionKeys:
    """Makes the secrets of a session, at its root.

    Args:
        tree: The tree.
        hosts: The machine of each place, by rank; none where all are on one.

    Example:
        >>> from sapwood.core.topology import by_host
        >>> tree, hosts = by_host([2, 2], [0, 1])
        >>> keys = SessionKeys(tree, hosts)
        >>> above, below = keys.of(1, tree, hosts), keys.of(2, tree, hosts)
        >>> junction, place = tree.children(0)[0], tree.children(0)[0] + 1
        >>> above.accepts(place, below.shown(place, junction), at=junction)
        True
    """

    def __init__(self, tree: Tree, hosts: Sequence[int]) -> None:
        self._secrets: dict[int, bytes] = {}
        self._junctions: dict[int, bytes] = {}
        self._seen: tuple[Tree, Sequence[int]] | None = None
        self._inner: frozenset[int] = frozenset()
        self._places: dict[int, list[int]] = {}
        self.root = PlaceKeys(self._secret_of(0), expected={})
        for rank, host in enumerate(hosts):
            if host and rank in tree:
                self.renew(rank)

    def renew(self, rank: int) -> None:
        """Let a place that begins on another machine than the root's show something new there."""
        self.root.expected[rank] = secrets.token_bytes(KEY)
        self._junctions[rank] = secrets.token_bytes(KEY)

    def of(self, host: int, tree: Tree, hosts: Sequence[int]) -> PlaceKeys:
        """Return what the places of a machine know, in a tree as it is now."""
        if not host:
            return self.root
        self._look_at(tree, hosts)
        inner, mine = self._inner, self._places.get(host, [])
        tokens: dict[int, dict[int, bytes]] = {}
        for rank in mine:
            shown = tokens[rank] = {ROOT: self.root.expected[rank]}
            for above in tree.above(rank):
                if above in inner and hosts[above] != host:
                    shown[above] = token_for(self._junctions[above], rank)
        junctions = {rank: self._junctions[rank] for rank in mine if rank in inner}
        return PlaceKeys(self._secret_of(host), tokens, junctions=junctions)

    def _look_at(self, tree: Tree, hosts: Sequence[int]) -> None:
        """Note what is the same for all machines: there may be many."""
        if self._seen is not None and self._seen[0] is tree and self._seen[1] is hosts:
            return
        self._seen = (tree, hosts)
        self._inner = gateways(tree, hosts)
        self._places = {}
        for rank, host in enumerate(hosts):
            if rank in tree:
                self._places.setdefault(host, []).append(rank)

    def _secret_of(self, host: int) -> bytes:
        return self._secrets.setdefault(host, secrets.token_bytes(KEY))
