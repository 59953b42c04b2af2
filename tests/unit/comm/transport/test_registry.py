from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from sapwood.comm.transport import registry
from sapwood.comm.transport.registry import Transports, transport_of_machine
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import ConfigurationError


class Pigeon(UnixTransport):
    """A transport of another package."""


def test_the_scheme_decides() -> None:
    transport, rest = Transports().find("unix:/run/a.sock")
    assert isinstance(transport, UnixTransport)
    assert rest == "/run/a.sock"


def test_what_is_given_counts() -> None:
    transport, rest = Transports({"tcp": Pigeon}).find("tcp://host:7000")
    assert isinstance(transport, Pigeon)
    assert rest == "host:7000"


def test_a_plugin_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("pigeon", f"{Pigeon.__module__}:Pigeon", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _entry: Pigeon)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group else [])
    transports = Transports()
    assert "pigeon" in transports.schemes
    assert isinstance(transports.find("pigeon:home")[0], Pigeon)


@pytest.mark.parametrize(("address", "hint"), [("unx:/a", "did you mean unix"), ("/a", "known")])
def test_an_unknown_scheme_is_said(address: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Transports().find(address)
    assert hint in caught.value.hint


def test_the_places_of_a_machine_are_linked_by_unix_sockets_unless_another_is_named() -> None:
    assert isinstance(transport_of_machine(""), UnixTransport)
    with pytest.raises(ConfigurationError, match="no transport 'pigoen'"):
        transport_of_machine("pigoen")


def test_a_plugin_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("pigeon", "no_such_module:Pigeon", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group else [])
    with pytest.raises(ConfigurationError, match="'pigeon' cannot be loaded") as caught:
        transport_of_machine("pigeon")
    assert caught.value.where == "no_such_module:Pigeon"
