"""A cluster's authority, and what nodes have of it."""

from __future__ import annotations

import datetime as dt
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest
import trustme

from sapwood.comm.reactor import Reactor
from sapwood.security.credentials import Credentials


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
        """Return credentials of a node; its certificate names it, unless other names are given."""
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


@pytest.fixture
def no_descriptors() -> Callable[[], AbstractContextManager[None]]:
    """Lets this process open nothing more, as long as a block runs."""
    return _no_descriptors


@contextmanager
def _no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as highest:
        last = highest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
