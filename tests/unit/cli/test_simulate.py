from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app
from sapwood.comm.streams.streams import Streams


def test_it_says_what_happened() -> None:
    done = CliRunner().invoke(
        app, ["simulate", "--seeds", "3", "--agents", "20", "--crash", "0.003", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["seeds"] == 3
    assert told["waves"] == 15
    assert told["crashes"] > 0


def test_the_table_has_every_figure() -> None:
    done = CliRunner().invoke(app, ["simulate", "--agents", "4"])
    assert done.exit_code == 0, done.output
    assert "no invariant broken" in done.stdout
    assert "restarts" in done.stdout


def test_a_broken_invariant_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Streams, "places_came", lambda _streams, _ranks: [])
    done = CliRunner().invoke(app, ["simulate", "--seeds", "20", "--crash", "0.02"])
    assert done.exit_code == 1
    assert "sapwood simulate --seed" in done.stderr
