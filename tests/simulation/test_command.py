from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from sapwood.comm.messaging.ordering import ReceiveWindow, SequenceOrder
from sapwood.comm.streams.streams import Streams
from sapwood_simulation import simulation
from sapwood_simulation.__main__ import app


@pytest.mark.slow
def test_it_says_what_happened() -> None:
    done = CliRunner().invoke(app, ["--seeds", "3", "--agents", "20", "--crash", "0.003", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["seeds"] == 3
    assert told["waves"] == 15
    assert told["crashes"] > 0


def test_the_table_has_every_figure() -> None:
    done = CliRunner().invoke(app, ["--agents", "4"])
    assert done.exit_code == 0, done.output
    assert "no invariant broken" in done.stdout
    assert "restarts" in done.stdout


@pytest.mark.slow
def test_a_broken_invariant_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Streams, "places_came", lambda _streams, _ranks: [])
    monkeypatch.setattr(simulation, "PATIENCE", 20.0)  # more would only take longer
    done = CliRunner().invoke(app, ["--seeds", "20", "--crash", "0.02"])
    assert done.exit_code == 1
    assert "python -m sapwood_simulation --seed" in done.stderr
    assert not done.stdout
    done = CliRunner().invoke(app, ["--seeds", "20", "--crash", "0.02", "--json"])
    assert done.exit_code == 1
    assert "python -m sapwood_simulation --seed" in json.loads(done.stdout)["error"]["what"]


@pytest.mark.row("D-6")
@pytest.mark.parametrize("what", ["waves", "streams", "groups", "messages"])
@pytest.mark.slow
def test_what_is_simulated_and_what_goes_wrong_are_options(what: str) -> None:
    words = (
        f"--what {what} --seeds 2 --agents 20 --fanout 3 --waves 2 --crash 0.001 --json "
        "--partition 0.0005 --drop 0.02 --duplicate 0.02 --reorder 0.02 --latency 1e-4 --jitter 1"
    )
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["astray"] > 50) == (what == "messages")
    assert told["waves"] == {"messages": 200}.get(what, 4)


@pytest.mark.parametrize(
    "kind", ["--sync time-out --late next", "--on-loss partial", "--sync none"]
)
@pytest.mark.slow
def test_streams_of_every_kind_are_simulated(kind: str) -> None:
    words = f"--what streams {kind} --own-filters --agents 12 --crash 0.002 --json"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output


def test_a_message_that_is_taken_twice_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def order(inbox: ReceiveWindow[Any], number: int) -> SequenceOrder:
        del inbox, number
        return SequenceOrder.EXPECTED

    monkeypatch.setattr(ReceiveWindow, "_order", order)
    monkeypatch.setattr(ReceiveWindow, "is_next", lambda *_: False)
    monkeypatch.setattr(ReceiveWindow, "waiting", property(lambda inbox: bool(inbox._early)))
    monkeypatch.setattr(ReceiveWindow, "next", lambda inbox: next(iter(inbox._early.values())))
    monkeypatch.setattr(ReceiveWindow, "take", lambda inbox: inbox._early.clear())
    words = "--what messages --seeds 5 --duplicate 0.05 --reorder 0.05"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 1
    assert "python -m sapwood_simulation --what messages --seed 0" in done.stderr
    assert "--duplicate 0.05" in done.stderr


def test_options_of_streams_are_refused_for_others() -> None:
    for words in ("--sync none", "--what messages --own-filters", "--late next --what groups"):
        done = CliRunner().invoke(app, words.split())
        assert done.exit_code == 2, done.output
        assert "--what streams" in done.stderr


def test_its_options_are_in_groups() -> None:
    page = CliRunner().invoke(app, ["--help"]).stdout
    for group in ("Simulated cluster", "Streams", "Processes", "Connections", "Messages"):
        assert f"─ {group}" in page
