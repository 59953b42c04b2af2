"""How anything gets to stdout: tables, figures in few characters, lines, JSON.

While a program may print, JSON stays alone on standard output: :func:`answers_alone`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TextIO

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sapwood.core.terminal_text import printable

WIDTH = 80
"""Columns of tables that are not printed to a terminal."""


class _OutputConsole(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - the error that is handled: rich would end the process


def output_console() -> Console:
    """Return a console on stdout; colours only where it is a terminal that wants them."""
    console = _OutputConsole(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


MAX_MEASURED = 1000
"""Columns that a table is measured with."""
_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Halves of characters, which Python has for bytes that are not text."""

MAX_ROWS = 64
"""Rows of a table about agents; ``--json`` has all of them."""


class FittingTable:
    """A table that leaves out columns where the terminal is too narrow for all of them.

    Args:
        title: Stands above it, may be empty.
        columns: As for :func:`table`.
        rows: Cells.
        optional: Headings of the columns that go, the first one first.
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        optional: Sequence[str],
    ) -> None:
        self._title = title
        self._columns = columns
        self._rows = rows
        self._optional = optional

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left_out: list[str] = []
        made = self._without(left_out)
        for heading in self._optional:
            whole = Measurement.get(console, options.update(max_width=MAX_MEASURED), made).maximum
            if whole <= options.max_width:
                break
            left_out.append(heading)
            made = self._without(left_out)
        yield made
        if left_out:
            yield Text(f"(columns hidden: {', '.join(left_out)}; use --json)", style="dim")

    def _without(self, headings: Sequence[str]) -> Table:
        kept = [i for i, name in enumerate(self._columns) if name.rstrip(">") not in headings]
        rows = [[row[i] for i in kept] for row in self._rows]
        return table(self._title, [self._columns[i] for i in kept], rows)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, wrap: str = ""
) -> Table:
    """Return a table.

    Args:
        title: Stands above it, may be empty.
        columns: Headings; a heading that ends in ``>`` is of a column of numbers.
        rows: Cells.
        wrap: Heading of the one column that may break into several lines.
    """
    made = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="underline",
        box=None,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
    )
    for column in columns:
        heading = column.removesuffix(">")
        made.add_column(
            heading,
            justify="right" if column.endswith(">") else "left",
            no_wrap=heading != wrap,
            overflow="fold" if heading == wrap else "ellipsis",
        )
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def shortened(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the first :data:`MAX_ROWS` rows, and one that says how many were left out."""
    left_out = len(rows) - MAX_ROWS
    if left_out <= 0:
        return list(rows)
    return [*rows[:MAX_ROWS], ("…", f"{left_out} more", *[""] * (len(rows[0]) - 2))]


def write(*parts: RenderableType) -> None:
    """Print tables and lines, one below the other."""
    console = output_console()
    for part in parts:
        console.print(part)


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Print plain data or a structure as one JSON object, over several lines or on one."""
    text = json_bytes(value)
    typer.echo(text if one_line else msgspec.json.format(text, indent=2), file=answer_stream())


def json_bytes(value: Any) -> bytes:
    r"""Return plain data or a structure as JSON.

    Names of files that are not UTF-8 are no JSON either: the replacement character stands for
    their odd bytes.

    Example:
        >>> json_bytes({"file": "a\udcff.npy"}).decode()
        '{"file":"a�.npy"}'
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(value)))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {_readable(key): _readable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(each) for each in value]
    return value


_kept: Final[list[TextIO]] = []


@contextlib.contextmanager
def answers_alone() -> Iterator[None]:
    """Print everything except answers to standard error."""
    _kept.append(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


def answer_stream() -> TextIO:
    """Return the stream that answers are written to."""
    return _kept[-1] if _kept else sys.stdout


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Let the block print to a pipe whose reader has ended; what it prints then is lost."""
    try:
        yield
    except BrokenPipeError:
        discard(answer_stream())


def discard(stream: TextIO) -> None:
    """Send what a standard stream still holds, and what is written to it later, to /dev/null."""
    with open(os.devnull, "wb") as nowhere, contextlib.suppress(OSError):  # noqa: PTH123 - a device
        os.dup2(nowhere.fileno(), stream.fileno())


_COUNT_SUFFIXES = ("", " k", " M", " G", " T", " P")


def seconds(value: float) -> str:
    """Return a duration with three significant digits and its unit.

    Example:
        >>> seconds(0.00042), seconds(1.5), seconds(3725)
        ('420 µs', '1.50 s', '1 h 02 min')
    """
    if value < 0.0009995:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{_three_digits(value * 1e3)} ms"
    if value < 100:
        return f"{_three_digits(value)} s"
    minutes = round(value) // 60
    if minutes < 60:
        return f"{minutes} min {round(value) % 60:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count(value: float) -> str:
    """Return a number of things, or of things per second, with a decimal suffix.

    Example:
        >>> count(950), count(273_280), count(8_123_456)
        ('950', '273 k', '8.12 M')
    """
    power = 0
    scaled = float(value)
    while abs(scaled) >= 999.5 and power < len(_COUNT_SUFFIXES) - 1:
        scaled /= 1000.0
        power += 1
    whole = power == 0 and scaled == int(scaled)
    return (f"{scaled:.0f}" if whole else _three_digits(scaled)) + _COUNT_SUFFIXES[power]


def metric(value: float) -> str:
    """Return a metric of a program with seven significant digits.

    Example:
        >>> metric(3.0), metric(1234567.891), metric(1.5e-9)
        ('3', '1234568', '1.5e-09')
    """
    return f"{value:.7g}"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def begun_again(restarts: Sequence[float]) -> str:
    """Return how often something was restarted, and when it last was.

    Args:
        restarts: When, seconds since 1970.
    """
    count = len(restarts)
    when = dt.datetime.fromtimestamp(restarts[-1], dt.UTC).astimezone()
    return f"restarted {'once' if count == 1 else f'{count} times'}, last at {when:%F %T}"
