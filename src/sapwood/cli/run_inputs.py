"""The program and the data of a run, loaded before its machines are started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from sapwood.code.load import load_program
from sapwood.code.program import Program
from sapwood.code.run_spec import RunSpec
from sapwood.code.user_error import user_error
from sapwood.core.errors import DataMissingError, SapwoodError
from sapwood.data.dataset import Dataset
from sapwood.data.sources import check_source, load


def loaded(spec: RunSpec, output: Path | None) -> RunSpec:
    """Return the spec of a run with its program and its data, loaded.

    Args:
        spec: The run.
        output: The file that its result goes to, or None.

    Raises:
        SapwoodError: The program, its parameters or the data cannot be used, or the program cannot
            write its result to such a file.
    """
    return of_program(spec, _program(spec, output))


def check_inputs(spec: RunSpec, output: Path | None) -> None:
    """Check the program of a run, and that its data exist, before another process runs it.

    Args:
        spec: The run.
        output: The file that its result goes to, or None.

    Raises:
        SapwoodError: The program or its parameters cannot be used, the data are missing, or the
            program cannot write its result to such a file.
    """
    source = _source(_program(spec, output), spec.data)
    if isinstance(source, str | Path):
        check_source(str(source))


def _program(spec: RunSpec, output: Path | None) -> Program:
    program = load_program(spec.program, spec.parameters or {})
    if output is not None:
        program.check_output(output)
    return program


def _source(program: Program, given: Any) -> Any:
    """Return the data that are given, or that the program brings."""
    if given is not None:
        return given
    default = getattr(program, "default_data", None)
    with naming_method(f"{program.name}.default_data"):
        found = None if default is None else default()
    if found is None:
        raise DataMissingError(
            f"program {program.name} has no default data", hint="name a file with --data"
        )
    return found


def of_program(spec: RunSpec, program: Program) -> RunSpec:
    """Return the spec of a run of a program that is loaded, with its data loaded.

    Raises:
        SapwoodError: The data cannot be used.
    """
    data = load_data(program, spec.data, spec.columns)
    return msgspec.structs.replace(spec, program=program, data=data)


def load_data(
    program: Program, source: Any = None, columns: Sequence[str] | None = None
) -> Dataset:
    """Return the dataset of a file, or without one the data that the program brings.

    Args:
        program: The program.
        source: File, folder, pattern or URL; None for what the program brings.
        columns: The columns of a table that are used; None for all, or what the program says.

    Raises:
        DataMissingError: There is neither.
        DataError: They cannot be used.
    """
    if source is None and columns is None:
        columns = program.data_columns
    return load(_source(program, source), fields=program.inputs, columns=columns)


@contextmanager
def naming_method(method: str, *, file: Path | None = None) -> Iterator[None]:
    """Turn an exception of a program's method into an error that names the method or the file."""
    try:
        yield
    except SapwoodError:
        raise
    except OSError as error:
        if error.filename is None and file is not None:
            error.filename = str(file)  # writing to an open file does not tell
        raise
    except (Exception, SystemExit) as error:
        made = user_error(error, of_agent=False)
        made.where = method
        raise made from error
