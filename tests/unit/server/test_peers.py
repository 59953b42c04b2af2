"""Which system user is at the other end of a connection."""

from __future__ import annotations

import os
import socket

import pytest

from sapwood.server.peers import is_loopback, user_of


def test_the_kernel_says_whose_a_connection_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
        with client, server:
            assert user_of(server.getpeername(), server.getsockname()) == os.getuid()
            assert user_of(("127.0.0.1", 1), server.getsockname()) is None
    assert user_of(None, None) is None


@pytest.mark.parametrize("heard", [False, True], ids=["before it is heard", "afterwards"])
def test_nobody_is_at_the_other_end_once_that_is_closed(heard: bool) -> None:
    """The kernel says that such an end is root's, whoever had it, and root may."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
        with server:
            client.sendall(b"GET /shutdown HTTP/1.1\r\n\r\n")
            client.close()
            while heard and server.recv(1024):
                pass
            assert user_of(server.getpeername(), server.getsockname()) is None


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_the_kernel_says_it_for_a_socket_of_both_protocols() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = listening.accept()
            with server:
                peer, here = server.getpeername()[:2], server.getsockname()[:2]
                assert peer == ("::ffff:127.0.0.1", client.getsockname()[1])
                assert is_loopback(peer[0])
                assert user_of(peer, here) == os.getuid()
