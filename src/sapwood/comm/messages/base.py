"""What all messages have in common.

Annotations in this package are types and not text (no ``from __future__ import annotations``): the
decoder is made when it is imported, and would have to compile each of them.
"""

import msgspec


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages."""
