"""The store and the socket of a head: what fails is noticed and made anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from sapwood.core.clock import VirtualClock
from sapwood.core.errors import StoreError, StoreInUseError
from sapwood.core.hints import DEFAULT_CLUSTER
from sapwood.environment.component import Component, ComponentAction
from sapwood.environment.lifecycle import State
from sapwood.environment.supervisor import Supervisor
from sapwood.head.components import REFUSALS, HeadStore, ServiceSocket
from sapwood.head.folder import find_head, head_folder
from sapwood.head.protocol.call import HeadPart, call
from sapwood.head.service import ServiceServer
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.security.rights import CONNECT
from sapwood.session.loop_thread import LoopThread

T = TypeVar("T")


class Echo(HeadPart):
    """A call that says what it was given."""

    @call("echo", right=CONNECT)
    def echo(self, value: int) -> int:
        return value


def watched(part: Component) -> tuple[Supervisor, VirtualClock]:
    clock = VirtualClock()
    return Supervisor([part], clock=clock, refusals=REFUSALS), clock


def test_a_store_that_fails_is_opened_again_with_what_it_has(tmp_path: Path) -> None:
    part = HeadStore(tmp_path)
    supervisor, clock = watched(part)
    with supervisor:
        part.opened.put("key", b"value")
        with pytest.raises(StoreInUseError):
            HeadStore(tmp_path)
        part.opened.close()  # as if it had failed
        supervisor.poll()
        assert supervisor.state_of("store") is State.FAILED
        with pytest.raises(StoreError, match="the store of the head is closed"):
            _ = part.opened
        clock.advance(1.0)
        supervisor.poll()
        assert supervisor.state_of("store") is State.READY
        entry = part.opened.get("key")
        assert entry is not None
        assert entry.value == b"value"
        assert supervisor.act("store", ComponentAction.RESTART).works
        assert part.opened.get("key") == entry
    HeadStore(tmp_path).stop()


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("service")
    made.start()
    yield made
    made.stop()


def test_a_socket_that_somebody_removes_is_made_anew(
    thread: LoopThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = head_folder(DEFAULT_CLUSTER)
    folder.mkdir(parents=True)
    server = ServiceServer(thread)
    server.answer([Echo()])
    part = ServiceSocket(folder, "c", server, thread)
    supervisor, clock = watched(part)

    def on_thread(function: Callable[..., T], *args: object) -> T:
        return thread.call(function, *args)

    def client() -> ServiceClient:
        return ServiceClient(
            UnixWay(find_head().socket), lambda _name, _value: None, lambda _reason: None
        )

    on_thread(supervisor.start)
    first = client()
    shutil.rmtree(Path(find_head().socket).parent)
    on_thread(supervisor.poll)
    assert supervisor.view("service").reason.endswith("the socket of the head was removed")
    clock.advance(1.0)
    on_thread(supervisor.poll)
    second = client()
    for one in (first, second):  # earlier clients keep working
        assert one.call(Echo.echo, 1) == 1
        one.close()
    on_thread(supervisor.stop)
    on_thread(server.close)
    assert not Path(find_head().socket).exists()
