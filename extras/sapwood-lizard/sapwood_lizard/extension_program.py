"""Programs that are C extensions of Python: plain values, a module ``user_program``."""

from __future__ import annotations

import copy
from array import array
from types import ModuleType
from typing import Any

from sapwood.errors import DataShapeError, ExecutionError, ProgramError
from sapwood_lizard.module import call, user_program
from sapwood_lizard.packing import pack_value, unpack_value


class ExtensionCombiner:
    """Aggregates partial results with the program's own function.

    Args:
        module: The program's Python module.
        params: The parameters.
    """

    def __init__(self, module: ModuleType, params: Any) -> None:
        self.module = module
        self.params = plain(params)

    def combine(self, parts: list[Any], *, last: bool) -> list[Any]:
        """Return the aggregate of partial results, in this order, or the parts as they are.

        The root aggregates directly, so that ``update_global_state`` gets the very object that
        ``aggregate`` made: arrays, tuples, numbers as keys. Below it an aggregate takes the place
        of its parts only if it has the form of a partial result, which it need not have.
        """
        if last:
            return parts
        empty = plain(self._empty())
        if any(_form(empty) != _form(unpack_value(part)) for part in parts):
            return parts
        return [pack_value(plain(self.aggregate(parts)))]

    def aggregate(self, parts: list[Any]) -> Any:
        """Return the aggregate of partial results as the program has it."""
        if not parts:
            raise ExecutionError("an iteration has no partial results")
        running = self._empty()
        for part in parts:
            value = unpack_value(part)
            returned = call("aggregate", self.module.aggregate, self.params, running, value)
            running = running if returned is None else returned
        return running

    def _empty(self) -> Any:
        return call("init_aggregation_result", self.module.init_aggregation_result, self.params)


class ExtensionCoordinator(ExtensionCombiner):
    """The root's part: cuts the dataset, makes states.

    Args:
        module: The program's Python module.
        params: The parameters; the first one is the number of points.
        dataset: The dataset as the runner module gave it.

    Raises:
        DataShapeError: The data do not hold as many rows as the parameters say.
    """

    def __init__(self, module: ModuleType, params: Any, dataset: Any) -> None:
        super().__init__(module, params)
        params = self.params
        rows: list[Any] = call("split_data", lambda: list(module.split_data(dataset)))
        self._rows = [plain(row) for row in rows]
        self.items = len(self._rows)
        stated = params[0] if isinstance(params, list) and params else None
        if stated != self.items:
            raise DataShapeError(
                f"the data have {self.items} rows, the first parameter says {stated}",
                where="split_data",
                hint="the first of the global parameters must be the number of points",
            )
        self._state: Any = None
        self._aggregate: Any = None
        self._done = False

    def cut(self, start: int, stop: int) -> Any:
        """Return the rows ``start`` to ``stop``, packed."""
        return pack_value(self._rows[start:stop])

    def first_state(self) -> Any:
        """Return the first global state, packed."""
        self._state = call(
            "initialize_global_state", self.module.initialize_global_state, self.params
        )
        self._iteration = 0
        return pack_value(plain(self._state))

    def next_state(self, parts: list[Any]) -> Any:
        """Take over the aggregate of one iteration; return the next global state, packed."""
        self._iteration += 1
        before = copy.deepcopy(self._state)
        self._aggregate = self.aggregate(parts)
        update = self.module.update_global_state
        returned = call("update_global_state", update, self.params, self._aggregate, self._state)
        if returned is not None:
            self._state = returned
        if self._iteration > 1:
            end = call("terminate", self.module.terminate, self.params, before, self._state)
            self._done = bool(end)
        return pack_value(plain(self._state))

    def done(self) -> bool:
        """Whether the program said that this is the end."""
        return self._done

    def end(self) -> tuple[Any, Any]:
        """Return the last aggregate and the last global state."""
        return plain(self._aggregate), plain(self._state)


class ExtensionWorker(ExtensionCombiner):
    """An agent's part: rows in memory that the program pins, iterations by its module.

    Args:
        module: The program's Python module.
        extension: The program's library as a module.
        params: The parameters.
        part: The rows, packed.
    """

    def __init__(self, module: ModuleType, extension: ModuleType, params: Any, part: Any) -> None:
        super().__init__(module, params)
        self._extension = extension
        rows = unpack_value(part)
        self._count = len(rows)
        self._pinned: Any = None
        for name in ("pin_gpu_memory", "unpin_gpu_memory"):
            if not callable(getattr(extension, name, None)):
                raise ProgramError(
                    f"user_program has no function {name}",
                    hint="add it to the methods of the wrapper",
                )
        with user_program(extension):
            self._dataset = call("to_array", module.to_array, rows)
            self._pinned = call("pin_gpu_memory", extension.pin_gpu_memory, self._dataset)

    def iterate(self, state: Any) -> Any:
        """Run one iteration and return the partial result, packed."""
        centres = _numbers(unpack_value(state))
        with user_program(self._extension):
            partial = call(
                "run_iteration",
                self.module.run_iteration,
                self.params,
                self._count,
                centres,
                self._pinned,
                self._dataset,
            )
        return pack_value(plain(partial))

    def close(self) -> None:
        """Unpin the memory."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None:
            self._extension.unpin_gpu_memory(pinned)


def _numbers(state: Any) -> array[float]:
    """Return what of a global state the iterations get: its second item.

    Raises:
        ProgramError: It is not a list of numbers.
    """
    try:
        if isinstance(state, list):
            return array("d", state[1])
    except (IndexError, TypeError):
        pass
    raise ProgramError(
        "the global state of a C extension must be a list of which the second is a list of numbers",
        hint=f"it is {str(state)[:60]}; let initialize_global_state and update_global_state "
        "return [iteration, [numbers], …]",
    )


def _form(value: Any) -> Any:
    """Return lengths and names in a value, without its numbers."""
    if isinstance(value, list):
        return [_form(item) for item in value]
    if isinstance(value, dict):
        return {key: _form(item) for key, item in value.items()}
    return None


def plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays and tuples become lists."""
    if isinstance(value, (list, tuple, array)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return value
