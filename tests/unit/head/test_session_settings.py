"""What others than the head's user choose of a session's settings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.environment.settings import ClusterSettings, LimitSettings, NodeSettings, Settings
from sapwood.head.session_settings import ALLOWED, OF_CLIENTS, allowed_settings

DEFAULT: dict[str, Any] = msgspec.to_builtins(Settings())
OWN = Settings(
    cluster=ClusterSettings(interpreter=["/opt/python"]),
    nodes=NodeSettings(ssh=["-p", "2222"]),
    limits=LimitSettings(memory=2**30, agents=8),
)


def every_key() -> list[str]:
    return [f"{section}.{name}" for section, table in DEFAULT.items() for name in table]


def with_one(key: str, value: Any) -> dict[str, Any]:
    section, _, name = key.partition(".")
    return {**DEFAULT, section: {**DEFAULT[section], name: value}}


def another(value: Any) -> Any:
    """A value of the same type that no setting has by default."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return ["/home/mine"] if isinstance(value, list) else "/home/mine"


@pytest.mark.row("C5-SESS")
@pytest.mark.parametrize("key", every_key())
def test_every_setting_is_allowed_or_refused_by_name_or_has_no_effect(key: str) -> None:
    section, _, name = key.partition(".")
    before = DEFAULT[section][name]
    words: dict[str, Any] = {
        "cluster.lost_nodes": "leave",
        "limits.checkpoints": 0.5,
        "cluster.shape": "flat",
        "log.console": "off",
        "log.file_level": "off",
        "nodes.missing": "wait",
        "nodes.runtime": "send",
        "nodes.topology": "flat",
        "runs.delegate": "static",
        "runs.gain": 0.5,
    }
    value = words.get(key, another(before))
    if isinstance(before, dict):
        value = {
            "cluster.places": {"1": {"interpreter": ["/home/mine"]}},
            "environment.variables": {"MODE": "test"},
            "log.components": {"comm": {"file": "debug"}},
            "policy.disconnect": {"buffer": 1},
            "policy.idle": {"session": 1.0},
            "policy.limits": {"events": 1},
            "policy.recovery": {"patience": 1.0},
            "policy.restarts": {"limit": 1},
            "policy.roles": {"mine": {"rights": ["admin"]}},
        }[key]
    wanted = with_one(key, value)
    if key in ALLOWED:
        assert allowed_settings(wanted, OWN)[section][name] == value
    elif key.startswith(OF_CLIENTS):
        assert allowed_settings(wanted, OWN)[section][name] == before
    else:
        with pytest.raises(SecurityError, match=f"{key}: only the user of the head"):
            allowed_settings(wanted, OWN)


def test_what_others_do_not_choose_is_as_the_head_has_it() -> None:
    found = allowed_settings(DEFAULT, OWN)
    assert found["cluster"]["interpreter"] == ["/opt/python"]
    assert found["nodes"]["ssh"] == ["-p", "2222"]
    assert (found["limits"]["agents"], found["limits"]["memory"]) == (8, 0)
    assert allowed_settings(msgspec.to_builtins(OWN), OWN)["limits"]["memory"] == 2**30
    assert allowed_settings(None, OWN) is None


def test_shapes_out_of_files_of_the_head_are_refused() -> None:
    for key in ("cluster.shape", "nodes.topology"):
        with pytest.raises(SecurityError, match=key):
            allowed_settings(with_one(key, "file:/root/secret"), OWN)


@pytest.mark.parametrize("wrong", [[], 7, {"cluster": 7}, {"nothing": {}}, {"limits": {"x": 1}}])
def test_what_are_no_settings_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="settings of the session are wrong"):
        allowed_settings(wrong, OWN)
