"""Programs that ctypes calls: four structures, seven C functions, five Python functions."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any, Final

from sapwood.errors import DataShapeError, ExecutionError, ProgramError
from sapwood_lizard.abi import ENTRY_POINTS
from sapwood_lizard.block_size import block_for
from sapwood_lizard.module import call
from sapwood_lizard.native_library import ProgramLibrary
from sapwood_lizard.packing import pack_text, unpack_text
from sapwood_lizard.result_reset import ResultReset
from sapwood_lizard.structures import pointer_fields, scalar_fields

_ARGUMENTS: Final = {
    name: [ctypes.c_int if not each else ctypes.c_void_p for each in classes]
    for name, classes in ENTRY_POINTS.items()
}


class CtypesCombiner:
    """Aggregates partial results with the program's own function.

    Args:
        module: The program's Python module.
        params: The encoded parameters.
    """

    def __init__(self, module: ModuleType, params: str) -> None:
        self.module = module
        self.params = module.GlobalParams()
        call("GlobalParams.decode", self.params.decode, params, None)

    def combine(self, parts: list[Any], *, last: bool) -> list[Any]:
        """Return the aggregate of partial results, in this order: it is one, too."""
        del last
        return [pack_text(self.encode(self.aggregate(parts)))]

    def aggregate(self, parts: list[Any]) -> Any:
        """Return the aggregate of partial results as an object of the program."""
        if not parts:
            raise ExecutionError("an iteration has no partial results")
        running = self.fresh_result()
        for part in parts:
            arrived = self.fresh_result()
            self.decode(arrived, unpack_text(part))
            returned = call("aggregate", self.module.aggregate, self.params, running, arrived)
            if type(returned) is type(running) and returned is not arrived:
                running = returned
        return running

    def fresh_result(self) -> Any:
        """Return an empty aggregation result."""
        name = "init_aggregation_result"
        return _structure(name, call(name, self.module.init_aggregation_result, self.params))

    def encode(self, structure: Any) -> str:
        """Return a structure as text."""
        name = f"{type(structure).__name__}.encode"
        text: str = call(name, structure.encode, self.params)
        return text

    def decode(self, structure: Any, text: str) -> None:
        """Decode a text into a structure."""
        call(f"{type(structure).__name__}.decode", structure.decode, text, self.params)


class CtypesCoordinator(CtypesCombiner):
    """The root's part: cuts the dataset, makes states.

    Args:
        module: The program's Python module.
        params: The encoded parameters.
        dataset: The encoded dataset.
        together: Whether partial results come as they are, to be aggregated here.
    """

    def __init__(
        self, module: ModuleType, params: str, dataset: str, *, together: bool = False
    ) -> None:
        super().__init__(module, params)
        self._together = together
        self._dataset = module.Dataset()
        self.decode(self._dataset, dataset)
        self.items = int(call("Dataset.__len__", len, self._dataset))
        self._state: Any = None
        self._aggregate: Any = None

    def cut(self, start: int, stop: int) -> Any:
        """Return the points ``start`` to ``stop``, encoded and packed.

        Raises:
            DataShapeError: The program's slice has another number of points.
        """
        name, cut = "get_dataset_slice", self.module.get_dataset_slice
        part = _structure(name, call(name, cut, self.params, self._dataset, start, stop - start))
        found = call("Dataset.__len__", len, part)
        if found != stop - start:
            raise DataShapeError(
                f"get_dataset_slice gave {found} points where {stop - start} were asked for",
                where=f"points {start}:{stop}",
            )
        return pack_text(self.encode(part))

    def first_state(self) -> Any:
        """Return the first global state, packed."""
        name = "init_global_state"
        self._state = _structure(name, call(name, self.module.init_global_state, self.params))
        return pack_text(self.encode(self._state))

    def next_state(self, parts: list[Any]) -> Any:
        """Take over the aggregate of one iteration; return the next global state, packed."""
        if self._together:
            self._aggregate = self.aggregate(parts)
        else:
            self._aggregate = self.fresh_result()
            self.decode(self._aggregate, unpack_text(parts[0]))
        returned = call(
            "update_global_state",
            self.module.update_global_state,
            self.params,
            self._aggregate,
            self._state,
        )
        if isinstance(returned, ctypes.Structure):
            self._state = returned
        return pack_text(self.encode(self._state))

    def done(self) -> bool:
        """Whether the program set ``done``."""
        return bool(self._state.done)

    def end(self) -> tuple[str, str]:
        """Return the last aggregate and the last global state, encoded."""
        return self.encode(self._aggregate), self.encode(self._state)


class CtypesWorker(CtypesCombiner):
    """An agent's part: structures in memory of the device, filled and read by the program.

    Args:
        module: The program's Python module.
        library: The program's library.
        params: The encoded parameters.
        part: The slice, packed.
    """

    def __init__(self, module: ModuleType, library: ProgramLibrary, params: str, part: Any) -> None:
        super().__init__(module, params)
        self._library = library
        self._result = module.AggregationResult()
        self._state = module.GlobalState()
        self._dataset = module.Dataset()
        self._release: list[tuple[str, Any]] = []
        try:
            self._prepare(unpack_text(part))
        except BaseException:
            self.close()
            raise

    def _prepare(self, text: str) -> None:
        """Set everything up, in the order that programs count on."""
        self._setup("aggregation_result", self._result)
        self._setup("global_state", self._state)
        call("Dataset.decode", self._dataset.decode, text, self.params, decode_aux=False)
        self._setup("dataset", self._dataset)
        self.decode(self._dataset, text)
        self._items = int(call("Dataset.__len__", len, self._dataset))
        self._block = block_for(self._items, self._library.recommended_block)
        self._reset = ResultReset(self, self._result)

    def iterate(self, state: Any) -> Any:
        """Run one iteration and return the aggregation result, packed."""
        self.decode(self._state, unpack_text(state))
        self._reset.apply()
        with self._library.watching("run_iteration"):
            self._call(
                "run_iteration", self._block, self.params, self._dataset, self._state, self._result
            )
        return pack_text(self.encode(self._result))

    def close(self) -> None:
        """Free what was set up, the last first."""
        while self._release:
            what, structure = self._release.pop()
            self._call(f"free_{what}", structure, self.params)

    def _setup(self, what: str, structure: Any) -> None:
        name = f"setup_{what}"
        try:
            with self._library.watching(name):
                self._call(name, structure, self.params)
        except ExecutionError as error:
            if "out of memory" in error.what:
                raise self._too_large(name) from error
            raise
        for field in pointer_fields(type(structure)):
            held = getattr(structure, field)
            if not isinstance(held, ctypes.Structure) and not held:
                raise ProgramError(
                    f"{name} leaves {type(structure).__name__}.{field} NULL",
                    hint="allocate it there, for example by cudaMallocManaged, and check the "
                    "error that this returns",
                )
        self._release.append((what, structure))

    def _too_large(self, name: str) -> ExecutionError:
        """Return the error of a device that has not as much memory as was asked for."""
        sizes = {
            field: value
            for owner in (self.params, self._dataset)
            for field in scalar_fields(type(owner))
            if isinstance(value := getattr(owner, field), int)
        }
        negative = [f"{field} is {value}" for field, value in sizes.items() if value < 0]
        what = f"{name} asks for more memory than the device has"
        shown = ", ".join(f"{field}={value}" for field, value in sizes.items())
        return ExecutionError(
            f"{what}, and {', '.join(negative)}" if negative else what,
            where=name,
            hint=f"check the sizes in parameters and dataset: {shown}" if sizes else "",
        )

    def _call(self, name: str, *args: Any) -> None:
        function = self._library.function(name, _ARGUMENTS[name])
        function(*(arg if isinstance(arg, int) else ctypes.byref(arg) for arg in args))


def _structure(function: str, returned: Any) -> Any:
    """Return what a function of the program returned, if it is one of its structures."""
    if not isinstance(returned, ctypes.Structure):
        raise ProgramError(
            f"{function} returned {type(returned).__name__}, which is not a structure",
            where=function,
            hint="return the object that it made or was given",
        )
    return returned
