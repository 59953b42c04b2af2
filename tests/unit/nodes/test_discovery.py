"""What announcements say, and which of them are believed to be those of heads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from zeroconf import ServiceInfo

from sapwood.cli.node_joining import find_line
from sapwood.core.errors import ConfigurationError, NodeLostError, SecurityError
from sapwood.nodes import discovery
from sapwood.nodes.discovery import (
    SERVICE,
    AnnouncedCluster,
    Announcement,
    find_clusters,
    read_announcement,
)
from sapwood.security.invitations import NODES, Invitation

PIN = "0123456789abcdef" * 4
LAB = AnnouncedCluster(name="lab", cluster="sw-1", pin=PIN, addresses=["10.0.0.1:7700"])
TOKEN = Invitation(NODES, "a" * 8, "b" * 52, PIN)


def service(**changed: str) -> ServiceInfo:
    said = {"v": "1", "name": "lab", "cluster": "sw-1", "pin": PIN} | changed
    return ServiceInfo(
        SERVICE,
        f"sw-1.{SERVICE}",
        port=7700,
        parsed_addresses=["10.0.0.1"],
        properties={key: value for key, value in said.items() if value},
    )


def test_what_a_head_announces_is_read() -> None:
    assert read_announcement(service()) == LAB


@pytest.mark.parametrize(
    "changed",
    [
        {"v": "2"},
        {"name": ""},
        {"name": "lab\x1b[31m"},
        {"name": "x" * 33},
        {"cluster": "no name"},
        {"pin": PIN[1:]},
        {"pin": "swd1.secret"},
    ],
)
def test_what_no_head_announces_is_left_out(changed: dict[str, str]) -> None:
    assert read_announcement(service(**changed)) is None


def test_an_announcement_without_a_place_is_left_out() -> None:
    info = service()
    info.addresses = []
    assert read_announcement(info) is None


def test_what_is_on_this_machine_only_is_not_announced() -> None:
    with pytest.raises(ConfigurationError, match="the head listens on this machine only"):
        Announcement(
            AnnouncedCluster(
                name="lab", cluster="sw-1", pin=PIN, addresses=["127.0.0.1:1", "[::1]:1"]
            )
        )


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(ConfigurationError, match="sapwood\\[lan\\]"):
        find_clusters()
    with pytest.raises(ConfigurationError, match="sapwood\\[lan\\]"):
        Announcement(LAB)


def test_a_token_is_completed_by_the_places_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    other = AnnouncedCluster(name="den", cluster="sw-2", pin="f" * 64, addresses=["10.0.0.2:1"])
    asked: list[bool] = []

    def find(enough: Any) -> list[AnnouncedCluster]:
        asked.extend([enough(other), enough(LAB)])
        return [other, LAB]

    monkeypatch.setattr(discovery, "find_clusters", find)
    assert find_line(TOKEN.text) == f"{TOKEN.text}@10.0.0.1:7700"
    assert find_line(f"{TOKEN.text}@192.0.2.1:9") == f"{TOKEN.text}@10.0.0.1:7700"
    assert asked == [False, True] * 2
    with pytest.raises(NodeLostError, match=r"announced are den \(sw-2\), lab \(sw-1\)") as error:
        find_line(Invitation(NODES, "a" * 8, "b" * 52, "e" * 64).text)
    assert "bbbb" not in str(error.value)
    with pytest.raises(SecurityError, match="not a join token"):
        find_line("lab")


@pytest.fixture
def announced() -> Iterator[Announcement]:
    """Announced to this machine itself: nothing leaves it."""
    made = Announcement(LAB, ["127.0.0.1"])
    made.start()
    yield made
    made.close()


@pytest.mark.slow
def test_who_asks_hears_of_it_until_it_is_taken_back(announced: Announcement) -> None:
    assert announced.made.wait(20.0), announced.error

    def is_it(one: AnnouncedCluster) -> bool:
        return one.cluster == "sw-1"

    (found,) = [one for one in find_clusters(20.0, is_it, ["127.0.0.1"]) if is_it(one)]
    assert found == AnnouncedCluster(
        name="lab", cluster="sw-1", pin=PIN, addresses=["127.0.0.1:7700"]
    )
    announced.close()
    assert not [one for one in find_clusters(0.5, is_it, ["127.0.0.1"]) if is_it(one)]
    assert not [one for one in threading.enumerate() if one.name == "sapwood-announce"]
