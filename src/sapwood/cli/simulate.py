"""``sapwood simulate``: the protocol and the keeper under virtual time, with faults."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Debug, Json
from sapwood.cli.output import print_json, table, write

EXIT_BROKEN = 1
"""Exit code for an invariant that does not hold."""


def simulate(  # noqa: PLR0913 - the options of a command, each its own
    *,
    seed: Annotated[int, typer.Option(help="The first seed; it decides all that is chance.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, one after the other.")] = 1,
    agents: Annotated[int, typer.Option(min=1, help="Number of agents.")] = 16,
    fanout: Annotated[int, typer.Option(min=0, help="Children of each junction; 0: flat.")] = 4,
    waves: Annotated[int, typer.Option(min=1, help="Waves to run.")] = 5,
    crash: Annotated[float, typer.Option(min=0, max=1, help="Chance of a crash per step.")] = 0.0,
    pause: Annotated[float, typer.Option(min=0, max=1, help="Chance of a pause per step.")] = 0.0,
    zygote: Annotated[
        float, typer.Option(min=0, max=1, help="Chance per step that all processes end.")
    ] = 0.0,
    sever: Annotated[
        float, typer.Option(min=0, max=1, help="Chance of a broken connection per step.")
    ] = 0.0,
    clog: Annotated[
        float, typer.Option(min=0, max=1, help="Chance per step that a connection is clogged.")
    ] = 0.0,
    swizzle: Annotated[
        float, typer.Option(min=0, max=1, help="Chance per step that several are, in turn.")
    ] = 0.0,
    slow: Annotated[
        float, typer.Option(min=0, max=1, help="Part of the places that are slow.")
    ] = 0.0,
    skew: Annotated[
        float, typer.Option(min=0, max=0.5, help="By how much clocks go wrong, of the time.")
    ] = 0.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run waves over a tree while processes fail, and check that nothing is lost or doubled.

    No process is started: the production protocol runs under virtual time. The same options
    give the same course of events.
    """
    from sapwood.testing.injector import Faults  # noqa: PLC0415 - a slow import, wanted only here
    from sapwood.testing.simulation import (  # noqa: PLC0415 - a slow import, wanted only here
        InvariantError,
        Simulation,
        SimulationOptions,
    )

    faults = Faults(
        crash=crash,
        pause=pause,
        zygote=zygote,
        sever=sever,
        clog=clog,
        swizzle=swizzle,
        slow=slow,
        skew=skew,
    )
    totals: dict[str, float] = {}
    with reported(debug=debug, as_json=as_json):
        for number in range(seed, seed + seeds):
            options = SimulationOptions(
                seed=number, agents=agents, fanout=fanout, waves=waves, faults=faults
            )
            try:
                report = Simulation(options).run()
            except InvariantError as error:
                typer.echo(f"sapwood: an invariant does not hold: {error}", err=True)
                raise typer.Exit(EXIT_BROKEN) from error
            for name in report.__struct_fields__:
                totals[name] = totals.get(name, 0) + getattr(report, name)
        if as_json:
            print_json({"seeds": seeds, **totals})
        else:
            rows = [(name, f"{value:,.2f}".removesuffix(".00")) for name, value in totals.items()]
            title = "no invariant broken"
            write(table("", (title, "total>"), [("seeds", str(seeds)), *rows]))
