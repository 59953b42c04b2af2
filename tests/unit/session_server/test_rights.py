"""Rights of the clients of a session."""

from __future__ import annotations

import math

import pytest

from sapwood.core.errors import SecurityError
from sapwood.head.authorizer import Authorizer
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.security.rights import ALL_RIGHTS, Rights
from sapwood.security.session_secrets import limited_secret
from sapwood.session_server.rights import ALL, ClientRole, same_user, secret_holder
from sapwood.session_server.wire import AskToAttach

WATCHER, USER, OWNER = ClientRole.WATCHER, ClientRole.USER, ClientRole.OWNER


def asked(secret: str, session: str = "s") -> AskToAttach:
    return AskToAttach(version=1, session=session, secret=secret)


def test_a_secret_lets_in_who_knows_it() -> None:
    verify = secret_holder("abc")
    assert verify(asked("abc")) == ALL
    for wrong in ("", "xyz", "abcd", "é", ":", "owner:inf:", "owner:inf:abc"):
        with pytest.raises(SecurityError):
            verify(asked(wrong))
    assert same_user(asked("")) == ALL


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        ("connect attach", {WATCHER}),
        ("connect attach delete", {WATCHER}),
        ("connect attach run", {WATCHER, USER}),
        ("connect attach run delete", {WATCHER, USER, OWNER}),
    ],
)
def test_nobody_gets_more_in_a_session_than_their_rights(
    names: str, roles: set[ClientRole]
) -> None:
    rights = Rights(names=frozenset(names.split()), not_after=2000.0)
    shown = Authorizer.secret_for(rights, "abc", "s")
    assert "abc" not in shown
    found = secret_holder("abc", lambda: 1999.0)(asked(shown))
    assert (set(found.roles), found.not_after) == (roles, 2000.0)
    with pytest.raises(SecurityError, match="expired"):
        secret_holder("abc", lambda: 2000.0)(asked(shown))
    for other in (secret_holder("xyz"), secret_holder("")):
        with pytest.raises(SecurityError, match="not one of this session"):
            other(asked(shown))
    with pytest.raises(SecurityError, match="not one of this session"):
        secret_holder("abc")(asked(shown, "another"))
    for forged in (shown.replace("2000", "9000"), "owner" + shown[shown.index(":") :]):
        if forged != shown:
            with pytest.raises(SecurityError, match="not one of this session"):
                secret_holder("abc", lambda: 0.0)(asked(forged))


def test_the_user_of_the_head_gets_all_of_it() -> None:
    assert Authorizer.secret_for(ALL_RIGHTS, "abc", "s") == "abc"
    kept = limited_secret("abc", "s", "user", math.inf)
    assert secret_holder("abc")(asked(kept)).roles == {WATCHER, USER}


def test_what_comes_of_a_credential_is_refused_when_one_of_its_blocks_is_revoked() -> None:
    rights = Rights(names=frozenset({"attach", "run", "delete"}), ids=("aa", "bb"))
    shown, denials = Authorizer.secret_for(rights, "abc", "s"), Denials()
    verify = secret_holder("abc", denials=denials)
    assert shown != "abc", "it would outlive the credential"
    assert verify(asked(shown)).credential == ("aa", "bb")
    with pytest.raises(SecurityError, match="not one of this session"):
        verify(asked(shown.replace("aa.bb", "cc.bb")))
    denials.take(DenialUpdate(since=0, epoch=1, ids=["aa"]))
    with pytest.raises(SecurityError, match="was revoked"):
        verify(asked(shown))
    assert verify(asked("abc")).roles == set(ClientRole)
