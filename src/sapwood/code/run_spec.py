"""What a run is. Each option of a run is declared here, on one line, and nowhere else.

A field of :class:`RunSpec` is an argument of ``cluster.run`` and an option of ``sapwood run``. A
head keeps the spec of a detached run, and agents get the fields of :class:`RunOptions`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from sapwood.core.options import PATH, SECONDS, option, option_fields

if TYPE_CHECKING:
    from sapwood.code.program import Program

    ProgramSource = Program | type[Program] | str | Path
    FileName = str | Path
else:  # the types that a head decodes
    ProgramSource, FileName = Any, str


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a run that its agents get as well."""

    chunk: Annotated[
        int | None, option("Items that stay together when data are split.", "N", least=1)
    ] = None
    time_limit: Annotated[
        float | None,
        option("Longest time of one map call.", "TIME", unit=SECONDS, setting="limits.time"),
    ] = None
    run_time_limit: Annotated[
        float | None,
        option(
            "Longest time of the whole run, including builds; then it fails; 0 for no limit.",
            "TIME",
            unit=SECONDS,
            setting="limits.run_time",
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        option(
            "End the run after N iterations, with the result so far; 0 for no limit.",
            "N",
            least=0,
            setting="limits.iterations",
        ),
    ] = None
    on_agent_loss: Annotated[
        Literal["replace", "fail"],
        option(
            "When an agent is lost, replace it (or continue with the others when agents are "
            "removed), or fail."
        ),
    ] = "replace"
    allow_nan: Annotated[
        bool,
        option("Accept data with NaN and infinite values, even if the program does not."),
    ] = False
    delegate: Annotated[
        Literal["measured", "static"] | None,
        option(
            "Give items to agents by their measured rates, or in equal, fixed parts.",
            setting="runs.delegate",
        ),
    ] = None


class RunInputs(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """What a run has besides, which only its own process needs."""

    parameters: Annotated[
        Mapping[str, Any] | None,
        option(
            "Parameter of the program; may be repeated.",
            "NAME=VALUE",
            words=("--parameter", "-p"),
            python="Values for the program's parameters.",
        ),
    ] = None
    columns: Annotated[
        Sequence[str] | None,
        option("Columns of a table to use; default: all.", "A,B"),
    ] = None
    checkpoint: Annotated[
        FileName | None,
        option(
            "Write the state to this file periodically, as often as limits.checkpoints allows.",
            "FILE",
            unit=PATH,
        ),
    ] = None
    resume: Annotated[
        FileName | None,
        option(
            "Continue from the checkpoint in this file, of the same program, parameters and data.",
            "FILE",
            unit=PATH,
        ),
    ] = None
    auto_resume: Annotated[
        bool,
        option(
            "Continue from --checkpoint if it is complete, else start from the beginning.",
            words=("--continue",),
            python="Whether to continue from ``checkpoint`` if it is complete; if it is damaged or "
            "missing, the run starts from the beginning.",
        ),
    ] = False
    copy: Annotated[
        bool,
        option(
            "Whether arrays are copied before the call returns. ``False`` returns sooner; then "
            "you must not change them until the run has begun its first iteration.",
            only_python=True,
        ),
    ] = True


class RunSpec(RunInputs, frozen=True, omit_defaults=True):
    """A run: program, data, parameters and options."""

    program: Annotated[
        ProgramSource,
        option(
            "Folder with a program.toml, or a Python file with a Program class.",
            python="A program, its class, or the folder or file it is in.",
        ),
    ]
    data: Annotated[
        Any,
        option(
            "Data to run over: .npy, .npz, .csv, .parquet, .arrow or an image; a folder or a "
            "pattern of such files; a URL. Default: the program's own.",
            "FILE",
            python="Arrays, a dictionary of arrays, a table, a path, a pattern, a URL, a ``range`` "
            "or a dataset, see :func:`sapwood.load`; without data the program's own "
            "``default_data``.",
        ),
    ] = None

    @property
    def options(self) -> RunOptions:
        """The options that agents get."""
        names = RunOptions.__struct_fields__
        return RunOptions(**{name: getattr(self, name) for name in names})

    def given(self) -> dict[str, Any]:
        """Return the options that do not have their default value, by name."""
        found = {one: getattr(self, one.name) for one in option_fields(RunInputs)}
        return {
            one.name: value
            for one, value in found.items()
            if value != one.default and not one.only_python
        }
