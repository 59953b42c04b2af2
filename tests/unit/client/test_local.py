"""Arguments are checked before any process is started."""

import sys
from typing import Any

import pytest

import sapwood
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.environment.settings import CommSettings, LimitSettings, LogSettings, Settings
from sapwood.session_server.making import AGENT_MEMORY, BASE_MEMORY

MAKING = sys.modules["sapwood.session_server.making"]


def test_more_agents_than_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = BASE_MEMORY + 3 * AGENT_MEMORY
    monkeypatch.setattr(MAKING, "available_memory", lambda: memory)
    with pytest.raises(ResourceError, match="8 agents need about 144 MiB of memory, 94") as caught:
        sapwood.local(agents=8)
    assert caught.value.hint == "use at most 3 agents"


def test_no_memory_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MAKING, "available_memory", lambda: 0)
    with pytest.raises(ResourceError, match="1 agents need") as caught:
        sapwood.local(agents=1)
    assert caught.value.hint == "end something else first"


def test_a_cluster_without_agents() -> None:
    with pytest.raises(ConfigurationError, match="at least one agent"):
        sapwood.local(agents=0)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (Settings(limits=LimitSettings(time=-1)), "limits.time is wrong: expected"),
        (Settings(log=LogSettings(console="loud")), "log.console is wrong: invalid enum"),  # type: ignore[arg-type]  # that is the test
        ({"limits": {"time": 1}}, "settings is a dict"),
    ],
)
def test_settings_made_in_python_are_checked_as_those_of_files(settings: Any, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        sapwood.local(agents=1, settings=settings)


def test_a_transport_that_is_not_installed_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no transport 'unx'") as caught:
        sapwood.local(agents=1, transport="unx")
    assert caught.value.hint == "did you mean unix?"
    with pytest.raises(ConfigurationError, match="no transport 'pigeon'") as caught:
        sapwood.local(agents=1, settings=Settings(comm=CommSettings(transport="pigeon")))
    assert caught.value.hint.startswith("known: ")


def test_a_transport_links_no_machines() -> None:
    settings = Settings(comm=CommSettings(transport="pigeon"))
    with pytest.raises(ConfigurationError, match="links no machines"):
        sapwood.start("nodes:1", settings=settings)
