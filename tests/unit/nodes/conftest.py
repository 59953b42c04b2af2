"""A head that machines join, with its loop in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from sapwood.nodes.joining import JoinAnswer, JoinRequest, JoinServer
from sapwood.nodes.port import HeadPort
from sapwood.security.authority import HEAD, Authority, make_request
from sapwood.security.credentials import Credentials
from sapwood.security.invitations import NODES, InvitationStore
from sapwood.session.shared_reactor import SharedReactor


def credentials_of(authority: Authority, node: str = HEAD) -> Credentials:
    key, request = make_request()
    return authority.issue(request, node, key)


class Head:
    """Lets machines join, as the control tree does."""

    def __init__(self, authority: Authority, shown: Credentials | None = None) -> None:
        self.authority = authority
        self.now = 1_000_000.0
        self.tokens = InvitationStore(NODES, authority.pin, lambda: self.now)
        self.admitted: list[JoinRequest] = []
        self.loop = SharedReactor()
        self.server = JoinServer(authority.certificate, self.admit, self.loop)
        self.port = HeadPort("127.0.0.1:0", self.loop, shown or credentials_of(authority))
        self.port.serve_joining(self.server)
        (self.address,) = self.port.addresses
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def admit(self, request: JoinRequest, _peer: str, _address: str) -> JoinAnswer:
        token = NODES.parse(request.token)
        record = self.tokens.redeem(token, request.facts.name)
        self.admitted.append(request)
        node = f"n{record.slot}"
        certificate = self.authority.sign(request.request, node)
        return JoinAnswer(self.authority.node_id(node), certificate, record.slot, 1, b"told")

    def joining(self) -> int:
        """Return how many machines are joining."""
        return len(self.server._open)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.port.close)
        self.loop.call_soon_threadsafe(self.loop.call_later, 0.05, self.loop.stop)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the loop still runs"
        self.loop.close()


MakeHead = Callable[..., Head]


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create("grove")


@pytest.fixture(scope="session")
def stranger() -> Authority:
    return Authority.create("grove")


@pytest.fixture
def make_head() -> Iterator[MakeHead]:
    made: list[Head] = []

    def make(authority: Authority, shown: Credentials | None = None) -> Head:
        made.append(Head(authority, shown))
        return made[-1]

    yield make
    for head in made:
        head.close()


@pytest.fixture
def head(make_head: MakeHead, authority: Authority) -> Head:
    return make_head(authority)
