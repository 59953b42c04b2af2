"""A session acts by the policy of now, but for what its creator has chosen."""

from __future__ import annotations

import pytest

from sapwood.core.errors import ConfigurationError
from sapwood.environment.settings import DisconnectPolicy
from sapwood.head.parts.policy import PolicyRow
from sapwood.session_server.session_policy import AT_FIRST, BY_CREATOR, SessionPolicy


def told(key: str, value: str, origin: str = "set by ann") -> PolicyRow:
    return PolicyRow(key=key, value=value, origin=origin, expected="", about="")


@pytest.mark.row("C4-POLICY")
def test_what_is_set_counts_and_its_origin_is_known() -> None:
    policy = SessionPolicy(3600.0, DisconnectPolicy(), chosen=False)
    assert [(one.key, one.value, one.origin) for one in policy.rows] == [
        ("idle.session", '"1 h"', AT_FIRST),
        ("disconnect.output", '"buffer"', AT_FIRST),
        ("disconnect.buffer", '"1 MiB"', AT_FIRST),
    ]
    wanted = [
        told("idle.session", "60.0"),
        told("disconnect.output", '"drop"'),
        told("disconnect.buffer", '"4 KiB"'),
        told("limits.events", "7"),  # which is not for sessions
    ]
    assert policy.take(wanted)
    assert policy.idle == 60.0
    assert policy.disconnect == DisconnectPolicy(output="drop", buffer=4096)
    assert {one.origin for one in policy.rows} == {"set by ann"}
    assert not policy.take(wanted), "nothing is different"


@pytest.mark.row("C4-POLICY")
def test_what_the_creator_has_chosen_stays() -> None:
    policy = SessionPolicy(0.0, DisconnectPolicy(), chosen=True)
    assert policy.take([told("idle.session", "1.0"), told("disconnect.output", '"block"')])
    assert (policy.idle, policy.rows[0].origin) == (0.0, BY_CREATOR)
    assert policy.disconnect.output == "block"


def test_a_value_of_another_version_changes_nothing() -> None:
    policy = SessionPolicy(5.0, DisconnectPolicy(), chosen=False)
    with pytest.raises(ConfigurationError, match="output"):
        policy.take([told("idle.session", "1.0"), told("disconnect.output", '"burn"')])
    assert policy.idle == 5.0
    assert policy.rows[0].origin == AT_FIRST
