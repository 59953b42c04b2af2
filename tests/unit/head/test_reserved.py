"""Which nodes are reserved for the head's user, and which credentials may use them."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sapwood.contexts.launchers.specs import runs_as_head_user
from sapwood.head.reserved import is_reserved, may_use_reserved
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.rights import ALL_RIGHTS, ROLES, Rights

OTHER = next(one for one in pwd.getpwall() if one.pw_uid not in {0, os.geteuid()})
HERE = NodeFacts.here("n1")


def facts(**changes: Any) -> NodeFacts:
    return msgspec.structs.replace(HERE, has_head=False, **changes)


def rights(role: str, **more: Any) -> Rights:
    return Rights(names=frozenset(ROLES[role]), ids=("a",), **more)


def test_a_node_of_the_head_user_on_its_machine_is_reserved() -> None:
    assert is_reserved(facts())
    assert is_reserved(facts(user="0"))
    assert not is_reserved(facts(user=str(OTHER.pw_uid)))
    assert not is_reserved(facts(boot="another machine"))
    assert not is_reserved(None)


def test_a_node_that_reads_the_folder_of_a_head_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its home folder may be on a file server that the head's machine uses, too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert not NodeFacts.here("n1").has_head
    folder = tmp_path / "sapwood" / "heads" / "lab"
    folder.mkdir(parents=True)
    assert not NodeFacts.here("n1").has_head
    (folder / "head.json").touch()
    elsewhere = msgspec.structs.replace(NodeFacts.here("n1"), boot="another machine")
    assert is_reserved(elsewhere)


@pytest.mark.parametrize("role", ROLES)
def test_only_administrators_use_reserved_nodes(role: str) -> None:
    assert may_use_reserved(rights(role), 0.0) == (role in {"owner", "operator"})
    assert may_use_reserved(ALL_RIGHTS, 0.0)


def test_an_administrator_of_some_nodes_is_none_of_the_head() -> None:
    now = time.time()
    assert not may_use_reserved(rights("owner", nodes=frozenset({"n1"})), now)
    assert not may_use_reserved(rights("owner", session="night"), now)
    assert not may_use_reserved(rights("owner", not_after=now - 1), now)


def test_only_the_issuer_names_another_user() -> None:
    assert may_use_reserved(rights("user", user=OTHER.pw_name, issued_user=OTHER.pw_name), 0.0)
    assert not may_use_reserved(rights("user", user=OTHER.pw_name), 0.0)
    own = pwd.getpwuid(os.geteuid()).pw_name
    assert not may_use_reserved(rights("user", user=own, issued_user=own), 0.0)
    assert not may_use_reserved(rights("user", user="root", issued_user="root"), 0.0)
    assert not may_use_reserved(rights("user", user="no-such-user", issued_user="no-such-user"), 0)


def test_sessions_of_the_head_user() -> None:
    of_user = {"local", "ssh:a,b", "nodes:2", "ray:2", "slurm:4", "dask:tcp://a:1"}
    assert {on for on in (*of_user, "head", "kubernetes:4") if runs_as_head_user(on)} == of_user
