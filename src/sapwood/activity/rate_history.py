"""What agents were measured to do in former runs: the first guess of how items are cut.

A guess saves the iterations until agents are measured, and no more: it is bounded, what cannot be
is left out, and the first measurement counts more than it. So a history that is damaged, old or of
other machines costs time, and never changes which items are mapped.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import itertools
import os
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from sapwood.activity.delegation import is_rate
from sapwood.core import typed
from sapwood.core.errors import SecurityError
from sapwood.environment.folders import make_private
from sapwood.environment.logs import logger

VERSION: Final = 1
"""Of the layout; a history of another one is not used."""

MAX_AGENTS: Final = 1024
"""Agents of which a history knows, the newest."""

MAX_FUNCTIONS: Final = 256
"""Functions of which something is kept, those that ran last."""

MAX_BYTES: Final = 2**19
"""Bytes of a history."""

MAX_RATIO: Final = 1000.0
"""Times that an agent is taken to be faster or slower than most, whatever a history says."""

_log = logger("activity")
_numbers = itertools.count()


class MeasuredRate(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent was measured to do.

    Attributes:
        agent: Its rank.
        node: Its machine, as that calls itself.
        kind: The kind of that machine.
        rate: Items per second.
    """

    agent: int
    node: str
    kind: str
    rate: float


class FunctionHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What agents were measured to do with one function.

    Attributes:
        version: Of the layout.
        function: What it is called, for people.
        run: The run that measured it last.
        written: When that was, seconds since 1970.
        agents: The measurements, the newest first.
    """

    version: int = VERSION
    function: str
    run: str
    written: float
    agents: tuple[MeasuredRate, ...] = ()

    def with_run(
        self, run: str, written: float, measured: Iterable[MeasuredRate]
    ) -> FunctionHistory:
        """Return this with what another run has measured; that counts where both know something."""
        new = tuple(measured)
        there = {(one.node, one.agent) for one in new}
        older = (one for one in self.agents if (one.node, one.agent) not in there)
        return msgspec.structs.replace(
            self, run=run, written=written, agents=tuple([*new, *older][:MAX_AGENTS])
        )

    def guess(self, agents: Mapping[int, tuple[str, str]]) -> dict[int, float]:
        """Return the rate of each agent of which something is known, by its rank.

        That is what was measured at the same place of the same machine, else the median of that
        machine, else the median of machines of its kind.

        Args:
            agents: The machine of each agent and its kind, by rank.

        Example:
            >>> one = MeasuredRate(agent=1, node="n1", kind="old", rate=10.0)
            >>> two = MeasuredRate(agent=2, node="n2", kind="new", rate=40.0)
            >>> known = FunctionHistory(function="f", run="r", written=0.0, agents=(one, two))
            >>> known.guess({1: ("n1", "old"), 2: ("n3", "new"), 3: ("n4", "other")})
            {1: 10.0, 2: 40.0}
        """
        good = [one for one in self.agents if is_rate(one.rate)]
        if not good:
            return {}
        at_place = {(one.node, one.agent): one.rate for one in reversed(good)}
        of_node = _medians((one.node, one.rate) for one in good)
        of_kind = _medians((one.kind, one.rate) for one in good)
        usual = statistics.median(one.rate for one in good)
        found: dict[int, float] = {}
        for rank, (node, kind) in agents.items():
            rate = at_place.get((node, rank)) or of_node.get(node) or of_kind.get(kind)
            if rate is not None:
                found[rank] = min(max(rate, usual / MAX_RATIO), usual * MAX_RATIO)
        return found

    def described(self, guessed: int, agents: int, place: str) -> str:
        """Return where a guess comes from, for people."""
        when = dt.datetime.fromtimestamp(self.written, dt.UTC).astimezone()
        known = "all agents" if guessed == agents else f"{guessed} of {agents} agents"
        return f"what run {self.run} measured on {when:%Y-%m-%d %H:%M}, for {known} ({place})"


def _medians(rates: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for name, rate in rates:
        if name:
            found.setdefault(name, []).append(rate)
    return {name: statistics.median(values) for name, values in found.items()}


def key_of(program: str, function: str) -> str:
    """Return the key of a function: of the same code, by the hash of its program.

    Example:
        >>> len(key_of("0f3a", "mean.map"))
        64
    """
    return hashlib.sha256(f"{program}\0{function}".encode()).hexdigest()


class RateHistory(Protocol):
    """Where histories are kept.

    Attributes:
        place: What that is, for people.
    """

    @property
    def place(self) -> str:
        """What that is, for people."""

    def read(self, key: str) -> bytes | None:
        """Return what is kept under a key; None if nothing is, or it cannot be had now."""

    def write(self, key: str, history: bytes) -> None:
        """Keep something under a key, if that can be done now."""


def read_history(histories: RateHistory, key: str) -> FunctionHistory | None:
    """Return the history of a function; None, and a warning in the log, if it is damaged."""
    data = histories.read(key)
    if data is None:
        return None
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has {len(data):,} bytes")
        found = typed.json_reader(FunctionHistory)(data)
        if found.version != VERSION:
            raise ValueError(f"it has the layout {found.version}, and this version reads {VERSION}")
        dt.datetime.fromtimestamp(found.written, dt.UTC)  # a time that there is
    except (msgspec.MsgspecError, ValueError, OverflowError, OSError) as error:
        _log.warning("history of rates not used", place=histories.place, reason=str(error))
        return None
    return found


class FileHistory:
    """Histories in a folder of this machine: a file for each function, the oldest ones removed.

    Args:
        folder: The folder; it is made when something is to be kept.

    Example:
        >>> FileHistory(Path("/no/such/folder")).read(key_of("0f3a", "mean.map")) is None
        True
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    def read(self, key: str) -> bytes | None:
        """As the method of all histories."""
        try:
            with self._file(key).open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("history of rates not read", place=self.place, reason=str(error))
            return None

    def write(self, key: str, history: bytes) -> None:
        """As the method of all histories: whole, or not at all."""
        file = self._file(key)
        half = file.with_name(f".{key}.{os.getpid()}.{next(_numbers)}")
        try:
            make_private(self._folder)
            half.write_bytes(history)
            half.replace(file)
            self._bound()
        except (OSError, SecurityError) as error:
            _log.warning("history of rates not kept", place=self.place, reason=str(error))
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)

    def _bound(self) -> None:
        with os.scandir(self._folder) as entries:
            files = [one for one in entries if one.is_file(follow_symlinks=False)]
        if len(files) <= MAX_FUNCTIONS:
            return
        times: list[tuple[float, str]] = []
        for one in files:
            with contextlib.suppress(FileNotFoundError):  # another process bounds it, too
                times.append((one.stat(follow_symlinks=False).st_mtime, one.path))
        for _, path in sorted(times)[: len(times) - MAX_FUNCTIONS]:
            Path(path).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.json"
