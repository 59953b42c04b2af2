"""What rights allow, and why they do not."""

from __future__ import annotations

import pytest

from sapwood.core.errors import SecurityError
from sapwood.security.rights import ALL_RIGHTS, RIGHTS, Rights, read_rights


def test_the_user_of_the_head_may_do_everything() -> None:
    for right in RIGHTS:
        ALL_RIGHTS.require(right, 1e12, session="s", node="n1")


def test_rights_for_one_session_are_for_no_other_and_for_nothing_general() -> None:
    rights = Rights(names=frozenset({"connect", "attach", "create"}), session="s")
    rights.require("attach", 0.0, session="s")
    rights.require("connect", 0.0)
    for session in ("t", ""):
        with pytest.raises(SecurityError, match="for the session 's'"):
            rights.require("create", 0.0, session=session)


def test_rights_for_some_nodes_are_for_no_others_and_do_not_rule_the_cluster() -> None:
    rights = Rights(names=frozenset({"spawn", "admin", "run"}), nodes=frozenset({"n1"}))
    rights.require("spawn", 0.0, node="n1")
    rights.require("admin", 0.0, node="n1")
    rights.require("run", 0.0)
    for right, node in (("spawn", "n2"), ("admin", "n2"), ("admin", "")):
        with pytest.raises(SecurityError, match="other nodes"):
            rights.require(right, 0.0, node=node)


def test_rights_end() -> None:
    rights = Rights(names=frozenset({"run"}), not_after=5.0)
    assert rights.allows("run", 4.9)
    assert not rights.allows("run", 5.0)


def test_what_is_no_right_is_named() -> None:
    with pytest.raises(SecurityError, match=r"unknown right 'spwan'.*did you mean spawn"):
        read_rights(["run", "spwan"])
