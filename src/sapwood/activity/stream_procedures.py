"""What a runner does for streams: calls functions of the user, and own filters."""

import pickle
import secrets
from collections.abc import Callable, Generator, Sequence
from typing import Any

from sapwood.activity import stream_orders as orders
from sapwood.code.filter import NOTHING, Filter, FoldFilter, MapFilter
from sapwood.code.image import OpenProgram, ProgramImage
from sapwood.code.native_filter import NativeFilter
from sapwood.code.reducers import FieldReducers
from sapwood.code.runner.versions import open_version
from sapwood.comm import values
from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.core import typed
from sapwood.core.errors import ExecutionError, ProgramError

_decode_ref = typed.unpacker(SharedRef)


class StreamProcedures:
    """The functions and filters of open streams.

    Args:
        blocks: Memory of other processes that is mapped here.
        ready: Makes the process ready for user code; gets the libraries that report crashes.
    """

    def __init__(self, blocks: MappedBlocks, ready: Callable[[Sequence[bytes]], None]) -> None:
        self._blocks = blocks
        self._ready = ready
        self._functions: dict[str, tuple[orders.UserCode, Any]] = {}
        self._steps: dict[str, dict[int, Generator[Any, Any, Any]]] = {}
        self._filters: dict[str, tuple[Filter | None, Filter | None]] = {}
        self._programs: dict[str, list[OpenProgram]] = {}

    def table(self) -> dict[str, Callable[[str, Any], Any]]:
        """Return the procedures by name."""
        return {
            orders.OPEN: self._open,
            orders.CALL_ONCE: self._call,
            orders.NEXT: self._next,
            orders.CLOSE: self._close,
            orders.OPEN_FILTER: self._open_filter,
            orders.FILTER: self._filter,
            orders.CLOSE_FILTER: self._close,
        }

    def _open(self, stream: str, code: bytes) -> None:
        self._close(stream, None)
        user = orders.decode_code(code)
        self._functions[stream] = (user, self._loaded(stream, user))

    def _loaded(self, stream: str, code: orders.UserCode) -> Any:
        self._ready(code.crash_handlers)
        if not code.native:
            # Code of the user, as a library is: only a runner, which exists to run it, loads it.
            return pickle.loads(code.code)  # noqa: S301 - see above
        return self._opened(stream, code).function(code.native)

    def _opened(self, stream: str, code: orders.UserCode) -> OpenProgram:
        program = open_version(typed.unpacker(ProgramImage)(code.code))
        self._programs.setdefault(stream, []).append(program)
        return program

    def _call(self, stream: str, value: Any) -> Any:
        user, function = self._functions[stream]
        if user.native and isinstance(value, dict):
            result = function(**value)
        elif user.native and isinstance(value, tuple):
            result = function(*value)
        else:
            result = function(value)
        if not isinstance(result, Generator):
            return result
        if not user.steps:
            raise ProgramError(
                f"{user.function} returns a generator",
                hint='write it with yield itself, and open the stream with sync="none"',
            )
        number = secrets.randbits(62)  # never that of a generator of a runner that has ended
        self._steps.setdefault(stream, {})[number] = result
        return number

    def _next(self, stream: str, number: int) -> Any:
        """Let one generator go on to its next value."""
        steps = self._steps.get(stream, {}).get(number)
        if steps is None:
            raise ExecutionError("the generator is lost: the process that it lived in has ended")
        try:
            return next(steps)
        except StopIteration:
            del self._steps[stream][number]
            return orders.END

    def _close(self, stream: str, _argument: Any) -> None:
        self._functions.pop(stream, None)
        self._filters.pop(stream, None)
        for generator in self._steps.pop(stream, {}).values():
            generator.close()
        for program in self._programs.pop(stream, ()):
            program.close()

    # --- filters -----------------------------------------------------------------------------

    def _open_filter(self, stream: str, argument: dict[str, Any]) -> None:
        self._close(stream, None)
        upward = self._made(stream, argument["up"], argument, upward=True)
        if argument["down"] and argument["down"] == argument["up"]:
            downward = upward
        else:
            downward = self._made(stream, argument["down"], argument, upward=False)
        self._filters[stream] = (upward, downward)

    def _made(
        self, stream: str, encoded: bytes, argument: dict[str, Any], *, upward: bool
    ) -> Filter | None:
        if not encoded:
            return None
        code = orders.decode_code(encoded)
        made: Filter
        if code.reducers:
            self._ready(code.crash_handlers)
            opened = self._opened(stream, code)
            made = FieldReducers(opened.program.reduce, opened.function)
            made.rank, made.depth = argument["rank"], argument["depth"]
            return made
        what = self._loaded(stream, code)
        if code.native:
            made = NativeFilter(what)
        elif isinstance(what, type) and issubclass(what, Filter):
            made = what()
        elif isinstance(what, Filter):
            made = what
        elif upward:
            made = FoldFilter(what)
        else:
            made = MapFilter(what, per_child=argument["per_child"])
        made.rank, made.depth = argument["rank"], argument["depth"]
        return made

    def _filter(self, stream: str, argument: Any) -> Any:
        call = typed.convert(argument, orders.FilterCall)
        own = self._filters[stream][0 if call.upward else 1]
        if own is None:
            raise ProgramError("this place has no such filter")
        own.wave = call.wave
        own.ranks, own.weights = call.ranks, call.weights
        own.parameters = values.decode(call.parameters, b"") if call.parameters else {}
        arrived = [self._value(*parts) for parts in call.values]
        result = own.up(arrived) if call.upward else own.down(arrived[0], call.child)
        return orders.END if result is NOTHING else result

    def _value(self, body: bytes, inline: bytes, reference: bytes) -> Any:
        arrays = self._blocks.view(_decode_ref(reference)) if reference else inline
        return values.decode(body, arrays)
