"""The command of the simulator: protocol and supervisor under virtual time, with faults."""

from __future__ import annotations

import traceback
from enum import StrEnum
from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood_simulation import (
    Faults,
    InvariantError,
    SimulationOptions,
    StreamKind,
    collecting_seldom,
    made,
)

app = typer.Typer(
    pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)

EXIT_BROKEN = 1
"""Exit code for an invariant that does not hold."""


MAX_AGENTS = 1_000_000
"""Agents of a simulated tree: what a machine has memory for."""


class What(StrEnum):
    """The simulated part."""

    WAVES = "waves"
    STREAMS = "streams"
    GROUPS = "groups"
    MESSAGES = "messages"
    PIECES = "pieces"
    MEMBERSHIP = "membership"
    NODES = "nodes"
    SESSIONS = "sessions"
    RUNS = "runs"


class Sync(StrEnum):
    """Whom waves of a stream wait for."""

    ALL = "all"
    TIMEOUT = "time-out"
    NONE = "none"


class Late(StrEnum):
    """What becomes of late contributions."""

    DROP = "drop"
    NEXT = "next"


class OnLoss(StrEnum):
    """What becomes of waves that wait for a lost place."""

    REPLACE = "replace"
    PARTIAL = "partial"
    FAIL = "fail"


SHAPE = "Simulated cluster"
STREAMS = "Streams (--what streams)"
PROCESSES = "Processes that fail"
CONNECTIONS = "Connections that fail, and time"
MESSAGES = "Messages that go astray"


