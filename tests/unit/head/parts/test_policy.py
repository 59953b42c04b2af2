"""The policy of a cluster: typed, with origin, changed while all runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.core.errors import ConfigurationError, StoreFullError
from sapwood.environment.configuration import Configuration, load_configuration
from sapwood.head.parts import policy
from sapwood.head.parts.policy import Policy
from sapwood.security.rights import RIGHTS, ROLES
from sapwood.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "store") as made:
        yield made


@pytest.fixture
def base(tmp_path: Path) -> Configuration:
    (tmp_path / "sapwood.toml").write_text(
        '[policy.idle]\nsession = "2 h"\n[policy.roles.analyst]\nrights = ["connect", "run"]\n'
    )
    return load_configuration(folder=tmp_path, variables={"SAPWOOD_POLICY__LIMITS__EVENTS": "3"})


@pytest.fixture
def keeper(store: SqliteStore, base: Configuration) -> Policy:
    return Policy(lambda: store, base, clock=lambda: 1e9)


def origins(keeper: Policy) -> dict[str, str]:
    return {row.key: row.origin for row in keeper.rows()}


def test_each_line_says_where_it_comes_from(keeper: Policy) -> None:
    found = origins(keeper)
    assert found["idle.session"].endswith("sapwood.toml:2")
    assert found["limits.events"] == "SAPWOOD_POLICY__LIMITS__EVENTS"
    assert found["recovery.lost_nodes"] == "default"
    keeper.set("idle.session", "30min", "ann")
    assert origins(keeper)["idle.session"].startswith("set by ann, 2001-09-")
    assert keeper.current.idle.session == 1800.0
    assert keeper.current.limits.events == 3


@pytest.mark.slow
def test_what_is_set_is_there_under_the_next_head_until_it_is_reset(
    store: SqliteStore, base: Configuration, keeper: Policy
) -> None:
    keeper.set("disconnect.output", "drop", "")
    keeper.set("roles.watcher.rights", '["connect"]', "")
    keeper.set('roles."night shift".rights', '["run"]', "")
    again = Policy(lambda: store, base)
    assert _output(again) == "drop"
    assert again.rights_of("watcher") == ["connect"]
    assert again.rights_of("night shift") == ["run"]
    again.set("disconnect.output", "", "")
    assert _output(again) == "buffer"
    assert _output(Policy(lambda: store, base)) == "buffer"
    changes = [(one.key, one.before, one.value) for one in again.history()]
    assert changes[0] == ("disconnect.output", '"buffer"', '"drop"')
    assert changes[-1] == ("disconnect.output", '"drop"', "")


def _output(keeper: Policy) -> str:
    return keeper.current.disconnect.output


@pytest.mark.parametrize(
    ("key", "value", "said", "hint"),
    [
        ("idle.session", "soon", "cannot be 'soon'", "a duration"),
        ("idle.session", "-1", "cannot be", "a duration"),
        ("limits.events", "2.5", "cannot be 2.5", "a whole number"),
        ("recovery.lost_nodes", "burn", "cannot be 'burn'", "one of keep, remove"),
        ("disconnect.buffer", "3 bananas", "cannot be", "a size"),
        ("roles.x.rights", '["fly"]', "unknown right 'fly'", "known:"),
        ("roles.x.rights", "[1]", "cannot be", "a list of texts"),
        ("idle.sesion", "1h", "unknown setting", "session"),
        ("idle", "1h", "unknown setting", ""),
        ("comm.window", "1", "unknown setting", ""),
        ("a b", "1", "not a key", "policy show"),
        ("", "1", "not a key", "policy show"),
        ("x = 1\ny", "1", "unknown setting", ""),
        ("idle.session", "9" * 5000, "characters", ""),
    ],
)
@pytest.mark.slow
def test_what_is_wrong_is_refused_with_what_is_right(
    keeper: Policy, key: str, value: str, said: str, hint: str
) -> None:
    before = keeper.rows()
    with pytest.raises(ConfigurationError, match=said) as caught:
        keeper.set(key, value, "")
    assert hint in caught.value.hint
    assert keeper.rows() == before
    assert keeper.history() == []


def test_watchers_are_told_of_what_is_another_now(keeper: Policy) -> None:
    told: list[tuple[str, str]] = []
    keeper.watch(lambda rows: told.extend((row.key, row.value) for row in rows))
    keeper.set("limits.events", "50", "")
    keeper.set("limits.events", "", "")
    assert told == [("limits.events", "50"), ("limits.events", "3")]


def test_roles_are_those_of_every_cluster_and_those_of_the_policy(keeper: Policy) -> None:
    assert keeper.rights_of("owner") == sorted(RIGHTS)
    assert keeper.rights_of("analyst") == ["connect", "run"]
    with pytest.raises(ConfigurationError, match="'analist' is not a role") as caught:
        keeper.rights_of("analist")
    assert "analyst" in caught.value.hint
    shown = {row.key: row.origin for row in keeper.rows("roles")}
    assert {f"roles.{role}.rights" for role in [*ROLES, "analyst"]} == shown.keys()
    assert shown["roles.owner.rights"] == "default"
    with pytest.raises(ConfigurationError, match="is not set"):
        keeper.rows("roles.nobody.rights")


def test_what_cannot_be_kept_does_not_count(
    keeper: Policy, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any, **_more: Any) -> Any:
        raise StoreFullError("the disk is full")

    monkeypatch.setattr(store, "transact", full)
    with pytest.raises(StoreFullError):
        keeper.set("limits.events", "7", "")
    assert keeper.current.limits.events == 3


def test_what_another_version_has_set_is_left_out(
    store: SqliteStore, base: Configuration, make_kept: Callable[[str], bytes]
) -> None:
    store.put("policy/set/idle.moon", make_kept('"full"'))
    store.put("policy/set/idle.session", make_kept('"never"'))
    store.put("policy/set/limits.events", make_kept("9"))
    found = Policy(lambda: store, base).current
    assert (found.idle.session, found.limits.events) == (7200.0, 9)


@pytest.fixture
def make_kept() -> Callable[[str], bytes]:
    import msgspec  # noqa: PLC0415 - here alone

    return lambda value: msgspec.msgpack.encode(policy._KeptValue(value, 1e9, "x"))


@pytest.mark.slow
def test_history_has_a_bound(keeper: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MAX_HISTORY", 5)
    for number in range(12):
        keeper.set("limits.events", str(number + 1), "")
    assert [one.value for one in keeper.history()] == ["8", "9", "10", "11", "12"]
