"""Which hosts requests to lizard-slayer's server may name."""

from __future__ import annotations

import contextlib

import pytest

from sapwood_lizard.serving import Place


@pytest.mark.parametrize("token", [False, True])
def test_without_a_token_only_this_machine(*, token: bool) -> None:
    place = Place("127.0.0.1", 0, token=token, certificate=None, key=None)
    with contextlib.closing(place):
        for name in ("localhost", "127.0.0.1", "::1"):
            assert place.is_own_host(name)
        for name in ("example.org", "localhost.example.org", "10.0.0.1"):
            assert place.is_own_host(name) is token
