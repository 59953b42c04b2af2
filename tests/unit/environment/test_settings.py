from pathlib import Path
from typing import Any

import pytest

from sapwood.core.errors import ConfigurationError
from sapwood.environment.schema import all_settings
from sapwood.environment.settings import (
    CacheSettings,
    CommSettings,
    RestartSettings,
    Settings,
)


def test_every_setting_is_explained_and_has_a_known_form() -> None:
    for setting in all_settings():
        assert setting.about.endswith("."), setting.key
        assert setting.expected(), setting.key


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().cluster.agents = 3  # type: ignore[misc]  # that it is refused is the test


def test_times_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="heartbeat"):
        CommSettings(heartbeat=10, failure_after=5)
    with pytest.raises(ConfigurationError, match="backoff"):
        RestartSettings(backoff=10, backoff_max=5)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CacheSettings().path() == tmp_path / "sapwood"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CacheSettings().path() == tmp_path / ".cache" / "sapwood"
    assert CacheSettings(folder="~/x").path() == tmp_path / "x"


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"heartbeat": 0.0}, "comm.heartbeat"),
        ({"max_message": 1}, "comm.max_message"),
    ],
)
def test_what_no_tree_can_live_with_is_refused(values: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CommSettings(**values)
    assert caught.value.where == where
    assert "at least" in caught.value.hint
