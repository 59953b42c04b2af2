"""What ``sapwood run --dry-run`` shows: what would be built, and how data would be split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from sapwood.cli.present import print_json, shortened, table, write
from sapwood.cli.program import parameter_table
from sapwood.cli.run_inputs import load_data
from sapwood.code.build import LibraryPlan, find_built, plan_build
from sapwood.code.cache import BuildCache
from sapwood.code.describe import ParameterDescription, describe
from sapwood.code.load import load_program
from sapwood.code.run_spec import RunSpec
from sapwood.environment.configuration import load_configuration
from sapwood.gpu.agents import agents_by_default


class PlannedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """The slice of one agent; an agent without items takes no part."""

    agent: int
    start: int
    stop: int
    items: int


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``sapwood run --dry-run --json`` prints; fields are only ever added."""

    program: str
    hash: str
    parameters: tuple[ParameterDescription, ...]
    libraries: tuple[LibraryPlan, ...]
    built: bool
    data: str
    items: int
    agents: int
    fanout: int
    split: list[PlannedSlice]


def show_plan(spec: RunSpec, flags: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what a run would do, having built and started nothing.

    Raises:
        SapwoodError: The program, its parameters, the compiler or the data are wrong.
    """
    plan = make_plan(spec, flags)
    if as_json:
        print_json(plan)
    else:
        _show(plan)


def make_plan(spec: RunSpec, flags: Mapping[str, Any]) -> RunPlan:
    """Return what a run would do.

    Raises:
        SapwoodError: The program, its parameters, the compiler or the data are wrong.
    """
    settings = load_configuration(flags).settings
    program = load_program(spec.program, spec.parameters or {})
    libraries = plan_build(program)
    cache = BuildCache(settings.cache.path(), size_limit=settings.cache.size)
    dataset = load_data(program, spec.data, spec.columns)
    agents = settings.cluster.agents or agents_by_default()
    parts = enumerate(dataset.split(agents, spec.chunk), start=1)
    return RunPlan(
        program=program.name,
        hash=program.hash,
        parameters=describe(program).parameters,
        libraries=libraries,
        built=find_built(program, cache=cache) is not None,
        data=dataset.origin,
        items=dataset.length,
        agents=agents,
        fanout=settings.cluster.fanout,
        split=[
            PlannedSlice(agent=rank, start=part.start, stop=part.stop, items=len(part))
            for rank, part in parts
        ],
    )


def _show(plan: RunPlan) -> None:
    write(Text(f"{plan.program}: nothing is built or run", style="bold"))
    if plan.parameters:
        write("", parameter_table(plan.parameters))
    if plan.libraries:
        write("", _library_table(plan.libraries))
        write("already built" if plan.built else "not built yet: would be built first")
    tree = f"a tree of fan-out {plan.fanout}" if plan.fanout else "a flat tree"
    write("", Text(f"Data: {plan.items} items from {plan.data}"))
    write(Text(f"{plan.agents} agents in {tree}"), "", _split_table(plan.split))


def _library_table(libraries: tuple[LibraryPlan, ...]) -> Table:
    rows: list[tuple[str, str, str]] = []
    for one in libraries:
        rows.append((one.language, "sources", " ".join(one.sources)))
        rows += [("", name, value) for name, value in one.identity.items()]
    return table("Libraries", ("language", "", "made of"), rows, wrap="made of")


def _split_table(split: list[PlannedSlice]) -> Table:
    rows = [
        (str(part.agent), f"{part.start}..{part.stop}" if part.items else "idle", str(part.items))
        for part in split
    ]
    return table("", ("agent>", "slice", "items>"), shortened(rows))
