"""Machines that join, others that only say so, and heads that are not what they seem."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sapwood.comm import framing
from sapwood.comm.framing import PREFIX, PREFIX_SIZE
from sapwood.core.errors import (
    CommunicationError,
    LeaseLostError,
    SecurityError,
    StoreUnavailableError,
)
from sapwood.nodes import joining
from sapwood.nodes.joining import (
    JOIN_PROTOCOL,
    MAX_REQUEST,
    FirstAnswer,
    JoinGreeting,
    JoinRefused,
    JoinRequest,
    check_clock,
    check_facts,
    check_python,
    join,
)
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.authority import HEAD, Authority, is_issued_by, make_request
from sapwood.security.credentials import Credentials
from sapwood.security.invitations import NODES, Invitation

from .conftest import Head, MakeHead, credentials_of

PATIENCE = 20.0
SHORT = 1.0
"""Seconds that a machine tries where it is to fail."""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.005)


def packed(message: msgspec.Struct) -> bytes:
    return b"".join(joining.packed(message))


def request_with(body: bytes) -> bytes:
    """Return the frame of a request with any body."""
    return b"".join(framing.framed(1, body))


@contextmanager
def connected(head: Head) -> Iterator[ssl.SSLSocket]:
    """Connect as a machine that joins does, and read the greeting."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([JOIN_PROTOCOL])
    host, _, port = head.address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), PATIENCE) as plain,
        context.wrap_socket(plain) as secure,
    ):
        yield secure


def hear(secure: ssl.SSLSocket) -> Any:
    """Return what the head says next; None when it closes the connection."""
    try:
        data = secure.recv(PREFIX_SIZE)
        while data and len(data) < PREFIX_SIZE:
            data += secure.recv(PREFIX_SIZE - len(data))
        if not data:
            return None
        size = PREFIX.unpack(data)[3]
        body = b""
        while len(body) < size:
            body += secure.recv(size - len(body))
    except OSError:
        return None
    return msgspec.msgpack.decode(body)


def request_of(token: Invitation, name: str = "n1") -> JoinRequest:
    _, request = make_request()
    facts = msgspec.structs.replace(NodeFacts.here(), name=name)
    return JoinRequest(token.text, request, facts)


# --- who may join -----------------------------------------------------------------------------


def test_a_machine_with_a_token_becomes_a_node(head: Head, authority: Authority) -> None:
    token = head.tokens.create(slot=3)
    joined = join(token, [head.address])
    assert joined.address == head.address
    assert (joined.answer.rank, joined.answer.configuration) == (3, b"told")
    assert joined.credentials.node == "n3.grove"
    assert is_issued_by(joined.credentials.certificate, authority.certificate)
    assert joined.credentials.key not in repr(joined).encode()
    (request,) = head.admitted
    assert joined.credentials.key not in msgspec.msgpack.encode(request)


