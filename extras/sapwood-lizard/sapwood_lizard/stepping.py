"""A run whose states come from outside, one after the other: how a client does iterations.

The server of lizard-slayer has the global state itself, and tells each of its clients when to
begin an iteration, and with which state.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Final, Protocol

from sapwood import Cluster, Run
from sapwood.errors import ClosedError, DataShapeError
from sapwood_lizard.extension_program import plain
from sapwood_lizard.launch import Checked, start
from sapwood_lizard.packing import pack_text, pack_value, unpack_text, unpack_value
from sapwood_lizard.parts import Coordinator
from sapwood_lizard.program import LizardProgram

_OVER: Final = object()


class SteppedRun:
    """A program over the slice of a client, on a cluster of one agent.

    Args:
        cluster: Where.
        checked: The program.
        params: The encoded parameters; of a C extension plain values.
        dataset: The encoded slice; of a C extension the number of rows, and the rows.
    """

    def __init__(self, cluster: Cluster, checked: Checked, params: Any, dataset: Any) -> None:
        self._extension = checked.program.definition.extension
        self._states: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._partial: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._over = False

        def stepped(program: LizardProgram) -> Coordinator:
            inner: _Slice = (
                _Rows(dataset)
                if self._extension
                else program.coordinator(checked.module, params, dataset)
            )
            return _Stepped(inner, self)

        self._run: Run = start(cluster, checked, params, dataset, coordinated=stepped)
        self._run.add_done_callback(lambda _run: self._partial.put(_OVER))

    def iterate(self, state: Any) -> Any:
        """Run one iteration.

        Args:
            state: The encoded global state; of a C extension the plain value.

        Returns:
            The aggregation result, in the same form.

        Raises:
            SapwoodError: The program failed; the run is over then.
            ClosedError: It was over before.
        """
        with self._lock:
            if self._over:
                raise ClosedError("this runtime is over", hint="make a new one")
            self._states.put(pack_value(state) if self._extension else pack_text(state))
            found = self._partial.get()
            if found is _OVER:
                self._over = True
                self._run.result()
                raise ClosedError("this runtime is over", hint="make a new one")
        return plain(unpack_value(found)) if self._extension else unpack_text(found)

    def close(self) -> None:
        """End it."""
        self._run.cancel()
        self._states.put(_OVER)
        with self._lock:
            self._over = True
        self._run.exception()

    # --- for the thread of the run ---------------------------------------------------------------

    def next_state(self) -> Any:
        """Wait for the next state."""
        state = self._states.get()
        if state is _OVER:
            raise ClosedError("this runtime is over")
        return state

    def take(self, parts: list[Any]) -> None:
        """Take the partial result of an iteration: there is one agent, and so one part."""
        self._partial.put(parts[0])


class _Slice(Protocol):
    """A slice with points."""

    items: int

    def cut(self, start: int, stop: int) -> Any:
        """Return some of them, packed."""


class _Stepped:
    """The coordinator of a run whose states come from outside."""

    def __init__(self, inner: _Slice, run: SteppedRun) -> None:
        self._inner = inner
        self._run = run
        self.items = inner.items

    def cut(self, start: int, stop: int) -> Any:
        """Return all points: there is one agent."""
        return self._inner.cut(start, stop)

    def first_state(self) -> Any:
        """Wait for the first state."""
        return self._run.next_state()

    def next_state(self, parts: list[Any]) -> Any:
        """Hand the partial result out, and wait for the next state."""
        self._run.take(parts)
        return self._run.next_state()

    def done(self) -> bool:
        """Say that there may be another iteration."""
        return False

    def end(self) -> tuple[Any, Any]:
        """Return nothing: it ends when it is closed."""
        return None, None


class _Rows:
    """Rows of a C extension's slice, as its server sends them: how many, and the rows."""

    def __init__(self, dataset: Any) -> None:
        match dataset:
            case [int(count), list(rows)] if count == len(rows):
                self._rows: list[Any] = rows
                self.items = count
            case _:
                raise DataShapeError(
                    "the slice of a C extension must be the number of rows, and the rows",
                    where="dataset_enc",
                )

    def cut(self, start: int, stop: int) -> Any:
        """Return some rows, packed."""
        return pack_value(self._rows[start:stop])
