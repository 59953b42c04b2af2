"""Programs over a grid whose slices carry the rows of their neighbours."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from sapwood.code.native_marker import Native
from sapwood.code.parameter import parameter
from sapwood.code.program import Program
from sapwood.code.reducers import Reducer
from sapwood.core.errors import DataValueError, ProgramError
from sapwood.core.shown import shown

MODES: Final = ("constant", "edge", "reflect", "symmetric", "wrap")
"""Values of cells beyond the borders of the grid, by their names in ``numpy.pad``."""

_ROWS = "rows"
_NUMBERS = "numbers"
_WHOLE = "whole"


class Stencil(Program):
    """Base of programs whose items depend on their neighbours: subclass it, and write ``step``.

    The data are a grid of one dimension or more, and agents have ranges of its rows. They keep
    their rows from one iteration to the next; only the rows at the borders of slices, the halo,
    travel. Every ``gather_every`` steps, and at the end, the caller gets the whole grid. When an
    agent is lost, or the rows are cut anew, all agents continue from the last whole grid.

    The state has ``step``, the number of steps that are done. ``result`` returns the grid.

    Attributes:
        halo: Cells beyond the block, on each side of each axis.
        mode: What lies beyond the borders of the grid, one of ``numpy.pad``: ``constant``
            (zero), ``edge``, ``reflect``, ``symmetric``, or ``wrap`` for a periodic grid.
        steps: Steps of the run.
        gather_every: Steps between two whole grids: how many a lost agent costs at most.

    Raises:
        ProgramError: ``halo`` is not a positive whole number, or ``mode`` is unknown.
        DataValueError: An axis of the grid is too short for the halo.

    Example:
        >>> class Heat(Stencil):
        ...     halo = 1
        ...     mode = "edge"
        ...     def step(self, block, out):
        ...         out[:] = block[1:-1] + 0.25 * (block[:-2] - 2 * block[1:-1] + block[2:])
        >>> Heat(steps=10)
        Heat(steps=10, gather_every=100)
    """

    halo: ClassVar[int] = 1
    mode: ClassVar[str] = "constant"
    inputs: ClassVar[Sequence[str]] = ("data",)
    # Rows that are kept are found again after a move only by a return to the last whole grid.
    movable: ClassVar[bool | None] = False
    reduce: ClassVar[Mapping[str, Reducer]] = {
        _ROWS: "concat",
        _NUMBERS: "concat",
        _WHOLE: "concat",
        "lost": "sum",
    }
    steps: int = parameter(1, minimum=1)
    gather_every: int = parameter(100, minimum=1)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if type(cls.halo) is not int or cls.halo < 1:
            raise ProgramError(
                f"halo must be a whole number of at least 1, not {shown(cls.halo)}",
                where=cls.name,
                hint="write halo = 1",
            )
        if cls.mode not in MODES:
            raise ProgramError(
                f"mode {shown(cls.mode)} is unknown",
                where=cls.name,
                hint=f"choose one of {', '.join(MODES)}",
            )

    def step(self, block: np.ndarray, out: np.ndarray) -> None:
        """Compute the next values of a block; or ``step = native("…")``, whose output is them.

        Args:
            block: The rows of the slice with ``halo`` cells more on each side of each axis,
                corners included; not to be changed.
            out: Where the new values go: the shape of the block without its halo. Each cell
                must be written.
        """
        raise ProgramError(
            "the program has no step", where=self.name, hint="define step(self, block, out)"
        )

    def init(self, data: Any) -> dict[str, Any]:
        """Return the state before the first step: the whole grid."""
        grid = np.ascontiguousarray(data["data"])
        least = self.halo + (self.mode == "reflect")
        if min(grid.shape) < least:
            raise DataValueError(
                f"the grid has the shape {grid.shape}, and its axes need at least {least} cells",
                where=self.name,
                hint=f"use a larger grid: halo is {self.halo}, and mode is {self.mode}",
            )
        self._last = grid, 0
        self._key = uuid.uuid4().hex
        return self._from_whole(grid, 0)

    def _from_whole(self, grid: np.ndarray, step: int) -> dict[str, Any]:
        return {"step": step, "key": self._key, _WHOLE: grid}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program
        """Make one step of a slice; return its border rows, and all rows where they are due."""
        whole = state.get(_WHOLE)
        kept: dict[tuple[int, int], _Block] = self.__dict__.setdefault("_kept", {})
        place = slice.start, slice.stop
        block = kept.get(place)
        if whole is not None:
            if block is None:
                block = kept[place] = _Block(self, place, whole)
            block.start_from(whole, state["step"], state["key"])
        elif block is None or not block.has(state["step"], state["key"]):
            empty = slice.data[:0]
            numbers = np.empty(0, np.int64)
            return {_ROWS: empty, _NUMBERS: numbers, _WHOLE: empty, "lost": 1}
        else:
            block.fill_halo(state[_ROWS], state[_NUMBERS], state["step"])
        new = block.make_step(self, state["step"])
        rows, numbers = block.rims(new)
        due = self._gathers(state["step"] + 1)
        return {_ROWS: rows, _NUMBERS: numbers, _WHOLE: new if due else new[:0], "lost": 0}

    def _gathers(self, step: int) -> bool:
        return step % self.gather_every == 0 or step == self.steps

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return the next state: border rows, or the last whole grid if rows were lost."""
        if total["lost"]:
            return self._from_whole(*self._last)
        step = state["step"] + 1
        self._key = state["key"]  # where the run resumed, it is of the checkpoint
        if _WHOLE in state:
            self._last = state[_WHOLE], state["step"]
        if self._gathers(step):
            return self._from_whole(total[_WHOLE], step)
        order = np.argsort(total[_NUMBERS], kind="stable")
        rows, numbers = total[_ROWS][order], total[_NUMBERS][order]
        return {"step": step, "key": self._key, _ROWS: rows, _NUMBERS: numbers}

    def done(self, state: dict[str, Any]) -> bool:
        """Say whether all steps are done."""
        return bool(state["step"] >= self.steps)

    def iterations(self) -> int | None:
        """Return the number of steps."""
        return self.steps

    def result(self, state: dict[str, Any]) -> Any:
        """Return the grid after the last step."""
        return state[_WHOLE]


