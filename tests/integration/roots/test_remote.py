"""Front ends that attach through the head's port, as from another machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.core.errors import CommunicationError, InputError, SecurityError
from sapwood.head import calls
from sapwood.head.head import Head
from sapwood.roots.attached import AttachedSession
from sapwood.roots.remote import credential_text, read_credential
from sapwood.security.authority import Authority
from sapwood.security.rights import ALL_RIGHTS

from .conftest import PATIENCE, Until


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


def test_a_credential_gives_no_more_of_a_session_than_it_says(
    credential: str, head: Head, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert credential
    wanted = calls.IssueCredential(rights=["connect", "attach"], session="far", lifetime=60.0)
    file = tmp_path / "ann"
    file.touch(mode=0o600)
    issued = head.office.issue(wanted, ALL_RIGHTS, [], 60.0)
    file.write_text(issued.text)
    monkeypatch.setenv("SAPWOOD_CREDENTIAL_FILE", str(file))
    words = ["session", "credential", "far", "--json", "--cluster"]
    done = CliRunner().invoke(app, [*words, f"sapwood://{head.control.places[0]}"])
    assert done.exit_code == 0, done.output
    watching = json.loads(done.stdout)["credential"]
    for role in ("owner", "user"):
        with pytest.raises(SecurityError, match=f"does not let you be {role}") as refused:
            sapwood.attach(watching, role=role)
        assert "watch" in str(refused.value)
    with sapwood.attach(watching, role="watch") as cluster:
        assert len(cluster.agents) == 2
        head.revoke_credential(issued.facts.id)
        until(lambda: cluster.session.failure is not None)
        assert "its credential was revoked" in str(cluster.session.failure)
    with pytest.raises(SecurityError, match="was revoked"):
        sapwood.attach(watching, role="watch")
