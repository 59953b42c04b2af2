"""Front ends that attach through the head's port, as from another machine."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.core.errors import CommunicationError, InputError, SecurityError
from sapwood.head.head import Head
from sapwood.roots.attached import AttachedSession
from sapwood.roots.remote import credential_text, read_credential
from sapwood.security.authority import Authority

from .conftest import PATIENCE


@pytest.fixture(scope="module")
def credential(head: Head) -> Iterator[str]:
    """What lets one attach to a session of two agents."""
    with sapwood.create_session(2, name="far", on="local") as cluster:
        with cluster.stream(abs, reduce="sum") as stream:
            stream.broadcast(-1).result(PATIENCE)
        cluster.detach()
    done = CliRunner().invoke(app, ["session", "credential", "far", "--json"], prog_name="sapwood")
    assert done.exit_code == 0, done.output
    yield json.loads(done.stdout)["credential"]
    head.sessions.end("far").result(PATIENCE)


def test_a_front_end_elsewhere_works_as_one_here(credential: str) -> None:
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
    with pytest.raises(CommunicationError, match="cannot connect"):
        sapwood.attach(credential_text(session))
    with pytest.raises(InputError, match="no credential"):
        sapwood.attach("sws1.abc")
