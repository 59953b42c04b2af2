"""Processes that run as another user begin when there is a certificate for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from sapwood.comm.link import LinkTiming
from sapwood.comm.place_keys import PlaceKeys
from sapwood.contexts import orders
from sapwood.contexts.local_user import LocalUser
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.topology import flat
from sapwood.nodes import messages, session_processes
from sapwood.nodes.session_processes import SessionProcesses
from sapwood.security.credentials import Credentials
from sapwood.session.member import MemberConfiguration, read_configuration
from sapwood.session.shared_reactor import SharedReactor

NOTHING = Credentials("places-n1.demo", b"", b"", b"authority")
FIRST = Credentials("places-n1.demo", b"certificate 1", b"key 1", b"authority")
SECOND = Credentials("places-n1.demo", b"certificate 2", b"key 2", b"authority")
RANK_1 = orders.ProcessSpec("agent", 1, 1)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


class RecordingSpawner:
    """Records its calls."""

    pid = 0

    def __init__(
        self, _plan: Any, configure: orders.ConfigureProcesses, *_: Any, **more: Any
    ) -> None:
        self.environment = configure.environment
        self.shown = [read_configuration(configure.configuration).credentials]
        self.spawned: list[orders.ProcessSpec] = []
        self.owner = more["owner"]

    def reconfigure(self, configuration: bytes) -> None:
        self.shown.append(read_configuration(configuration).credentials)

    def spawn(self, processes: list[orders.ProcessSpec]) -> None:
        self.spawned += processes

    def detach(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Begun:
    """A session of a user who has no home folder."""

    def __init__(self, loop: SharedReactor) -> None:
        self.told: list[messages.ProcessesReported] = []
        configuration = MemberConfiguration(
            cluster="demo",
            folder="",
            keys=PlaceKeys(),
            machine="",
            tree=flat(1),
            timing=LinkTiming(),
            inline_limit=0,
        )
        order = messages.OpenProcesses(
            session="s",
            host=1,
            plan=ZygotePlan(("entries",)),
            configuration=msgspec.msgpack.encode(configuration),
            environment={},
            life=1,
            user="ann",
        )
        owner = LocalUser(
            name="ann", uid=54321, gid=54322, groups=(54322,), home="/nonexistent", shell=""
        )
        self.loop = loop
        self.session = SessionProcesses(order, NOTHING, loop, 1.0, self.told.append, None, owner)

    @property
    def spawner(self) -> RecordingSpawner:
        found: Any = self.session._spawner
        return cast("RecordingSpawner", found)

    @property
    def folder(self) -> Path:
        return self.session._folder


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begun]:
    monkeypatch.setattr(session_processes, "Spawner", RecordingSpawner)
    with contextlib.closing(SharedReactor()) as loop:
        made = Begun(loop)
        yield made
        made.session.wait_closed()
        assert not made.folder.exists()


def test_its_folder_and_its_caches_are_the_users(begun: Begun) -> None:
    status = begun.folder.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (54321, 54322, 0o700)
    assert begun.spawner.environment == {"XDG_CACHE_HOME": f"{begun.folder}/cache"}
    assert begun.spawner.owner is begun.session.owner


def test_nothing_begins_before_there_is_a_certificate(begun: Begun) -> None:
    begun.session.spawn([RANK_1])
    assert begun.spawner.spawned == []
    begun.session.renew(FIRST)
    assert begun.spawner.shown == [NOTHING, FIRST]
    assert begun.spawner.spawned == [RANK_1]
    begun.session.renew(SECOND)
    assert begun.spawner.shown[-1] == SECOND
    assert begun.spawner.spawned == [RANK_1]


def test_a_session_without_a_certificate_ends(begun: Begun) -> None:
    begun.session.uncertified("the authority is stopped")
    assert not begun.session.is_open
    begun.loop.call_later(5.0, begun.loop.stop)
    begun.session.close(begun.loop.stop)
    begun.loop.run()
    assert [one.reason for one in begun.told] == ["the authority is stopped"]


def test_one_that_is_not_renewed_goes_on(begun: Begun) -> None:
    begun.session.renew(FIRST)
    begun.session.uncertified("the authority is stopped")
    assert begun.session.is_open
