"""The other ends of connections: where they are, and whose they are."""

from sapwood.server.peers import Address, is_loopback, user_of

__all__ = [
    "Address",
    "is_loopback",
    "user_of",
]
