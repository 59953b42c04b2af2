"""The floor of a machine besides the head: one process that answers by a TLS socket that blocks.

Run as a script: ``tls_node.py ADDRESS PORT``, with credentials as JSON on standard input. Each
question has 64 bytes; the first 8 are the number of bytes of its answer.
"""

from __future__ import annotations

import json
import socket
import sys

from sapwood.comm.transport.tls_identity import connecting_context
from sapwood.security.credentials import Credentials

QUESTION = 64
"""Bytes of a question."""


def main() -> None:
    """Answer until the connection ends."""
    given = json.loads(sys.stdin.readline())
    head = given.pop("head")
    texts = {name: text.encode() for name, text in given.items() if name != "node"}
    own = Credentials(node=given["node"], **texts)
    with (
        socket.create_connection((sys.argv[1], int(sys.argv[2]))) as plain,
        connecting_context(own).wrap_socket(plain, server_hostname=head) as link,
    ):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers: dict[int, bytes] = {}
        while asked := link.recv(QUESTION):
            nbytes = int.from_bytes(asked[:8], "little")
            if nbytes not in answers:  # float64 ones, as far as there are whole ones
                answers[nbytes] = (b"\0\0\0\0\0\0\xf0\x3f" * (nbytes // 8 + 1))[:nbytes]
            link.sendall(answers[nbytes])


if __name__ == "__main__":
    main()
