"""The invitations of a cluster or session: the names and the number of holders they admit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError, SecurityError, StoreFullError
from sapwood.security import invitations as module
from sapwood.security.invitations import (
    AGENTS,
    ANY_NUMBER,
    NODES,
    Invitation,
    InvitationRecord,
    InvitationStore,
)

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
def tokens(clock: Clock) -> InvitationStore:
    return InvitationStore(NODES, PIN, clock)


def test_a_token_is_read_as_it_was_written(tokens: InvitationStore) -> None:
    token = tokens.create()
    assert NODES.parse(f"  {token.text}\n") == token
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
def test_what_is_no_token_is_refused(tokens: InvitationStore, change: object) -> None:
    text = tokens.create().text
    assert callable(change)
    changed = change(text if "a" in text else "swd1." + "a" * 8 + "." + "a" * 52 + "." + PIN)
    with pytest.raises(SecurityError, match="not a join token"):
        NODES.parse(changed)


@given(st.text(max_size=200))
def test_no_text_ends_the_reader(text: str) -> None:
    try:
        NODES.parse(text)
    except SecurityError:
        return
    raise AssertionError(text)


def test_a_token_is_used_up(tokens: InvitationStore) -> None:
    token = tokens.create(uses=2)
    assert tokens.redeem(token, "a").uses == 1
    assert tokens.redeem(token, "b").uses == 0
    with pytest.raises(SecurityError, match="used before"):
        tokens.redeem(token, "c")
    assert tokens.list() == []


def test_a_token_ends(tokens: InvitationStore, clock: Clock) -> None:
    token = tokens.create(lifetime=60)
    clock.now += 60
    assert len(tokens.list()) == 1
    clock.now += 0.001
    with pytest.raises(SecurityError, match="expired"):
        tokens.redeem(token, "a")
    assert tokens.list() == []


def test_an_unknown_token_and_a_wrong_secret_are_told_the_same(tokens: InvitationStore) -> None:
    token = tokens.create()
    unknown = Invitation(NODES, "a" * 8, token.secret, PIN)
    wrong = Invitation(NODES, token.id, "a" * 52, PIN)
    said = []
    for one in (unknown, wrong):
        with pytest.raises(SecurityError) as caught:
            tokens.redeem(one, "a")
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert tokens.redeem(token, "a").uses == 0, "a guess used the token up"


def test_a_token_is_for_a_role_and_for_names(tokens: InvitationStore) -> None:
    token = tokens.create(names="gpu[0-9]")
    for name in ("gpu10", "cpu1", "GPU1"):
        with pytest.raises(SecurityError, match="is for a node called"):
            tokens.redeem(token, name)
    assert tokens.redeem(token, "gpu1").uses == 0


def test_a_token_keeps_its_place_in_the_tree(tokens: InvitationStore) -> None:
    assert tokens.redeem(tokens.create(slot=7), "a").slot == 7


def test_a_revoked_token_lets_nobody_in(tokens: InvitationStore) -> None:
    token = tokens.create()
    assert tokens.revoke(token.id)
    assert not tokens.revoke(token.id)
    with pytest.raises(SecurityError, match="revoked"):
        tokens.redeem(token, "a")


def test_there_is_a_bound_to_tokens_and_those_that_ended_do_not_count(
    tokens: InvitationStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INVITATIONS", 3)
    for _ in range(3):
        tokens.create(lifetime=10)
    with pytest.raises(ConfigurationError, match="3 join tokens"):
        tokens.create()
    clock.now += 11
    tokens.create()


def test_the_secret_is_kept_and_shown_nowhere(tokens: InvitationStore) -> None:
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

    tokens = InvitationStore(NODES, "0" * 64, lambda: 1000.0, keep)
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


def test_a_record_of_another_role_admits_nobody() -> None:
    made = NODES.create(PIN)
    record = InvitationRecord(id=made.id, digest=made.digest, role="client", expires=2000.0)
    store = InvitationStore(NODES, PIN, lambda: 1000.0, records=[record])
    with pytest.raises(SecurityError, match="is for a client called"):
        store.redeem(made, "gpu1")


class Users:
    """The invitations of a session, and by which of them an agent is there."""

    def __init__(self, clock: Clock) -> None:
        self.there: set[str] = set()
        self.store = InvitationStore(AGENTS, PIN, clock, in_use=self.there.__contains__)


@pytest.fixture
def users(clock: Clock) -> Users:
    return Users(clock)


def test_any_number_of_agents_may_come_one_after_another(users: Users) -> None:
    made = users.store.create(uses=ANY_NUMBER, addresses=("n1:7700",))
    assert made.line == f"{made.text}@n1:7700"
    for _ in range(3):
        assert users.store.redeem(AGENTS.parse(made.line), "n1").uses == ANY_NUMBER


def test_a_revoked_invitation_is_shown_and_admits_nobody(users: Users) -> None:
    made = users.store.create(uses=ANY_NUMBER)
    assert users.store.revoke(made.id)
    assert not users.store.revoke(made.id)
    assert not users.store.revoke("unknown")
    assert [one.revoked for one in users.store.list()] == [True]
    with pytest.raises(SecurityError, match="the invitation was revoked"):
        users.store.redeem(made, "n1")


def test_invitations_are_found_by_the_credential_of_their_maker(users: Users) -> None:
    makers = (("aa", "bb"), ("bb",), ())
    first, second, third = (users.store.create(by=by).id for by in makers)
    assert users.store.by_credentials({"bb", "cc"}) == [first, second]
    assert users.store.by_credentials({"aa"}) == [first]
    assert third not in users.store.by_credentials({"aa", "bb"})


def test_those_that_are_over_stay_until_their_room_is_needed(
    users: Users, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INVITATIONS", 3)
    old, used, revoked = (users.store.create(lifetime=life).id for life in (10, 10, 1000))
    users.there.add(used)
    users.store.revoke(revoked)
    clock.now += 11
    assert len(users.store.list()) == 3
    users.store.create()
    assert old not in [one.id for one in users.store.list()]
    users.store.create()
    assert revoked not in [one.id for one in users.store.list()]
    with pytest.raises(ConfigurationError, match="3 invitations exist already"):
        users.store.create()
    assert used in [one.id for one in users.store.list()]


def test_a_text_is_of_one_kind(tokens: InvitationStore) -> None:
    with pytest.raises(SecurityError, match="not an invitation of a session"):
        AGENTS.parse(tokens.create().text)


@given(st.lists(st.sampled_from(["n1:7700", "10.0.0.1:1", "[::1]:65535"]), max_size=3))
def test_a_line_says_what_was_invited(places: list[str]) -> None:
    made = AGENTS.create(PIN, tuple(places))
    assert AGENTS.parse(f" {made.line}\n") == made
    assert AGENTS.parse(made.text) == Invitation(AGENTS, made.id, made.secret, PIN, ())
    assert made.secret not in repr(made)
    assert made.digest != AGENTS.create(PIN, ()).digest


@pytest.mark.parametrize(
    "line",
    ["", "swa1", f"swd1.{'a' * 8}.{'b' * 52}.{PIN}@n1:1", f"swa1.{'a' * 8}.{'1' * 52}.{PIN}"],
)
def test_what_is_no_invitation_is_refused(line: str) -> None:
    with pytest.raises(SecurityError, match="not an invitation of a session"):
        AGENTS.parse(line)
