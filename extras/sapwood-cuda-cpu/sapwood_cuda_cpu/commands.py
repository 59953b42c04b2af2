"""``sapwood patch``: what of a CUDA source a node without a GPU compiles, and how well it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from sapwood.errors import BuildError, InputError
from sapwood.plugins.commands import Debug, Json, print_json, reporting, termination_interrupts
from sapwood_cuda_cpu.check import Finding, unsupported
from sapwood_cuda_cpu.executable import build_executable, with_headers
from sapwood_cuda_cpu.lint import find_lanes_in_step, find_traps
from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import KernelMode, patch_sources
from sapwood_cuda_cpu.units import Reading


@reporting
def patch(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CUDA sources.")],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Show only what is wrong with it, not the source.")
    ] = False,
    build: Annotated[
        Path | None,
        typer.Option("--build", metavar="PROGRAM", help="Compile it into a program for this CPU."),
    ] = None,
    include: Annotated[
        list[Path] | None, typer.Option("-I", metavar="DIR", help="A folder of headers.")
    ] = None,
    define: Annotated[
        list[str] | None, typer.Option("-D", metavar="NAME[=VALUE]", help="A macro.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a CUDA source as a node without a GPU compiles it, and the mode of each kernel.

    What such a node cannot do is an error with its place.

    --check also says what would work there but may go wrong on a GPU.

    --build makes a program of sources that have a main(); C++ and C may be among them then.
    """
    macros = dict(_macro(each) for each in define or ())
    if build is not None:
        _build(files, build, include or [], macros, as_json=as_json)
        return
    if len(files) > 1:
        raise InputError("several sources", where="FILE", hint="take one, or say --build")
    _show(files[0], include or [], macros, check=check, as_json=as_json)


def _build(
    files: list[Path], output: Path, include: list[Path], macros: dict[str, str], *, as_json: bool
) -> None:
    with termination_interrupts():  # compilers end too
        kernels = build_executable(files, output, folders=include, macros=macros)
    sources = read_sources(with_headers(files, include), macros)
    _show_findings(find_lanes_in_step(sources.values()), err=True)
    if as_json:
        print_json({"program": str(output), "kernels": kernels})
    else:
        _show_kernels(kernels)


def _macro(text: str) -> tuple[str, str]:
    name, _equals, value = text.partition("=")
    return name, value if _equals else "1"


def _show(
    file: Path, include: list[Path], macros: dict[str, str], *, check: bool, as_json: bool
) -> None:
    # Names are relative to the folder of the source, because a program has such names.
    found = with_headers([file], include)
    names = {name: os.path.relpath(name, file.parent) for name in found}
    sources = read_sources({names[name]: data for name, data in found.items()}, macros)
    refused = [each for source in sources.values() for each in unsupported(source)]
    traps = [each for source in sources.values() for each in find_traps(source)]
    reading = Reading(
        folder=file.parent, include=tuple(each.absolute() for each in include), macros=macros
    )
    patched = patch_sources(sources, reading=reading)
    kernels = [kernel for each in patched.values() for kernel in each.kernels]
    text = patched[file.name].text.decode("utf-8", "replace") if file.name in patched else ""
    if as_json:
        findings = [*refused, *traps]
        shown = None if check else text
        print_json({"file": str(file), "kernels": kernels, "findings": findings, "source": shown})
    else:
        if not check and not refused and text:
            typer.echo(text)
        _show_findings([*refused, *traps] if check else refused)
        if check and not refused and not traps:
            typer.echo(f"{file}: no mistakes found")
        if not check:
            _show_findings(find_lanes_in_step(sources.values()), err=True)
        _show_kernels(kernels, err=not check)
    if refused:
        raise BuildError(
            f"{len(refused)} places are not supported on a CPU node",
            where=str(file),
            hint=refused[0].advice,
        )


def _show_kernels(kernels: Iterable[KernelMode], *, err: bool = False) -> None:
    for kernel in kernels:
        why = f" ({kernel.reason})" if kernel.reason else ""
        where = f"line {kernel.line} of {kernel.file}"
        typer.echo(f"kernel {kernel.name}, {where}: mode {kernel.mode.value}{why}", err=err)


def _show_findings(findings: Iterable[Finding], *, err: bool = False) -> None:
    for each in findings:
        typer.echo(f"{each}; {each.advice}" if each.advice else str(each), err=err)
