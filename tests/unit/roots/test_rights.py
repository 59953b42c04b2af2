"""Who may be what to a session."""

from __future__ import annotations

import pytest

from sapwood.core.errors import SecurityError
from sapwood.roots.rights import ALL, same_user, secret_holder
from sapwood.roots.wire import AskToAttach


def test_a_secret_lets_in_who_knows_it() -> None:
    verify = secret_holder("abc")
    assert verify(AskToAttach(version=1, session="s", secret="abc")) == ALL  # noqa: S106 - a test
    for wrong in ("", "abd", "abcd", "é"):
        with pytest.raises(SecurityError):
            verify(AskToAttach(version=1, session="s", secret=wrong))
    assert same_user(AskToAttach(version=1, session="s")) == ALL
