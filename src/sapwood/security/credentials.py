"""What a machine shows to the others of its cluster."""

from __future__ import annotations

import msgspec


class Credentials(msgspec.Struct, frozen=True):
    """A certificate with its key, and the authority that the others' certificates come from.

    Attributes:
        node: The node id that the certificate names, a DNS name.
        certificate: The certificate, PEM.
        key: Its private key, PEM; it never leaves the machine that made it.
        authority: The certificate of the authority, PEM.
    """

    node: str
    certificate: bytes
    key: bytes
    authority: bytes

    def __repr__(self) -> str:
        return f"<Credentials of {self.node}>"
