"""Which child brings in which members of a stream, worked out anew when the tree changes."""

from __future__ import annotations

import msgspec

from sapwood.comm.routing import Router
from sapwood.comm.streams.wave import Ask
from sapwood.core.rankset import to_ranges


class Shares(msgspec.Struct, frozen=True):
    """Who brings in which members of a stream, as the tree stands.

    Attributes:
        version: Of the router, when this was worked out.
        asks: What each child with members below it is asked for in the first attempt.
        missing: Members that are below no child.
        whole: Children all of whose members are there, so that no ranks need be named.
        partly: The other children with members below them.
        concerned: Children below which members are at home.
    """

    version: int
    asks: dict[int, tuple[Ask, ...]]
    missing: frozenset[int]
    whole: tuple[int, ...]
    partly: tuple[int, ...]
    concerned: tuple[int, ...]


def divide(router: Router, members: frozenset[int]) -> Shares:
    """Work out who brings in which members.

    Example:
        >>> from sapwood.comm.messages import Placed
        >>> from sapwood.core.topology import kary
        >>> router = Router(kary(4, 2), 0)
        >>> _ = router.attach(Placed(5, 1, 1, 100, 0)), router.attach(Placed(1, 1, 1, 101, 5))
        >>> shares = divide(router, frozenset({1, 2, 3}))
        >>> shares.asks[5][0].ranks, shares.missing, shares.whole, shares.partly
        (frozenset({1}), frozenset({2, 3}), (), (5,))
    """
    asks: dict[int, tuple[Ask, ...]] = {}
    whole: list[int] = []
    partly: list[int] = []
    concerned: list[int] = []
    missing = set(members)
    for child in router.children:
        homes = members.intersection(router.tree.leaves(child))
        if not homes:
            continue
        concerned.append(child)
        share = members.intersection(router.subtree(child))
        if not share:
            continue
        missing -= share
        asks[child] = (Ask(0, share, to_ranges(share)),)
        (whole if share == homes else partly).append(child)
    return Shares(
        router.version, asks, frozenset(missing), tuple(whole), tuple(partly), tuple(concerned)
    )
