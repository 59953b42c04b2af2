"""What a detached run has written is shown where it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sapwood.cli import runs
from sapwood.cli.main import app
from sapwood.comm.machine import machine_id
from sapwood.core.errors import ConfigurationError
from sapwood.head import calls
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.protocol.call import HeadCall


@pytest.mark.parametrize("machine", ["another", machine_id()])
def test_a_run_whose_files_are_elsewhere_is_not_read_from_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str
) -> None:
    folder = tmp_path if machine == "another" else tmp_path / "gone"
    record = calls.RunRecord(
        id="a2938a05",
        program="pi",
        session="",
        state="done",
        created=0.0,
        folder=str(folder),
        machine=machine,
    )

    def asked(_cluster: str, _seconds: float, call: HeadCall[..., Any], *_words: Any) -> Any:
        head = HeadFacts(
            name="nw", cluster="c", version="1", pid=1, started=0.0, addresses=[], clients=1
        )
        return head if call is WholeCluster.facts else record

    monkeypatch.setattr(runs, "asked_head", asked)
    for verb in ("show", "follow"):
        words = ["run", verb, "a29", "--cluster", "sapwood://h:1"]
        done = CliRunner().invoke(app, words, prog_name="sapwood")
        assert done.exit_code == ConfigurationError.exit_code
        assert "on the machine of its head, not here" in done.stderr
        assert "look there: `sapwood run follow a2938a05 --cluster nw`" in done.stderr
