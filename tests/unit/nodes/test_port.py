"""Where ports listen on machines that lack the addresses of the defaults."""

from __future__ import annotations

import pytest

from sapwood.nodes import port
from sapwood.nodes.port import listen_address

BOTH = ["192.0.2.7", "2001:db8::7", "127.0.0.1", "::1"]
SIX_AND_LOOPBACK = ["2001:db8::7", "127.0.0.1", "::1"]
ONLY_SIX = ["2001:db8::7", "::1"]
ONLY_LOOPBACK = ["127.0.0.1", "::1"]


@pytest.mark.parametrize(
    ("own", "listen", "wanted"),
    [
        (BOTH, "0.0.0.0:0", "0.0.0.0:0"),
        (BOTH, "127.0.0.1:0", "127.0.0.1:0"),
        (SIX_AND_LOOPBACK, "0.0.0.0:7700", "[::]:7700"),
        (SIX_AND_LOOPBACK, "127.0.0.1:0", "127.0.0.1:0"),
        (ONLY_SIX, "0.0.0.0:0", "[::]:0"),
        (ONLY_SIX, "127.0.0.1:7700", "[::1]:7700"),
        (ONLY_SIX, "192.0.2.7:0", "192.0.2.7:0"),
        (ONLY_LOOPBACK, "0.0.0.0:0", "0.0.0.0:0"),
        (BOTH, "[::]:0", "[::]:0"),
    ],
)
def test_defaults_become_addresses_that_the_machine_has(
    own: list[str], listen: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "own_addresses", lambda: own)
    assert listen_address(listen) == wanted
