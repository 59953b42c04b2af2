"""Join tokens: the names and the number of nodes that they admit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import SecurityError, StoreFullError
from sapwood.security import tokens as module
from sapwood.security.tokens import JoinToken, Tokens

PIN = "0123456789abcdef" * 4


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> Tokens:
    return Tokens(PIN, clock)


def test_a_token_is_read_as_it_was_written(tokens: Tokens) -> None:
    token = tokens.create()
    assert JoinToken.parse(f"  {token.text}\n") == token
    assert token.pin == PIN


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "0",
        lambda text: text.replace("swd1", "swd2"),
        lambda text: text.upper(),
        lambda text: text.replace(".", " "),
        lambda text: f"{text}\n{text}",
        lambda text: text.replace("a", "а"),  # noqa: RUF001 - a Cyrillic letter
        lambda text: "swd1." + "a" * 8 + "." + "a" * 52 + "." + "é" * 64,
    ],
)
def test_what_is_no_token_is_refused(tokens: Tokens, change: object) -> None:
    text = tokens.create().text
    assert callable(change)
    changed = change(text if "a" in text else "swd1." + "a" * 8 + "." + "a" * 52 + "." + PIN)
    with pytest.raises(SecurityError, match="not a join token"):
        JoinToken.parse(changed)


@given(st.text(max_size=200))
def test_no_text_ends_the_reader(text: str) -> None:
    try:
        JoinToken.parse(text)
    except SecurityError:
        return
    raise AssertionError(text)


def test_a_token_is_used_up(tokens: Tokens) -> None:
    token = tokens.create(uses=2)
    assert tokens.redeem(token, "a").uses == 1
    assert tokens.redeem(token, "b").uses == 0
    with pytest.raises(SecurityError, match="used before"):
        tokens.redeem(token, "c")
    assert tokens.list() == []


def test_a_token_ends(tokens: Tokens, clock: Clock) -> None:
    token = tokens.create(lifetime=60)
    clock.now += 60
    assert len(tokens.list()) == 1
    clock.now += 0.001
    with pytest.raises(SecurityError, match="expired"):
        tokens.redeem(token, "a")
    assert tokens.list() == []


def test_an_unknown_token_and_a_wrong_secret_are_told_the_same(tokens: Tokens) -> None:
    token = tokens.create()
    unknown = JoinToken("a" * 8, token.secret, PIN)
    wrong = JoinToken(token.id, "a" * 52, PIN)
    said = []
    for one in (unknown, wrong):
        with pytest.raises(SecurityError) as caught:
            tokens.redeem(one, "a")
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert tokens.redeem(token, "a").uses == 0, "a guess used the token up"


def test_a_token_is_for_a_role_and_for_names(tokens: Tokens) -> None:
    token = tokens.create(names="gpu[0-9]")
    for name, role in (("gpu10", "node"), ("cpu1", "node"), ("GPU1", "node"), ("gpu1", "client")):
        with pytest.raises(SecurityError, match="is for a node called"):
            tokens.redeem(token, name, role)
    assert tokens.redeem(token, "gpu1").uses == 0


def test_a_token_keeps_its_place_in_the_tree(tokens: Tokens) -> None:
    assert tokens.redeem(tokens.create(slot=7), "a").slot == 7


def test_a_revoked_token_lets_nobody_in(tokens: Tokens) -> None:
    token = tokens.create()
    assert tokens.revoke(token.id)
    assert not tokens.revoke(token.id)
    with pytest.raises(SecurityError, match="revoked"):
        tokens.redeem(token, "a")


def test_there_is_a_bound_to_tokens_and_those_that_ended_do_not_count(
    tokens: Tokens, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TOKENS", 3)
    for _ in range(3):
        tokens.create(lifetime=10)
    with pytest.raises(SecurityError, match="3 join tokens"):
        tokens.create()
    clock.now += 11
    tokens.create()


def test_the_secret_is_kept_and_shown_nowhere(tokens: Tokens) -> None:
    token = tokens.create()
    assert token.secret not in repr(token)
    (record,) = tokens.list()
    assert token.secret not in repr(record)
    assert token.secret.encode() not in record.digest


def test_what_cannot_be_kept_changes_nothing() -> None:
    """A full disk: no token is used, made or revoked here that is not so in the store."""
    full = False

    def keep(_token: str, _record: object) -> None:
        if full:
            raise StoreFullError("the disk is full")

    tokens = Tokens("0" * 64, lambda: 1000.0, keep)
    token = tokens.create()
    full = True
    with pytest.raises(StoreFullError):
        tokens.redeem(token, "one")
    with pytest.raises(StoreFullError):
        tokens.revoke(token.id)
    with pytest.raises(StoreFullError):
        tokens.create()
    assert [one.id for one in tokens.list()] == [token.id]
    full = False
    assert tokens.redeem(token, "one").uses == 0
