"""Clients that attach through the head's port, as from another machine."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.comm.transport.tls_port import TakeSocket
from sapwood.core.errors import (
    CommunicationError,
    ConfigurationError,
    InputError,
    SecurityError,
)
from sapwood.head import calls
from sapwood.head.head import Head
from sapwood.head.ledger import EventQuery, LedgerEvent
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.security.authority import Authority
from sapwood.security.capabilities import Capability
from sapwood.security.rights import ALL_RIGHTS
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.session_credential import credential_text, read_credential

from .conftest import PATIENCE, Until


@pytest.fixture(scope="module")
def credential(head: Head) -> Iterator[str]:
    """What lets one attach to a session of two agents."""
    with sapwood.connect().create_session(2, name="far", on="local") as cluster:
        with cluster.stream(abs, reduce="sum") as stream:
            stream.broadcast(-1).result(PATIENCE)
        cluster.detach()
    done = CliRunner().invoke(app, ["session", "credential", "far", "--json"], prog_name="sapwood")
    assert done.exit_code == 0, done.output
    yield json.loads(done.stdout)["credential"]
    head.sessions.end("far").result(PATIENCE)


def test_a_client_elsewhere_works_as_one_here(credential: str) -> None:
    with sapwood.attach(credential) as cluster:
        assert isinstance(cluster.session, AttachedSession)
        assert not cluster.session.shares_machine()
        assert cluster.submit(pow, 2, 10).result(PATIENCE) == 1024
        with cluster.stream("echo", reduce={"x": "sum"}) as stream:
            for size in (1, 10_000, 300_000):
                sent = np.arange(float(size))
                got = stream.broadcast({"x": sent}).result(PATIENCE).total["x"]
                assert np.array_equal(got, 2 * sent)
        array = np.ones(200_000)
        assert cluster.submit(np.sum, array).result(PATIENCE) == 200_000
        handle = cluster.detach()
    with sapwood.attach(handle) as here:
        assert here.submit(pow, 2, 3).result(PATIENCE) == 8


def test_who_shows_the_wrong_thing_is_not_let_in(credential: str) -> None:
    known = read_credential(credential)
    wrong = msgspec.structs.replace(known, secret=known.secret[::-1])
    with pytest.raises(SecurityError, match="not one of this session"):
        sapwood.attach(credential_text(wrong))
    other = msgspec.structs.replace(known, authority=Authority.create("other").certificate)
    with pytest.raises(CommunicationError, match="cannot connect"):
        sapwood.attach(credential_text(other))
    session = msgspec.structs.replace(known, session="0000")
    with pytest.raises(CommunicationError, match="has no root at its head"):
        sapwood.attach(credential_text(session))
    with pytest.raises(InputError, match="this is not a credential of a session"):
        sapwood.attach("sws1.abc")


def test_a_session_elsewhere_is_named_by_its_credential(
    credential: str, head: Head, tmp_path: Path
) -> None:
    url = f"sapwood://{head.control.addresses[0]}"
    with pytest.raises(ConfigurationError, match="named by its credential") as caught:
        sapwood.attach("far", cluster=url)
    assert f"`sapwood session credential far --cluster {url}`" in str(caught.value)
    program = tmp_path / "fit"
    CliRunner().invoke(app, ["new", str(program)])
    done = CliRunner().invoke(app, ["run", str(program), "-q", "--session", credential])
    assert done.exit_code == 0, done.output


def line_of(session: str) -> str:
    """Return what the head's user shows of a session."""
    done = CliRunner().invoke(app, ["session", "credential", session, "--json"])
    assert done.exit_code == 0, done.output
    return str(json.loads(done.stdout)["credential"])


