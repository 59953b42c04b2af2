"""What ``sapwood credential`` does without a head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app
from sapwood.security.capabilities import Issuer
from sapwood.security.credential_file import read_secret, write_secret


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = Issuer.create().issue(
        "demo", ["connect", "run"], not_after=4e9, nodes="gpu[1-4]", subject="ann"
    )
    write_secret(tmp_path / "mine", made.text)
    return tmp_path / "mine"


def run(*words: str, status: int = 0, given: str = "") -> str:
    done = CliRunner().invoke(app, list(words), input=given)
    assert done.exit_code == status, (done.output, done.stderr)
    return done.stderr if status else done.stdout


def test_a_credential_is_narrowed_without_a_head(file: Path, tmp_path: Path) -> None:
    less = tmp_path / "less"
    run("credential", "attenuate", str(file), "--rights", "run", "--ttl", "1h", "-o", str(less))
    assert less.stat().st_mode & 0o777 == 0o600
    said = json.loads(run("credential", "show", str(less), "--json"))
    assert (said["rights"], said["nodes"], said["subject"]) == (["run"], "gpu[1-4]", "ann")
    assert len(said["ids"]) == 2
    assert json.loads(run("credential", "show", "-", "--json", given=less.read_text())) == said
    assert "gpu[1-4]" in run("credential", "show", str(less))


def test_a_key_is_made_once(file: Path, tmp_path: Path) -> None:
    key = str(tmp_path / "key")
    public = run("credential", "key", key)
    assert public.startswith("swh1.")
    assert run("credential", "key", key) == public
    bound = run("credential", "attenuate", str(file), "--holder", public.strip())
    said = json.loads(run("credential", "show", "-", "--json", given=bound))
    assert said["holder"] == public.strip()
    assert read_secret(Path(key)).startswith("swk1.")


def test_what_is_wrong_is_said(file: Path, tmp_path: Path) -> None:
    assert "command line" in run("credential", "show", file.read_text().strip(), status=2)
    wrong = run("credential", "attenuate", str(file), "--rights", "admin", status=7)
    assert "does not give admin" in wrong
    assert "already" in run("credential", "attenuate", str(file), "-o", str(file), status=7)
    file.chmod(0o644)
    assert "chmod 600" in run("credential", "show", str(file), status=7)
