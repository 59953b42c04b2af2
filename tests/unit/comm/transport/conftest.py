"""A cluster's authority, and what nodes have of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing

import pytest
import trustme

from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.tls import Credentials


class Authority:
    """Makes credentials."""

    def __init__(self) -> None:
        self.issuer = trustme.CA()
        self.pem = self.issuer.cert_pem.bytes()

    def credentials(
        self,
        node: str,
        *named: str,
        believes: Authority | None = None,
        not_after: dt.datetime | None = None,
    ) -> Credentials:
        """Return credentials of a node; its certificate names it, unless it is told others."""
        issued = self.issuer.issue_cert(*(named or (node,)), not_after=not_after)
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        return Credentials(node, chain, issued.private_key_pem.bytes(), (believes or self).pem)


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="session")
def stranger() -> Authority:
    return Authority()


@pytest.fixture
def loop() -> Iterator[Reactor]:
    with closing(Reactor()) as reactor:
        yield reactor
