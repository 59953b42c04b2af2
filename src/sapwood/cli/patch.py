"""``sapwood patch``: what of a CUDA source a node without a GPU compiles, and how well it runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Debug, Json
from sapwood.cli.output import print_json
from sapwood.core.errors import BuildError, DataMissingError

if TYPE_CHECKING:
    from sapwood.gpu.cuda.check import Finding

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def patch(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CUDA source.")],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Show only what is wrong with it, not the source.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a CUDA source as a node without a GPU compiles it, and the mode of each kernel.

    What such a node cannot do is an error with its place. --check also says what would work
    there but may go wrong on a GPU.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.gpu.cuda.check import (  # noqa: PLC0415 - --help must not load the parser
            unsupported,
        )
        from sapwood.gpu.cuda.lint import find_traps  # noqa: PLC0415 - as above
        from sapwood.gpu.cuda.parse import read_sources  # noqa: PLC0415 - as above
        from sapwood.gpu.cuda.patch import patch_sources  # noqa: PLC0415 - as above

        sources = read_sources(_with_headers(file))
        refused = [each for source in sources.values() for each in unsupported(source)]
        traps = [each for source in sources.values() for each in find_traps(source)]
        patched = patch_sources(sources)
        kernels = [kernel for each in patched.values() for kernel in each.kernels]
        if as_json:
            text = (
                patched[file.name].text.decode("utf-8", "replace") if file.name in patched else ""
            )
            print_json(
                {
                    "file": str(file),
                    "kernels": kernels,
                    "findings": [*refused, *traps],
                    "source": None if check else text,
                }
            )
        elif not check and not refused and file.name in patched:
            typer.echo(patched[file.name].text.decode("utf-8", "replace"))
        if not as_json:
            _show_findings([*refused, *traps] if check else refused)
            for kernel in kernels:
                why = f" ({kernel.reason})" if kernel.reason else ""
                line = f"{kernel.file}:{kernel.line}: {kernel.name}: {kernel.mode.value}{why}"
                typer.echo(line, err=not check)
        if refused:
            raise BuildError(
                f"{len(refused)} places are not supported on a CPU node",
                where=str(file),
                hint=refused[0].advice,
            )


def _show_findings(findings: list[Finding]) -> None:
    for each in findings:
        typer.echo(f"{each}; {each.advice}" if each.advice else str(each))


def _with_headers(file: Path) -> dict[str, bytes]:
    """Return a source and the local headers that it includes, by their names from its folder."""
    if not file.is_file():
        raise DataMissingError(f"no such file: {file}", where=str(file), hint="check the path")
    found: dict[str, bytes] = {}
    pending = [file.name]
    while pending:
        name = os.path.normpath(pending.pop())
        path = file.parent / name
        if name not in found and path.is_file():
            found[name] = path.read_bytes()
            folder = os.path.dirname(name)  # noqa: PTH120 - a name, not a path of this machine
            pending += [str(Path(folder) / m[1].decode()) for m in _INCLUDE.finditer(found[name])]
    return found
