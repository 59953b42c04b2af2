"""What a runner can do: open programs and slices, map, call. This is where user code runs."""

import hashlib
import pickle
import site
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from sapwood.activity.stream_procedures import StreamProcedures
from sapwood.code.image import OpenProgram, ProgramImage
from sapwood.code.pickling import open_pickled
from sapwood.code.runner import child
from sapwood.code.runner.binding import Binding
from sapwood.code.runner.child import Procedure, Work
from sapwood.code.runner.versions import open_version
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.comm.values import Pickled
from sapwood.core import typed
from sapwood.data.slice import Slice, SliceRef, open_slice

MAX_OPEN_PROGRAMS = 16
"""Programs and functions of tasks that a runner keeps loaded."""


class Procedures:
    """The state of a runner.

    Args:
        blocks: Memory of other processes that is mapped here.
        binding: Keeps the process on its core while a run is open.
    """

    def __init__(self, blocks: MappedBlocks, binding: Binding) -> None:
        self._binding = binding
        self._streams = StreamProcedures(blocks, self._make_ready)
        self._runs: dict[str, tuple[OpenProgram, Slice]] = {}
        self._programs: OrderedDict[bytes, OpenProgram] = OrderedDict()
        self._functions: OrderedDict[bytes, Callable[..., Any]] = OrderedDict()
        self._site_ready = False
        self._crashes_watched = False

    def table(self) -> dict[str, Procedure]:
        """Return the procedures by name."""
        each: dict[str, Callable[[str, Any], Any]] = {
            "open": self._open,
            "ready": _ready,
            "close": self._close,
            "call_plain": self._call,
            "native": self._native,
            **self._streams.table(),
        }
        return {
            "map": self._map,
            "call": self._pickling_call,
            **{name: partial(_unchecked, one) for name, one in each.items()},
        }

    def _open(self, run: str, argument: dict[str, Any]) -> None:
        self._make_site_ready()
        self._watch_crashes(argument["crash_handlers"])
        image = typed.unpacker(ProgramImage)(argument["image"])
        reference = typed.unpacker(SliceRef)(argument["slice"])
        part = open_slice(reference, MappedBlocks())  # mapped as long as the run is open
        self._close(run, None)
        self._runs[run] = (open_version(image), part)
        self._binding.hold(run)

    def _close(self, run: str, _argument: Any) -> None:
        self._binding.release(run)
        opened = self._runs.pop(run, None)
        if opened is not None:
            opened[0].close()

    def _map(self, run: str) -> Work:
        program, part = self._runs[run]

        def check(result: Any) -> None:
            program.check_result(result)
            nbytes = sum(getattr(value, "nbytes", 0) for value in result.values())
            self._binding.weigh(run, nbytes)

        return Work(partial(program.map, part), check, program.native_call)

    def _pickling_call(self, context: str) -> Work:
        return Work(partial(self._call, context), pickles=True)

    def _call(self, _context: str, argument: dict[str, Any]) -> Any:
        function = _remembered(self._functions, argument["code"], self._load_function)
        arguments = argument["arguments"]
        if type(arguments) is Pickled:
            arguments = open_pickled(arguments)
        args, kwargs = arguments
        return function(*args, **kwargs)

    def _native(self, _context: str, argument: dict[str, Any]) -> Any:
        self._watch_crashes(argument["crash_handlers"])
        program = _remembered(self._programs, argument["code"], self._load_program)
        args, kwargs = argument["arguments"]
        return program.call(argument["native"], args, kwargs)

    def _load_function(self, code: bytes) -> Callable[..., Any]:
        self._make_site_ready()
        # Code of the user, as a library is: only a runner, which exists to run it, loads it.
        function: Callable[..., Any] = pickle.loads(code)  # noqa: S301 - see above
        return function

    def _load_program(self, code: bytes) -> OpenProgram:
        self._make_site_ready()
        return open_version(typed.unpacker(ProgramImage)(code))

    def _make_ready(self, crash_handlers: Sequence[bytes]) -> None:
        self._make_site_ready()
        self._watch_crashes(crash_handlers)

    def _watch_crashes(self, libraries: Sequence[bytes]) -> None:
        if libraries and not self._crashes_watched:
            self._crashes_watched = True
            for library in libraries:  # only that of this architecture can be loaded
                child.install_crash_handler(library)

    def _make_site_ready(self) -> None:
        """Run what ``python -S`` left out, so that user code finds the usual interpreter."""
        if not self._site_ready:
            self._site_ready = True
            site.main()


def _unchecked(procedure: Callable[[str, Any], Any], context: str) -> Work:
    return Work(partial(procedure, context))


def _ready(_run: str, _argument: Any) -> None:
    """Do nothing: what came before this call has happened."""


def make_procedures(blocks: MappedBlocks, binding: Binding) -> dict[str, Procedure]:
    """Return the table of procedures of a new runner."""
    return Procedures(blocks, binding).table()


def _remembered(known: OrderedDict[bytes, Any], code: bytes, load: Callable[[bytes], Any]) -> Any:
    key = hashlib.sha256(code).digest()
    if key in known:
        known.move_to_end(key)
        return known[key]
    loaded = known[key] = load(code)
    while len(known) > MAX_OPEN_PROGRAMS:
        _, unused = known.popitem(last=False)
        if isinstance(unused, OpenProgram):
            unused.close()
    return loaded


def main(options: bytes, parent: int, descriptors: list[int]) -> NoReturn:
    """Run a runner; entry of a forked process."""
    child.main(options, parent, descriptors, make_procedures)