@pytest.mark.row("C3-SESS-1")
def test_who_comes_before_the_root_is_announced_waits_for_it(
    head: Head, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """Its root is ready, so the session is made; the head's port does not know of it yet."""
    announced: list[Callable[[], object]] = []
    delegate = head.control.delegate

    def later(tree: str, take: TakeSocket, *, session: bool = False) -> Callable[[], None]:
        announced.append(partial(delegate, tree, take, session=session))
        return lambda: None

    monkeypatch.setattr(head.control, "delegate", later)
    sapwood.connect().create_session(1, name="early", on="local").detach()
    port = head.control._port
    assert port is not None
    with ThreadPoolExecutor(1) as pool:
        line = line_of("early")
        until(lambda: announced)  # the root has come so far, and is held up here
        attaching = pool.submit(sapwood.attach, line)
        until(lambda: port.held == 1)
        end = announced.pop()()
        with attaching.result(PATIENCE) as cluster:
            assert cluster.submit(pow, 2, 10).result(PATIENCE) == 1024
    assert port.held == 0
    assert callable(end)
    end()
    head.sessions.end("early").result(PATIENCE)


@pytest.mark.row("C3-SESS-1")
def test_who_comes_when_the_root_has_begun_again_waits_for_it(head: Head, until: Until) -> None:
    sapwood.connect().create_session(1, name="again", on="local").detach()
    line = line_of("again")
    with sapwood.attach(line):
        pass
    former = head.sessions.find("again").pid
    os.kill(former, signal.SIGKILL)
    until(lambda: head.sessions.find("again").pid not in {0, former})
    with sapwood.attach(line) as cluster:
        assert cluster.submit(pow, 2, 10).result(PATIENCE) == 1024
    head.sessions.end("again").result(PATIENCE)
    with pytest.raises(CommunicationError, match="the session 'again' has no root") as ended:
        sapwood.attach(line)
    assert "session list" in str(ended.value)


@pytest.fixture
def line_for(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Capability], str]:
    """Returns what the holder of a credential attaches to the session by."""

    def make(shown: Capability) -> str:
        file = tmp_path / shown.id
        file.touch(mode=0o600)
        file.write_text(shown.text)
        monkeypatch.setenv("SAPWOOD_CREDENTIAL_FILE", str(file))
        words = ["session", "credential", "far", "--json", "--cluster"]
        done = CliRunner().invoke(app, [*words, f"sapwood://{head.control.addresses[0]}"])
        assert done.exit_code == 0, done.output
        return str(json.loads(done.stdout)["credential"])

    return make


def issued(head: Head, *rights: str) -> Capability:
    wanted = calls.IssueCredential(
        rights=["connect", "attach", *rights], session="far", lifetime=60.0
    )
    return Capability.parse(head.credentials.issue(wanted, ALL_RIGHTS, [], 60.0).text)


def test_a_credential_gives_no_more_of_a_session_than_it_says(
    credential: str, head: Head, line_for: Callable[[Capability], str]
) -> None:
    assert credential
    watching = line_for(issued(head))
    for role in ("owner", "user"):
        with pytest.raises(SecurityError, match=f"does not let you be {role}") as refused:
            sapwood.attach(watching, role=role)
        assert "watch" in str(refused.value)
    with sapwood.attach(watching, role="watch") as cluster:
        assert len(cluster.agents) == 2


@pytest.mark.row("C5-CRED")
def test_a_revoked_credential_ends_what_is_attached_by_it_within_a_second(
    credential: str, head: Head, line_for: Callable[[Capability], str], until: Until
) -> None:
    """Lines of the credential, and of one narrowed from it, are cut and refused; others are not."""
    first, stranger = issued(head, "run"), issued(head, "run")
    narrowed = first.attenuate(rights=["connect", "attach"], subject="a script")
    lines = [line_for(first), line_for(narrowed)]
    with sapwood.attach(credential) as owner, sapwood.attach(line_for(stranger), role="user") as by:
        cut = [sapwood.attach(lines[0], role="user"), sapwood.attach(lines[1], role="watch")]
        try:
            stream = cut[0].stream("echo", reduce={"x": "sum"})
            assert stream.exchange({"x": np.ones(2)}).total["x"][0] == 2
            began = time.monotonic()
            head.part(IssuedCredentials).revoked(first.id, "me")
            until(lambda: all(one.session.failure is not None for one in cut))
            took = time.monotonic() - began
            for one in cut:
                assert isinstance(one.session.failure, SecurityError)
                assert "its credential was revoked" in str(one.session.failure)
            with pytest.raises(SecurityError, match="cut this client off"):
                cut[0].submit(pow, 2, 3).result(PATIENCE)
        finally:
            for one in cut:
                one.detach()
        for line in lines:
            with pytest.raises(SecurityError, match="was revoked"):
                sapwood.attach(line, role="watch")
        for left in (owner, by):
            assert left.submit(pow, 2, 3).result(PATIENCE) == 8

        def noted(kind: str) -> list[LedgerEvent]:
            found = head.ledger.find(EventQuery(kinds=[kind], session="far"))
            return [one for one in found if one.facts.get("credential") == first.id]

        until(lambda: len(noted("credential.cut_off")) == len(noted("credential.refused")) == 2)
        for event in (*noted("credential.cut_off"), *noted("credential.refused")):
            assert event.facts["address"].startswith("127.0.0.1:")
            assert event.facts["client"].startswith("process ")
    assert took < 1.0
