"""Credentials, events and policy from the command line of who has the cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app

from .conftest import PATIENCE, Cli, Until


@pytest.mark.row("C4-EVENT")
@pytest.mark.row("C4-POLICY")
def test_an_owner_gives_takes_back_looks_and_decides(
    own_cli: Cli, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = CliRunner()

    def run(*words: str, status: int = 0) -> str:
        """Run a command in this process: that is much faster."""
        done = command.invoke(app, list(words))
        assert done.exit_code == status, (words, done.output, done.stderr)
        return done.stderr if status else done.stdout

    def found(*words: str) -> Any:
        return json.loads(run(*words, "--json"))

    up = own_cli.json("up", "--listen", "127.0.0.1:0", "--no-node", "--set", "nodes.loss_timeout=1")
    url = f"sapwood://{up['places'][0]}"
    follow = subprocess.Popen(
        [sys.executable, "-m", "sapwood", "events", "--follow", "--json", "--kind", "node"],
        env=own_cli.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        # A credential, over TLS, until it is revoked.
        file = tmp_path / "ann"
        made = found("credential", "issue", "--role", "operator", "--for", "ann", "-o", str(file))
        assert "credential" not in made, "it is in the file, and nowhere else"
        monkeypatch.setenv("SAPWOOD_CREDENTIAL_FILE", str(file))
        assert found("node", "list", "--cluster", url) == {"nodes": []}
        (listed,) = found("credential", "list")["credentials"]
        assert (listed["id"], listed["subject"]) == (made["id"], "ann")
        assert "revoked" in run("credential", "revoke", str(file))
        assert "was revoked" in run("node", "list", "--cluster", url, status=7)

        # A policy that removes what is lost.
        run("policy", "set", "recovery.lost_nodes", "remove")
        run("policy", "set", "recovery.patience", "100ms")
        wrong = run("policy", "set", "recovery.lost_nodes", "burn", status=2)
        assert "expected one of keep, remove" in wrong
        assert len(found("policy", "history")["changes"]) == 2
        one = own_cli.join(up["join"], "one")
        one.send_signal(signal.SIGKILL)
        until(lambda: [one["state"] for one in found("node", "list")["nodes"]] == ["removed"])

        # And all of it in the ledger.
        seen = found("events", "--since", "1h")["events"]
        kinds = [event["kind"] for event in seen]
        assert [kind for kind in kinds if kind.startswith("credential")] == [
            "credential.issued",
            "credential.revoked",
            "credential.refused",
        ]
        assert kinds.count("policy.changed") == 2
        only = [event["kind"] for event in found("events", "--nodes", "one")["events"]]
        assert only[0] == "node.joined"
        assert {"node.lost", "node.removed"} <= set(only)
        assert "policy.changed" in run("events", "--kind", "policy")
        assert "is not a kind of event" in run("events", "--kind", "x", status=2)
        assert follow.stdout is not None
        heard = [json.loads(follow.stdout.readline())["kind"] for _ in range(3)]
        assert heard == ["node.joined", "node.lost", "node.removed"]
        secret = file.read_text().split(".")[1].encode()
        for path in (tmp_path / "state").rglob("*"):
            if path.is_file():
                assert secret not in path.read_bytes(), path
    finally:
        follow.send_signal(signal.SIGINT)
        follow.wait(PATIENCE)
        if follow.stdout is not None:
            follow.stdout.close()