def test_a_machine_whose_answer_was_lost_asks_again_with_the_same_key(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = head.server._grant

    def lose(number: int, _answer: object) -> None:
        monkeypatch.setattr(head.server, "_grant", grant)
        head.server._end(number).abort()

    monkeypatch.setattr(head.server, "_grant", lose)
    join(head.tokens.create(uses=2, slot=1), [head.address])
    first, second = head.admitted
    assert first.request == second.request


def test_a_machine_tries_all_addresses(head: Head) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
    joined = join(head.tokens.create(), [closed, head.address])
    assert joined.address == head.address


@pytest.mark.slow
def test_a_head_that_hangs_does_not_keep_a_machine_from_the_next(head: Head) -> None:
    """It accepts connections, as its machine does that for it, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        silent = f"127.0.0.1:{hanging.getsockname()[1]}"
        begun = time.monotonic()
        token = head.tokens.create(slot=1)
        assert join(token, [silent, head.address], 60.0).address == head.address
        assert time.monotonic() - begun < joining.MAX_ATTEMPT / 2


@pytest.mark.slow
def test_a_store_that_is_away_is_no_reason_to_stay_away(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    redeem = head.tokens.redeem
    fails = iter([StoreUnavailableError("no member answers"), LeaseLostError("it is over")])

    def redeemed(token: Invitation, name: str) -> Any:
        error = next(fails, None)
        if error is not None:
            raise error
        return redeem(token, name)

    monkeypatch.setattr(head.tokens, "redeem", redeemed)
    assert join(head.tokens.create(slot=1), [head.address], PATIENCE).answer.rank == 1


@pytest.mark.slow
def test_nobody_there_is_told_with_each_address() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
    token = Invitation(NODES, "a" * 8, "b" * 52, "0" * 64)
    failed: list[str] = []
    with pytest.raises(CommunicationError, match="cannot be reached") as caught:
        join(token, [closed], SHORT, failed=failed.append)
    assert f"{closed}: Connection refused" in caught.value.where
    assert set(failed) == {f"{closed}: Connection refused"}  # the caller is notified meanwhile


def test_a_machine_joins_through_a_unix_socket(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "head.sock"
    host, _, port = head.address.rpartition(":")
    with socket.socket(socket.AF_UNIX) as tunnel:
        tunnel.bind(str(path))
        tunnel.listen()

        def pump(one: socket.socket, other: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := one.recv(65_536):
                    other.sendall(data)
                other.shutdown(socket.SHUT_WR)

        def carry() -> None:
            outer, _ = tunnel.accept()
            with outer, socket.create_connection((host, int(port))) as inner:
                back = threading.Thread(target=pump, args=(inner, outer))
                back.start()
                pump(outer, inner)
                back.join()

        thread = threading.Thread(target=carry)
        thread.start()
        joined = join(head.tokens.create(slot=4), [str(path)])
        thread.join()
    assert joined.address == str(path)
    assert joined.answer.rank == 4


# --- several addresses side by side -----------------------------------------------------------


@pytest.mark.slow
def test_the_first_that_answers_is_taken_and_joined_over_the_same_connection(head: Head) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full:
        silent = f"127.0.0.1:{full.getsockname()[1]}"
        others = [socket.socket() for _ in range(4)]
        for one in others:  # whoever connects from now on hears nothing
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        answer = FirstAnswer([silent, head.address])
        for one in others:
            one.close()
    assert answer.address == head.address
    assert answer.sock is not None
    joined = join(head.tokens.create(slot=5), ["nobody:1"], SHORT, answer=answer)
    assert joined.address == head.address
    assert joined.answer.rank == 5


def test_where_nobody_answers_there_is_no_address() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
    found = FirstAnswer([closed, "no place"], 5.0)
    assert (found.address, found.sock) == ("", None)
    assert FirstAnswer([]).sock is None


def test_a_connection_with_somebody_else_leads_to_the_next_address(head: Head) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        answer = FirstAnswer([f"127.0.0.1:{other.getsockname()[1]}"])
        other.accept()[0].close()  # it speaks no TLS
        joined = join(head.tokens.create(), [head.address], answer=answer)
    assert joined.address == head.address


def test_a_token_lets_one_machine_in(head: Head) -> None:
    token = head.tokens.create()
    join(token, [head.address])
    with pytest.raises(SecurityError, match="used before, or revoked") as caught:
        join(token, [head.address])
    assert caught.value.where == head.address
    assert len(head.admitted) == 1


def test_a_token_that_has_ended_lets_nobody_in(head: Head) -> None:
    token = head.tokens.create(lifetime=5)
    head.now += 6
    with pytest.raises(SecurityError, match="expired"):
        join(token, [head.address])


def test_a_token_that_is_unknown_lets_nobody_in(head: Head) -> None:
    token = Invitation(NODES, "a" * 8, "b" * 52, head.authority.pin)
    with pytest.raises(SecurityError, match="used before, or revoked"):
        join(token, [head.address])
    assert not head.admitted


def test_a_token_for_others_lets_nobody_in(head: Head) -> None:
    of_name = head.tokens.create(names="no machine is called so")
    with pytest.raises(SecurityError, match="called no machine is called so"):
        join(of_name, [head.address])
    assert not head.admitted


def test_a_token_without_a_key_that_can_be_signed_makes_no_node(head: Head) -> None:
    token = head.tokens.create()
    with connected(head) as secure:
        hear(secure)
        secure.sendall(packed(JoinRequest(token.text, b"no request", NodeFacts.here())))
        assert hear(secure)["reason"] == "malformed certificate request"
    join(head.tokens.create(), [head.address])


# --- hostile machines -------------------------------------------------------------------------

NOT_UTF8 = b"\x84\xa4type\xa7request\xa5token\xa2\xff\xfe\xa7request\xc4\x00\xa5facts\x80"
DEEP = b"\x91" * 60_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"GET / HTTP/1.1\r\n\r\n",
        NOT_UTF8,
        DEEP,
        b"\xdf\xff\xff\xff\xff",
        packed(JoinRefused("no"))[PREFIX_SIZE:],
        packed(JoinGreeting(b""))[PREFIX_SIZE:],
    ],
    ids=[
        "nothing",
        "no msgpack",
        "no fields",
        "HTTP",
        "no UTF-8",
        "deep",
        "large map",
        "refusal",
        "greeting",
    ],
)
@pytest.mark.slow
def test_what_is_no_request_is_refused_and_the_next_machine_joins(head: Head, body: bytes) -> None:
    with connected(head) as secure:
        hear(secure)
        secure.sendall(request_with(body))
        assert "malformed" in hear(secure)["reason"]
        assert hear(secure) is None
    join(head.tokens.create(), [head.address])
    until(lambda: not head.joining())


@pytest.mark.parametrize("size", [MAX_REQUEST + 1, 2**32 - 1])
@pytest.mark.slow
def test_a_request_that_is_too_large_is_cut_off(head: Head, size: int) -> None:
    with connected(head) as secure:
        hear(secure)
        secure.sendall(PREFIX.pack(framing.MAGIC, framing.FRAME_VERSION, 1, size, 0))
        assert "malformed" in hear(secure)["reason"]
        assert hear(secure) is None
    join(head.tokens.create(), [head.address])


def test_more_than_a_request_is_cut_off(head: Head) -> None:
    token = head.tokens.create()
    with connected(head) as secure:
        hear(secure)
        secure.sendall(packed(request_of(token)) + b"more")
        assert hear(secure) is None
    assert not head.admitted


def test_a_request_may_come_in_pieces(head: Head) -> None:
    data = packed(request_of(head.tokens.create()))
    with connected(head) as secure:
        hear(secure)
        for start in range(0, len(data), 97):
            secure.sendall(data[start : start + 97])
        assert hear(secure)["node"] == "n0.grove"


def test_half_a_request_is_forgotten_with_its_connection(head: Head) -> None:
    data = packed(request_of(head.tokens.create()))
    with connected(head) as secure:
        hear(secure)
        secure.sendall(data[: len(data) // 2])
        until(lambda: head.joining() == 1)
    until(lambda: not head.joining())
    assert not head.admitted


@pytest.mark.slow
def test_who_says_nothing_is_cut_off_in_time(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "PATIENCE", 0.2)
    with connected(head) as secure:
        assert hear(secure).keys() == {"authority"}
        assert hear(secure) is None
    until(lambda: not head.joining())


@pytest.mark.slow
def test_more_than_may_join_at_once_are_asked_to_try_again(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MAX_JOINING", 2)
    monkeypatch.setattr(joining, "JOIN_TURN", math.inf)  # on a busy machine it would be over
    monkeypatch.setattr(joining, "PATIENCE", 1000.0)
    with ExitStack() as stack:
        for _ in range(2):
            hear(stack.enter_context(connected(head)))
        with connected(head) as third:
            refusal = hear(third)
            assert refusal["again"]
            assert "too many" in refusal["reason"]
        with pytest.raises(CommunicationError, match="too many machines join at once"):
            join(head.tokens.create(), [head.address], SHORT)
        late: list[Any] = []
        token = head.tokens.create()
        waiting = threading.Thread(
            target=lambda: late.append(join(token, [head.address], PATIENCE))
        )
        waiting.start()
    waiting.join(PATIENCE)
    assert len(late) == 1, "it did not try again"


@pytest.mark.slow
def test_those_that_ask_for_nothing_keep_out_nobody(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MAX_JOINING", 2)
    monkeypatch.setattr(joining, "JOIN_TURN", 0.0)
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(head)) for _ in range(2)]
        for one in silent:
            hear(one)
        assert join(head.tokens.create(slot=1), [head.address], SHORT).answer.rank == 1
        assert hear(silent[0]) is None
        until(lambda: head.joining() == 1)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "\x1b[31mred"},
        {"name": ""},
        {"name": "a" * 101},
        {"name": "x/y"},
        {"user": "\n"},
        {"python": "3" * 201},
        {"cores": 0},
        {"cores": 10**9},
        {"pid": 0},
        {"clock": float("nan")},
        {"addresses": ["a"] * 65},
    ],
)
def test_what_a_machine_cannot_be_is_refused(change: dict[str, Any]) -> None:
    facts = NodeFacts.here("gpu-1.example_org")
    check_facts(facts)
    with pytest.raises(SecurityError):
        check_facts(msgspec.structs.replace(facts, **change))


@pytest.mark.parametrize("version", ["3.10.13", "2.7.18", "3", "", "3.x"])
def test_a_python_that_is_too_old_is_refused_and_told_which_to_use(version: str) -> None:
    said = f"its Python is {version or 'unknown'}, and Sapwood needs 3.11 or newer"
    with pytest.raises(SecurityError, match=said) as caught:
        check_python(version)
    assert caught.value.hint == "join with a Python 3.11 or newer that has Sapwood"


@pytest.mark.parametrize("version", ["3.11.0", "3.13.0rc1", "3.99.1", "4.0.0"])
def test_a_python_of_another_minor_version_may_join(version: str) -> None:
    check_python(version)


@pytest.mark.parametrize(
    ("skew", "said"),
    [(-36000.0, "its clock is 10.0 h behind the head's"), (20.0, "its clock is 20 s ahead of")],
)
def test_a_clock_by_which_certificates_are_not_valid_is_named(skew: float, said: str) -> None:
    with pytest.raises(SecurityError, match=said) as caught:
        check_clock(skew, 10.0)
    assert "set the clock" in caught.value.hint
    for right in (-3000.0, 0.0, 10.0):
        check_clock(right, 10.0)


def test_the_end_of_the_head_ends_those_that_join(
    make_head: MakeHead, authority: Authority
) -> None:
    head = make_head(authority)
    with connected(head) as secure:
        hear(secure)
        head.loop.call_soon_threadsafe(head.server.close)
        assert hear(secure) is None


# --- heads that are not what they seem --------------------------------------------------------


class FakeHead:
    """Listens as a head does, sends prescribed bytes, and keeps all bytes that it receives."""

    def __init__(
        self, shown: Credentials, says: list[bytes], folder: Path, *, drips: bool = False
    ) -> None:
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        certificate.write_bytes(shown.certificate)
        key.write_bytes(shown.key)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.set_alpn_protocols([JOIN_PROTOCOL])
        self._says = says
        self._drips = drips
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.settimeout(PATIENCE)
            try:
                with plain, self._context.wrap_socket(plain, server_side=True) as secure:
                    for data in self._says:
                        self._tell(secure, data)
                    while data := secure.recv(65536):
                        self.heard += data
            except OSError:
                continue

    def _tell(self, secure: ssl.SSLSocket, data: bytes) -> None:
        if not self._drips:
            secure.sendall(data)
            return
        for byte in data:
            secure.sendall(bytes([byte]))
            if self._over.wait(0.1):
                return

    def close(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Callable[..., FakeHead]]:
    with ExitStack() as stack:

        def make(shown: Credentials, *says: bytes, drips: bool = False) -> FakeHead:
            return stack.enter_context(closing(FakeHead(shown, [*says], tmp_path, drips=drips)))

        yield make


MakeFake = Callable[..., FakeHead]


@pytest.mark.parametrize(
    "kind", ["another authority", "another leaf", "a node of the cluster", "own greeting"]
)
def test_the_secret_is_never_sent_to_another_head(
    fake: MakeFake, authority: Authority, stranger: Authority, kind: str
) -> None:
    shown, greeting = {
        "another authority": (credentials_of(stranger), stranger.certificate),
        "another leaf": (credentials_of(stranger), authority.certificate),
        "a node of the cluster": (credentials_of(authority, "n1"), authority.certificate),
        "own greeting": (credentials_of(authority), stranger.certificate),
    }[kind]
    middle = fake(shown, packed(JoinGreeting(greeting)))
    token = Invitation(NODES, "a" * 8, "b" * 52, authority.pin)
    with pytest.raises(SecurityError, match="not the head that made the join token") as caught:
        join(token, [middle.address])
    assert "the secret was not sent" in caught.value.hint
    middle.close()
    assert middle.heard == b"", "a wrong head has received something"


@pytest.mark.parametrize(
    "said",
    [
        packed(JoinRefused("go away")),
        packed(JoinGreeting(b"no certificate")),
        b"".join(framing.framed(2, b"")),
        PREFIX.pack(framing.MAGIC, framing.FRAME_VERSION, 2, joining.MAX_MESSAGE + 1, 0),
        b"".join(framing.framed(2, b"\xc1\xff\xff")),
        b"".join(framing.framed(2, NOT_UTF8)),
    ],
    ids=["refusal", "no certificate", "empty", "too much", "garbage", "no UTF-8"],
)
@pytest.mark.slow
def test_what_a_head_may_not_say_first_ends_the_attempt(
    fake: MakeFake, authority: Authority, said: bytes
) -> None:
    middle = fake(credentials_of(authority), said)
    token = Invitation(NODES, "a" * 8, "b" * 52, authority.pin)
    with pytest.raises(SecurityError):
        join(token, [middle.address])
    middle.close()
    assert middle.heard == b""


@pytest.mark.slow
def test_a_head_that_drips_does_not_hold_a_machine_for_ever(
    fake: MakeFake, authority: Authority
) -> None:
    middle = fake(
        credentials_of(authority),
        PREFIX.pack(framing.MAGIC, framing.FRAME_VERSION, 2, 255, 0) + b"x" * 255,
        drips=True,
    )
    token = Invitation(NODES, "a" * 8, "b" * 52, authority.pin)
    begun = time.monotonic()
    with pytest.raises(CommunicationError, match=r"too slow|timed out"):
        join(token, [middle.address], SHORT)
    assert time.monotonic() - begun < 10
    middle.close()
    assert middle.heard == b""


def test_the_right_head_hears_the_token(fake: MakeFake, authority: Authority) -> None:
    # So that the tests above show something: this fake has the head's own key.
    shown = credentials_of(authority, HEAD)
    refusal = packed(JoinRefused("full", "wait"))
    right = fake(shown, packed(JoinGreeting(authority.certificate)), refusal)
    token = Invitation(NODES, "a" * 8, "b" * 52, authority.pin)
    with pytest.raises(SecurityError, match="full"):
        join(token, [right.address])
    right.close()
    assert token.secret.encode() in right.heard
