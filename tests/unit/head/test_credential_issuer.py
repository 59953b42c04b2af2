"""What a head issued and revoked outlives it, also where the store fails at the wrong moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.core.errors import ConfigurationError, SecurityError, StoreFullError
from sapwood.head import calls, credential_issuer
from sapwood.head.credential_issuer import CredentialIssuer, longest_of
from sapwood.security.capabilities import Capability, new_challenge, verify
from sapwood.security.rights import ALL_RIGHTS, Rights
from sapwood.store.sqlite import SqliteStore

PIN = "ab" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Kept:
    """A store, and the offices of the heads that have it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.store = SqliteStore(folder)
        self.noted: list[str] = []
        self.generation = 0

    def open(self) -> CredentialIssuer:
        self.generation += 1
        return CredentialIssuer(
            lambda: self.store, "demo", PIN, self.generation, self.note, clock=self.clock
        )

    def note(self, kind: str, text: str, **more: Any) -> None:
        self.noted.append(f"{kind}: {text} {more.get('facts', {}).get('by', '')}".strip())


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path / "store")
    yield made
    made.store.close()


def issue(made: CredentialIssuer, by: Rights = ALL_RIGHTS, **more: Any) -> calls.IssuedCredential:
    wanted = {"rights": ["run"], "lifetime": 100.0, **more}
    return made.issue(calls.IssueCredential(**wanted), by, ["h:1"], 1000.0)


def test_the_next_head_knows_what_was_issued_and_revoked(kept: Kept) -> None:
    first = kept.open()
    one = issue(first, subject="one")
    kept.clock.now += 1
    two = issue(first, subject="two")
    first.revoke(one.facts.id, "me")
    second = kept.open()
    assert second.issuer == first.issuer
    assert [(facts.subject, facts.revoked > 0) for facts in second.list()] == [
        ("one", True),
        ("two", False),
    ]
    assert one.facts.id in second.denials
    assert second.whole_list().epoch == 1
    assert second.whole_list().generation != first.whole_list().generation
    challenge = new_challenge()
    shown = Capability.parse(two.text).show(challenge, "x")
    rights = verify(shown, second.issuer, "demo", challenge, "x", now=kept.clock.now)
    assert rights.subject == "two"
    assert Capability.parse(two.text).authority == PIN
    assert kept.noted == [
        "credential.issued: issued a credential for one: run",
        "credential.issued: issued a credential for two: run",
        "credential.revoked: revoked the credential of one me",
    ]


def test_secrets_are_kept_nowhere(kept: Kept, tmp_path: Path) -> None:
    made = issue(kept.open())
    key = Capability.parse(made.text)._bytes
    for entry in kept.store.entries("credentials/"):
        assert key not in entry.value
        assert made.text.encode() not in entry.value
    assert made.text not in repr(kept.noted)


def test_what_has_ended_is_forgotten(kept: Kept) -> None:
    made = kept.open()
    issue(made, subject="old")
    short = issue(made, lifetime=10.0)
    made.revoke(short.facts.id)
    stranger = Capability.parse(issue(made).text).attenuate()
    made.revoke(stranger.id)
    kept.clock.now += 50
    assert len(made.list()) == 2
    kept.clock.now += 60
    issue(made)
    assert len(made.list()) == 1
    assert made.whole_list().ids == [stranger.id], "its expiry is unknown"
    kept.clock.now += credential_issuer.UNKNOWN_LIFE
    made.list()
    assert made.whole_list().ids == []
    assert made.whole_list().epoch == 2, "epochs are never used again"


def test_revoked_twice_is_revoked_once(kept: Kept) -> None:
    made = kept.open()
    block = issue(made).facts.id
    first, _ = made.revoke(block)
    again, known = made.revoke(block)
    assert (first.epoch, again.epoch, known) == (1, 1, True)
    for wrong in ("", "x", "A" * 16, "../../etc/passwd"):
        with pytest.raises(SecurityError, match="not the id"):
            made.revoke(wrong)


def test_what_cannot_be_kept_is_not_done(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kept.open()
    block = issue(made).facts.id

    def full(*_args: Any, **_more: Any) -> Any:
        raise StoreFullError("the disk is full")

    monkeypatch.setattr(kept.store, "transact", full)
    with pytest.raises(StoreFullError):
        issue(made)
    with pytest.raises(StoreFullError):
        made.revoke(block)
    assert len(made.list()) == 1
    assert block not in made.denials
    assert made.whole_list().epoch == 0


def test_nobody_gives_more_than_they_have(kept: Kept) -> None:
    made = kept.open()
    by = Rights(
        names=frozenset({"run", "admin"}),
        session="s",
        nodes=frozenset({"n1", "n2"}),
        not_after=kept.clock.now + 50,
    )
    facts = issue(made, by).facts
    assert (facts.session, facts.nodes, facts.not_after) == ("s", "n[1-2]", kept.clock.now + 50)
    assert issue(made, by, nodes="n2").facts.nodes == "n2"
    wider: list[dict[str, Any]] = [{"rights": ["spawn"]}, {"session": "t"}, {"nodes": "n[1-3]"}]
    for wanted in wider:
        with pytest.raises(SecurityError):
            issue(made, by, **wanted)
    wrong: list[dict[str, Any]] = [{"lifetime": 0.5}, {"lifetime": 1001.0}, {"rights": []}]
    for wanted in wrong:
        with pytest.raises(ConfigurationError):
            issue(made, **wanted)


def test_there_is_a_bound_to_what_is_kept(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_issuer, "MAX_ISSUED", 2)
    monkeypatch.setattr(credential_issuer, "MAX_DENIED", 1)
    made = kept.open()
    one, two = issue(made), issue(made)
    with pytest.raises(SecurityError, match="good at once"):
        issue(made)
    made.revoke(one.facts.id)
    with pytest.raises(SecurityError, match="were revoked already"):
        made.revoke(two.facts.id)


def test_without_a_limit_credentials_live_a_year() -> None:
    assert longest_of(0.0) == credential_issuer.UNKNOWN_LIFE
    assert longest_of(10.0) == 10.0
    assert longest_of(1e12) == credential_issuer.UNKNOWN_LIFE
