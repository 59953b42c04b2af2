"""What a machine shows of itself, and what it does not."""

from __future__ import annotations

import msgspec

from sapwood.security.credentials import Credentials


def test_only_the_name_of_the_node_is_shown() -> None:
    credentials = Credentials("n1.grove", b"certificate", b"the key", b"authority")
    for shown in (repr(credentials), str(credentials), f"{[credentials]}"):
        assert "n1.grove" in shown
        assert "the key" not in shown


def test_credentials_travel_whole_to_the_processes_of_their_machine() -> None:
    credentials = Credentials("n1.grove", b"certificate", b"the key", b"authority")
    sent = msgspec.msgpack.encode(credentials)
    assert msgspec.msgpack.decode(sent, type=Credentials) == credentials