def _chance(panel: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(min=0, max=1, help=text, rich_help_panel=panel)
    return option


@app.command()
def simulate(  # noqa: PLR0913 - the options of a command, each its own
    *,
    what: Annotated[
        What, typer.Option(help="What the places do meanwhile.", rich_help_panel=SHAPE)
    ] = What.WAVES,
    seed: Annotated[
        int,
        typer.Option(help="The first seed; it decides all that is chance.", rich_help_panel=SHAPE),
    ] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many seeds, one after the other.", rich_help_panel=SHAPE)
    ] = 1,
    agents: Annotated[
        int, typer.Option(min=1, max=MAX_AGENTS, help="Number of agents.", rich_help_panel=SHAPE)
    ] = 16,
    fanout: Annotated[
        int, typer.Option(min=0, help="Children of each junction; 0: flat.", rich_help_panel=SHAPE)
    ] = 4,
    spares: Annotated[
        bool,
        typer.Option(
            "--spares", help="Spare junctions stand in for lost ones.", rich_help_panel=SHAPE
        ),
    ] = False,
    waves: Annotated[
        int,
        typer.Option(
            min=1, help="Waves or groups to run, or fifties of messages.", rich_help_panel=SHAPE
        ),
    ] = 5,
    pipelined: Annotated[
        int,
        typer.Option(
            min=1,
            help="Waves and pieces: how many waves are open at a time.",
            rich_help_panel=SHAPE,
        ),
    ] = 1,
    sync: Annotated[
        Sync, typer.Option(help="Streams: whom waves wait for.", rich_help_panel=STREAMS)
    ] = Sync.ALL,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Streams: the time-out of their waves, seconds.",
            rich_help_panel=STREAMS,
        ),
    ] = 0.02,
    late: Annotated[
        Late, typer.Option(help="Streams: treatment of late answers.", rich_help_panel=STREAMS)
    ] = Late.DROP,
    on_loss: Annotated[
        OnLoss,
        typer.Option(
            help="Streams: treatment of waves that lack lost agents.", rich_help_panel=STREAMS
        ),
    ] = OnLoss.REPLACE,
    own_filters: Annotated[
        bool,
        typer.Option(
            "--own-filters", help="Streams: own filters at every place.", rich_help_panel=STREAMS
        ),
    ] = False,
    updates: Annotated[
        float, _chance(STREAMS, "Streams: chance per wave that filters get new code.")
    ] = 0.0,
    crash: Annotated[float, _chance(PROCESSES, "Chance of a crash per step.")] = 0.0,
    pause: Annotated[float, _chance(PROCESSES, "Chance of a pause per step.")] = 0.0,
    zygote: Annotated[float, _chance(PROCESSES, "Chance per step that all processes end.")] = 0.0,
    halt: Annotated[float, _chance(PROCESSES, "Chance per step that the zygote stops.")] = 0.0,
    stall: Annotated[
        float, _chance(PROCESSES, "Part of the new processes that stop before they join.")
    ] = 0.0,
    pause_seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Longest time that something stays so.", rich_help_panel=PROCESSES
        ),
    ] = 6.0,
    sever: Annotated[float, _chance(CONNECTIONS, "Chance of a broken connection per step.")] = 0.0,
    clog: Annotated[
        float, _chance(CONNECTIONS, "Chance per step that a connection is clogged.")
    ] = 0.0,
    swizzle: Annotated[
        float, _chance(CONNECTIONS, "Chance per step that several are, in turn.")
    ] = 0.0,
    partition: Annotated[
        float,
        _chance(CONNECTIONS, "Chance per step that some places are not heard, or hear nothing."),
    ] = 0.0,
    slow: Annotated[float, _chance(CONNECTIONS, "Part of the places that are slow.")] = 0.0,
    skew: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.5,
            help="By how much clocks go wrong, of the time.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = 0.0,
    split: Annotated[
        float, _chance(CONNECTIONS, "Part of the writes that do not arrive whole.")
    ] = 0.0,
    latency: Annotated[
        float,
        typer.Option(
            min=0,
            help="Median seconds to the next place; 0: as it comes.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = 0.0,
    jitter: Annotated[
        float,
        typer.Option(
            min=0, help="How far that scatters: sigma of a log-normal.", rich_help_panel=CONNECTIONS
        ),
    ] = 0.0,
    drop: Annotated[float, _chance(MESSAGES, "Part of the messages that each place loses.")] = 0.0,
    duplicate: Annotated[float, _chance(MESSAGES, "Part of the messages that come twice.")] = 0.0,
    reorder: Annotated[
        float, _chance(MESSAGES, "Part of the messages that others overtake.")
    ] = 0.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run waves over a tree while processes fail, and check that nothing is lost or doubled.

    No process is started: the production protocol runs under virtual time. The same options
    give the same course of events. With --what also streams of any kind, groups, messages from
    place to place, arrays that travel in pieces, a tree that changes meanwhile, nodes that join,
    sessions that clients leave and attach to, and runs that are killed and resume.
    """
    with reported(debug=debug, as_json=as_json):
        faults = Faults(
            crash=crash,
            pause=pause,
            zygote=zygote,
            halt=halt,
            stall=stall,
            sever=sever,
            clog=clog,
            swizzle=swizzle,
            partition=partition,
            slow=slow,
            skew=skew,
            drop=drop,
            duplicate=duplicate,
            reorder=reorder,
            split=split,
            latency=latency,
            jitter=jitter,
            pause_seconds=pause_seconds,
        )
        kind = StreamKind(
            sync=sync.value,
            seconds=seconds,
            late=late.value,
            on_loss=on_loss.value,
            own_filters=own_filters,
            updates=updates,
        )
        totals: dict[str, float] = {}
        if what is not What.STREAMS and kind != StreamKind():
            raise ConfigurationError(
                f"--sync, --seconds, --late, --on-loss, --own-filters and --updates are of "
                f"streams, not of {what.value}",
                hint="say --what streams, or leave them out",
            )
        with collecting_seldom():
            for number in range(seed, seed + seeds):
                options = SimulationOptions(
                    seed=number,
                    agents=agents,
                    fanout=fanout,
                    waves=waves,
                    pipelined=pipelined,
                    faults=faults,
                    spares=spares,
                )
                try:
                    report = made(what.value, options, kind).run()
                except InvariantError as error:
                    if debug:
                        traceback.print_exception(error)
                    broken = f"an invariant does not hold: {error}"
                    typer.echo(f"sapwood: {broken}", err=True)
                    if as_json:
                        print_json({"error": {"code": SapwoodError.code, "what": broken}})
                    raise typer.Exit(EXIT_BROKEN) from error
                for name in report.__struct_fields__:
                    totals[name] = totals.get(name, 0) + getattr(report, name)
        if as_json:
            print_json({"seeds": seeds, **totals})
        else:
            rows = [(name, f"{value:,.2f}".removesuffix(".00")) for name, value in totals.items()]
            title = "no invariant broken"
            write(table("", (title, "total>"), [("seeds", str(seeds)), *rows]))


if __name__ == "__main__":
    app(prog_name="python -m sapwood_simulation")
