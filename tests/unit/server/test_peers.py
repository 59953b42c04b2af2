"""Which system user is at the other end of a connection."""

from __future__ import annotations

import os
import socket

import pytest

from sapwood.server.peers import user_of


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
