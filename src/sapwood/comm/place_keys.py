"""What the places of a tree show each other: that they belong to it, and which of them they are."""

from __future__ import annotations

import msgspec

from sapwood.core.topology import ROOT


class PlaceKeys(msgspec.Struct, frozen=True):
    """What a process knows of the secrets of its tree.

    The places of one machine belong to one user, who can read the memory of all of them: they have
    one secret in common. A place on another machine has a token of its own, which the root
    expects of its rank alone, so that one machine cannot speak for the places of another.

    Attributes:
        secret: Of the places of this machine, among each other.
        tokens: On a machine without the root: what its places show to the root, by rank.
        expected: At the root: what places on other machines show, by rank.

    Example:
        >>> root = PlaceKeys(b"here", expected={3: b"three"})
        >>> there = PlaceKeys(b"there", tokens={3: b"three"})
        >>> root.accepts(3, there.shown(3, above=0)), root.accepts(2, b"three")
        (True, False)
        >>> there.shown(3, above=5)
        b'there'
    """

    secret: bytes = b""
    tokens: dict[int, bytes] = {}
    expected: dict[int, bytes] = {}

    def shown(self, rank: int, above: int) -> bytes:
        """Return what a place of this machine shows to a place above it."""
        return self.tokens.get(rank, self.secret) if above == ROOT else self.secret

    def accepts(self, rank: int, credential: bytes) -> bool:
        """Whether a place below showed the right thing; it takes as long whatever was shown."""
        wanted = self.expected.get(rank, self.secret)
        if len(credential) != len(wanted):
            return False
        different = 0
        for one, other in zip(credential, wanted, strict=True):
            different |= one ^ other
        return not different
