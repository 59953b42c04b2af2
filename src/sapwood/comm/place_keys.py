"""What the places of a tree show each other: that they belong to it, and which of them they are."""

from __future__ import annotations

import msgspec

from sapwood.core.topology import ROOT


class PlaceKeys(msgspec.Struct, frozen=True):
    """What a process knows of the secrets of its tree.

    The places of one machine belong to one user, who can read the memory of all of them: they have
    one secret in common, which they send to no other process. To a place above on another machine
    each sends a separate token, made for just these two: so one machine cannot speak for the places
    of another, and a junction that has learnt a token cannot show it further up.

    Attributes:
        secret: Of the places of this machine, among each other.
        tokens: What places of this machine show on other machines: by rank, then by the rank of
            the place above.
        expected: At the root: what places on other machines show, by rank.
        junctions: On a machine that others are below: the key of each such junction, by rank, of
            which the tokens are made that it is shown.

    Example:
        >>> root = PlaceKeys(b"here", expected={3: b"three"})
        >>> there = PlaceKeys(b"there", tokens={3: {0: b"three", 7: token_for(b"key", 3)}})
        >>> root.accepts(3, there.shown(3, above=0)), root.accepts(2, b"three")
        (True, False)
        >>> between = PlaceKeys(b"between", junctions={7: b"key"})
        >>> between.accepts(3, there.shown(3, above=7), at=7)
        True
        >>> there.shown(3, above=5)
        b'there'
    """

    secret: bytes = b""
    tokens: dict[int, dict[int, bytes]] = {}
    expected: dict[int, bytes] = {}
    junctions: dict[int, bytes] = {}

    def shown(self, rank: int, above: int) -> bytes:
        """Return what a place of this machine shows to a place above it."""
        tokens = self.tokens.get(rank)
        return self.secret if tokens is None else tokens.get(above, self.secret)

    def accepts(self, rank: int, credential: bytes, at: int = ROOT) -> bool:
        """Whether a place below showed the right thing; it takes as long whatever was shown.

        Args:
            rank: Which it says it is.
            credential: What it showed.
            at: The place that looks.
        """
        accepted = _equal(credential, self.expected.get(rank, self.secret))
        key = self.junctions.get(at)
        if key is not None:
            accepted |= _equal(credential, token_for(key, rank))
        return accepted


def token_for(key: bytes, rank: int) -> bytes:
    """Return what a place shows to a junction of another machine that has a key."""
    from hashlib import blake2b  # noqa: PLC0415 - not needed on one machine

    return blake2b(b"%d" % rank, key=key, digest_size=32, person=b"sapwood-place").digest()


def _equal(shown: bytes, wanted: bytes) -> bool:
    if len(shown) != len(wanted):
        return False
    different = 0
    for one, other in zip(shown, wanted, strict=True):
        different |= one ^ other
    return not different
