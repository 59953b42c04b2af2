"""What a run is. Each option of a run is declared here, on one line, and nowhere else.

A field of :class:`RunSpec` is an argument of ``cluster.run`` and an option of ``sapwood run``. A
head keeps the spec of a detached run, and agents get the fields of :class:`RunOptions`. Annotations
are types here and not text, so that the declarations can be read.
"""

import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from sapwood.core.arguments import choice, duration, path_text, whole
from sapwood.core.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from sapwood.code.program import Program

    ProgramSource = Program | type[Program] | str | Path
    FileName = str | Path
else:  # the types that a head decodes
    ProgramSource, FileName = Any, str

S = TypeVar("S", bound=msgspec.Struct)

SECONDS, PATH = "seconds", "path"
"""Units of options: durations, and paths, which are made absolute."""


def option(
    about: str,
    metavar: str = "",
    *,
    least: int | None = None,
    unit: str = "",
    setting: str = "",
    words: Sequence[str] = (),
    python: str = "",
    only_python: bool = False,
) -> Any:
    """Return the description of an option, for use inside ``Annotated``.

    Args:
        about: The help text.
        metavar: What its value is called in the help text.
        least: The least number.
        unit: :data:`SECONDS` or :data:`PATH`.
        setting: The setting that counts where the option is not given.
        words: What it is called on the command line; by default ``--name``.
        python: The description of the argument in Python, where it differs.
        only_python: Whether the command line has no such option.
    """
    extra = {
        "metavar": metavar,
        "least": least,
        "unit": unit,
        "setting": setting,
        "words": tuple(words),
        "python": python or about,
        "only_python": only_python,
    }
    return Meta(description=about, extra=extra)


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
            "Longest time of the whole run, which fails then; 0 for no limit.",
            "TIME",
            unit=SECONDS,
            setting="limits.run_time",
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        option(
            "End after N iterations, with the result so far; 0 for no limit.",
            "N",
            least=0,
            setting="limits.iterations",
        ),
    ] = None
    on_agent_loss: Annotated[
        Literal["replace", "fail"],
        option(
            "What to do when an agent is lost: replace it (or continue with the others when "
            "agents are removed), or fail."
        ),
    ] = "replace"
    allow_nan: Annotated[
        bool,
        option("Accept data with NaN and infinite values, even if the program does not."),
    ] = False
    delegate: Annotated[
        Literal["measured", "static"] | None,
        option(
            "How items are given to agents: by their measured rates, or in equal parts that stay.",
            setting="runs.delegate",
        ),
    ] = None


class RunInputs(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """What a run has besides, which only its own process needs."""

    parameters: Annotated[
        Mapping[str, Any] | None,
        option(
            "Parameter of the program; may be given several times.",
            "NAME=VALUE",
            words=("--parameter", "-p"),
            python="Values for the program's parameters.",
        ),
    ] = None
    columns: Annotated[
        Sequence[str] | None,
        option("Columns of a table that are used; default: all.", "A,B"),
    ] = None
    checkpoint: Annotated[
        FileName | None,
        option(
            "File to which the state is written periodically, as often as limits.checkpoints "
            "allows.",
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


@dataclasses.dataclass(frozen=True, slots=True)
class OptionField:
    """The declaration of one option.

    Attributes:
        name: Its name in Python.
        kind: Its type, without None.
        default: Its default value; :data:`msgspec.NODEFAULT` for none.
        about: Its help text.
        metavar: What its value is called in the help text.
        least: The least number, or None.
        unit: :data:`SECONDS`, :data:`PATH` or empty.
        setting: The setting that counts where the option is not given; empty for none.
        words: What it is called on the command line.
        python: Its description in Python.
        only_python: Whether the command line has no such option.
    """

    name: str
    kind: Any
    default: Any
    about: str
    metavar: str
    least: int | None
    unit: str
    setting: str
    words: tuple[str, ...]
    python: str
    only_python: bool

    def checked(self, value: Any) -> Any:
        """Return a value as the run works with it.

        Raises:
            InputError: The value is of the wrong type, or out of range.
        """
        if value is None:
            return None
        if self.unit == SECONDS:
            return duration(value, self.name)
        if self.unit == PATH:
            return str(Path(path_text(value, self.name, ConfigurationError)).absolute())
        if get_origin(self.kind) is Literal:
            return choice(value, self.name, get_args(self.kind))
        if self.kind is not int:
            return value
        number = whole(value, self.name)
        if self.least is not None and number < self.least:
            raise InputError(
                f"{self.name} is {number}", hint=f"give a whole number from {self.least} on"
            )
        return number

    def described(self) -> str:
        """Return the description of its argument in Python."""
        setting = f" By default ``{self.setting}``." if self.setting else ""
        seconds = " In seconds." if self.unit == SECONDS else ""
        return f"{self.python}{seconds}{setting}"


@functools.cache
def option_fields(kind: type[msgspec.Struct]) -> tuple[OptionField, ...]:
    """Return the options that a struct declares, in the order of their declaration."""
    return tuple(_fields(kind))


def _fields(kind: type[msgspec.Struct]) -> Iterator[OptionField]:
    for field in msgspec.structs.fields(kind):
        if get_origin(field.type) is not Annotated:
            continue
        inner, note = get_args(field.type)
        if get_origin(inner) in {Union, types.UnionType}:
            inner = next(one for one in get_args(inner) if one is not type(None))
        name = field.name
        extra = dict(note.extra)
        extra["words"] = extra["words"] or (f"--{name.replace('_', '-')}",)
        yield OptionField(name, inner, field.default, about=note.description, **extra)


def checked(spec: S) -> S:
    """Return a spec whose options are checked and have the types that the run works with.

    Raises:
        InputError: An option is of the wrong type, or out of range.
    """
    values = {one.name: one.checked(getattr(spec, one.name)) for one in option_fields(type(spec))}
    return msgspec.structs.replace(spec, **values)


def completed(spec: S, settings: object) -> S:
    """Return a spec with the settings in place of options that were not given."""
    found = {
        one.name: functools.reduce(getattr, one.setting.split("."), settings)
        for one in option_fields(type(spec))
        if one.setting and getattr(spec, one.name) is None
    }
    return msgspec.structs.replace(spec, **found)