class _Block:
    """The rows of a slice before and after a step, with their halo.

    The rows before the step remain until the next one, because a wave may be repeated.

    Args:
        program: The program, for its halo and mode.
        place: The first row and the end of the slice.
        whole: The whole grid.
    """

    def __init__(self, program: Stencil, place: tuple[int, int], whole: np.ndarray) -> None:
        self._halo, self._mode = program.halo, program.mode
        self._start, self._stop = place
        self._size = len(whole)
        shape = (place[1] - place[0], *whole.shape[1:])
        wide = tuple(length + 2 * self._halo for length in shape)
        self._both = [np.zeros(wide, whole.dtype) for _ in range(2)]
        self._inner = tuple(slice(self._halo, -self._halo) for _ in shape)
        self._steps = [-1, -1]
        self._key = ""
        # For each row of the halo the number of the same row in the grid; -1 for a constant.
        numbers = np.arange(self._size)
        if self._mode == "constant":
            around = np.pad(numbers, self._halo, constant_values=-1)
        else:
            around = np.pad(numbers, self._halo, mode=self._mode)  # type: ignore[call-overload]
        around = around[self._start : self._stop + 2 * self._halo]
        at = np.r_[0 : self._halo, len(around) - self._halo : len(around)]
        self._at, self._from = at[around[at] >= 0], around[at][around[at] >= 0]
        # A mirror needs one row more than the halo.
        deep = self._halo + 1
        rows = self._stop - self._start
        self._rims = np.unique(np.r_[0 : min(deep, rows), max(rows - deep, 0) : rows])

    def has(self, step: int, key: str) -> bool:
        """Say whether the rows after this many steps are here."""
        return self._key == key and step in self._steps

    def start_from(self, whole: np.ndarray, step: int, key: str) -> None:
        """Take rows and halo from the whole grid."""
        self._key, self._steps = key, [step, -1]
        self._both[0][self._inner] = whole[self._start : self._stop]
        self._put(0, whole[self._from])

    def fill_halo(self, rows: np.ndarray, numbers: np.ndarray, step: int) -> None:
        """Take the halo from the border rows of all slices, ordered by their numbers."""
        self._put(self._steps.index(step), rows[np.searchsorted(numbers, self._from)])

    def _put(self, which: int, rows: np.ndarray) -> None:
        block, halo = self._both[which], self._halo
        block[(self._at, *self._inner[1:])] = rows
        for axis in range(1, block.ndim):  # the other axes are whole here
            if self._mode == "constant":
                continue  # zero since the block was made
            size = block.shape[axis] - 2 * halo
            around = np.pad(np.arange(size), halo, mode=self._mode) + halo  # type: ignore[call-overload]
            for first in (0, halo + size):
                ends = slice(first, first + halo)
                before = (slice(None),) * axis
                block[(*before, ends)] = block[(*before, around[ends])]

    def make_step(self, program: Stencil, step: int) -> np.ndarray:
        """Make a step, and return the new rows."""
        which = self._steps.index(step)
        new = self._both[1 - which][self._inner]
        self._steps[1 - which] = -1
        if isinstance(getattr(type(program), "step"), Native):  # noqa: B009 - no bound method
            function: Any = program.step
            found = function(self._both[which])
            (new[...],) = found.values()
        else:
            program.step(self._both[which], new)
        self._steps[1 - which] = step + 1
        return new

    def rims(self, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the border rows and their numbers in the grid."""
        return new[self._rims], self._rims + self._start
