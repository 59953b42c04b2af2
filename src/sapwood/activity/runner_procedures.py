"""The procedures of a runner: open programs and slices, map, call functions and filters.

User code runs here. The agent's side is ``agent_calls.py``; agents have no numpy, runners do.
"""

import hashlib
import secrets
import site
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NoReturn

from sapwood.activity import agent_requests
from sapwood.activity.chunked_map import ChunkedMap
from sapwood.code.filter import NOTHING, Filter, FoldFilter, MapFilter
from sapwood.code.image import OpenProgram, ProgramImage
from sapwood.code.native_filter import NativeFilter
from sapwood.code.pickling import open_pickled
from sapwood.code.reducers import FieldReducers
from sapwood.code.runner import child
from sapwood.code.runner.affinity import CoreAffinity
from sapwood.code.runner.calling_each import call
from sapwood.code.runner.child import Procedure, Work
from sapwood.code.runner.process_state import open_version
from sapwood.code.shared_buffers import use_folder
from sapwood.comm import values
from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.comm.values import Pickled
from sapwood.content.refs import ContentFolder, ContentRef
from sapwood.core import typed
from sapwood.core.errors import ExecutionError, ProgramError
from sapwood.data.opening import SliceOpener
from sapwood.data.slice import Slice, SliceRef, in_content
from sapwood.environment.tracing import Carrier, continued, flush_runner

MAX_OPEN_PROGRAMS = 16
"""Programs and functions of tasks that a runner keeps loaded."""

LAST_CALLS = frozenset(
    {
        *("release", "close", "call_plain", "native"),
        *(agent_requests.FLUSH_TRACES, agent_requests.CLOSE, agent_requests.CLOSE_FILTER),
    }
)
"""Procedures of tasks, and those that end a run or stream."""

_decode_ref = typed.unpacker(SharedRef)


class CodeLoader:
    """Loads code of the user in this process, which exists to run it."""

    def function(self, code: bytes | Pickled) -> Any:
        """Return a function or filter."""
        pickled = code if isinstance(code, Pickled) else Pickled(code)
        return open_pickled(pickled, lasting=True)

    def program(self, image: ProgramImage, content: ContentFolder) -> OpenProgram:
        """Open a program."""
        return open_version(image, content)


class StreamProcedures:
    """The functions and filters of open streams.

    Args:
        blocks: Memory of other processes that is mapped here.
        ready: Makes the process ready for user code; gets the libraries that report crashes.
        content: Where content is that its node has fetched.
        loader: Loads the code.
    """

    def __init__(
        self,
        blocks: MappedBlocks,
        ready: Callable[[Sequence[ContentRef]], None],
        content: ContentFolder,
        loader: CodeLoader,
    ) -> None:
        self._loader = loader
        self._blocks = blocks
        self._content = content
        self._ready = ready
        self._functions: dict[str, tuple[agent_requests.UserCode, Any]] = {}
        self._steps: dict[str, dict[int, Generator[Any, Any, Any]]] = {}
        self._filters: dict[str, tuple[Filter | None, Filter | None]] = {}
        self._programs: dict[str, list[OpenProgram]] = {}

    def table(self) -> dict[str, Callable[[str, Any], Any]]:
        """Return the procedures by name."""
        return {
            agent_requests.OPEN: self._open,
            agent_requests.CALL_ONCE: self._call,
            agent_requests.NEXT: self._next,
            agent_requests.CLOSE: self._close,
            agent_requests.OPEN_FILTER: self._open_filter,
            agent_requests.FILTER: self._filter,
            agent_requests.STAGE_FILTER: _done,
            agent_requests.CLOSE_FILTER: self._close,
        }

    def _open(self, stream: str, code: bytes) -> None:
        self._close(stream, None)
        user = agent_requests.decode_code(code)
        self._functions[stream] = (user, self._loaded(stream, user))

    def _loaded(self, stream: str, code: agent_requests.UserCode) -> Any:
        self._ready(code.crash_handlers)
        if not code.native:
            return self._loader.function(code.code)
        return self._opened(stream, code).function(code.native)

    def _opened(self, stream: str, code: agent_requests.UserCode) -> OpenProgram:
        program = self._loader.program(typed.unpacker(ProgramImage)(code.code), self._content)
        self._programs.setdefault(stream, []).append(program)
        return program

    def _call(self, stream: str, value: Any) -> Any:
        user, function = self._functions[stream]
        if user.native and isinstance(value, dict):
            result = function(**value)
        elif user.native and isinstance(value, tuple):
            result = function(*value)
        else:
            result = call(function, value)
        if not isinstance(result, Generator):
            return result
        if not user.steps:
            raise ProgramError(
                f"{user.function} returns a generator",
                hint='write it with yield itself, and open the stream with sync="none"',
            )
        number = secrets.randbits(62)  # never the number of a generator of a runner that has ended
        self._steps.setdefault(stream, {})[number] = result
        return number

    def _next(self, stream: str, number: int) -> Any:
        """Run one generator to its next value."""
        steps = self._steps.get(stream, {}).get(number)
        if steps is None:
            raise ExecutionError("the generator is lost: the process that it lived in has ended")
        try:
            return next(steps)
        except StopIteration:
            del self._steps[stream][number]
            return agent_requests.END

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
        code = agent_requests.decode_code(encoded)
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
        call = typed.convert(argument, agent_requests.FilterCall)
        own = self._filters[stream][0 if call.upward else 1]
        if own is None:
            raise ProgramError("this place has no such filter")
        own.wave = call.wave
        own.ranks, own.weights = call.ranks, call.weights
        own.parameters = values.decode(call.parameters, b"") if call.parameters else {}
        arrived = [self._value(*parts) for parts in call.values]
        result = own.up(arrived) if call.upward else own.down(arrived[0], call.child)
        return agent_requests.END if result is NOTHING else result

    def _value(self, body: bytes, inline: bytes, reference: bytes) -> Any:
        arrays = self._blocks.view(_decode_ref(reference)) if reference else inline
        return values.decode(body, arrays)


def _done(_stream: str, _argument: Any) -> None:
    """Do nothing: what a call needs is opened before it."""


class Procedures:
    """The state of a runner.

    Args:
        blocks: Memory of other processes that is mapped here.
        affinity: Keeps the process on its core while a run is open.
        content: Where content is that its node has fetched.
        loader: Loads code of the user.
    """

    def __init__(
        self,
        blocks: MappedBlocks,
        affinity: CoreAffinity,
        content: ContentFolder,
        loader: CodeLoader | None = None,
    ) -> None:
        self._loader = loader or CodeLoader()
        self._affinity = affinity
        self._content = content
        use_folder(content)
        self._streams = StreamProcedures(blocks, self._make_ready, content, self._loader)
        self._slices = SliceOpener(content)
        self._runs: dict[str, tuple[OpenProgram, Slice]] = {}
        self._chunked: dict[str, ChunkedMap] = {}
        self._traces: dict[str, Carrier] = {}
        self._programs: OrderedDict[bytes, OpenProgram] = OrderedDict()
        self._functions: OrderedDict[bytes, Callable[..., Any]] = OrderedDict()
        self._site_ready = False
        self._crashes_watched = False

    def table(self) -> dict[str, Procedure]:
        """Return the procedures by name."""
        each: dict[str, Callable[[str, Any], Any]] = {
            "open": self._open,
            "ready": self._ready,
            "release": self._release,
            "close": self._close,
            "call_plain": self._call,
            "native": self._native,
            agent_requests.FLUSH_TRACES: _flush_traces,
            **self._streams.table(),
        }
        return {
            "map": self._map,
            "call": self._pickling_call,
            **{
                name: partial(_unchecked, one, name not in LAST_CALLS) for name, one in each.items()
            },
        }

    def _open(self, run: str, argument: dict[str, Any]) -> None:
        self._make_site_ready()
        self._watch_crashes(typed.convert(argument["crash_handlers"], list[ContentRef]))
        image = typed.unpacker(ProgramImage)(argument["image"])
        reference = typed.unpacker(SliceRef)(argument["slice"])
        if argument["fetched"]:
            reference = in_content(reference, argument["fetched"])
        part = self._slices.open(reference)
        self._close(run, None)
        program = self._loader.program(image, self._content)
        self._runs[run] = (program, part)
        if argument["trace"]:
            self._traces[run] = argument["trace"]
        if argument["chunk"]:
            self._chunked[run] = ChunkedMap(program, part, argument["chunk"], argument["reduce"])
        self._affinity.hold(run)

    def _close(self, run: str, _argument: Any) -> None:
        self._affinity.release(run)
        self._chunked.pop(run, None)
        self._traces.pop(run, None)
        opened = self._runs.pop(run, None)
        if opened is not None:
            opened[0].close()

    def _ready(self, run: str, _argument: Any) -> int:
        """Return how many bytes were read to open the run, which has happened before this call."""
        return self._runs[run][1].read_bytes

    def _release(self, handle: str, _argument: Any) -> None:
        self._slices.release(handle)

    def _map(self, run: str) -> Work:
        chunked = self._chunked.get(run)
        if chunked is not None:
            return Work(self._continuing(run, chunked))
        program, part = self._runs[run]
        work = self._continuing(run, partial(program.map, part))
        return Work(work, program.check_result, program.native_call)

    def _continuing(self, run: str, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what has user code trace as a part of its run, where that is traced."""
        trace = self._traces.get(run)
        return work if trace is None else partial(_in_trace, trace, "map", work)

    def _pickling_call(self, context: str) -> Work:
        return Work(partial(self._call, context), pickles=True, lasting=False)

    def _call(self, _context: str, argument: dict[str, Any]) -> Any:
        code = argument["code"]
        key = argument.get("key") or hashlib.sha256(code).digest()
        function = _remembered(self._functions, key, partial(self._load_function, code))
        arguments = argument["arguments"]
        if type(arguments) is Pickled:
            arguments = open_pickled(arguments)
        args, kwargs = arguments
        if "trace" in argument:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            return _in_trace(argument["trace"], name, call, function, *args, **kwargs)
        return call(function, *args, **kwargs)

    def _native(self, _context: str, argument: dict[str, Any]) -> Any:
        if not self._crashes_watched:
            self._watch_crashes(typed.convert(argument["crash_handlers"], list[ContentRef]))
        code = argument["code"]
        load = partial(self._load_program, code)
        program = _remembered(self._programs, hashlib.sha256(code).digest(), load)
        args, kwargs = argument["arguments"]
        name = argument["native"]
        if "trace" in argument:
            return _in_trace(argument["trace"], name, program.call, name, args, kwargs)
        return program.call(name, args, kwargs)

    def _load_function(self, code: bytes | Pickled) -> Callable[..., Any]:
        self._make_site_ready()
        function: Callable[..., Any] = self._loader.function(code)
        return function

    def _load_program(self, code: bytes) -> OpenProgram:
        self._make_site_ready()
        return self._loader.program(typed.unpacker(ProgramImage)(code), self._content)

    def _make_ready(self, crash_handlers: Sequence[ContentRef]) -> None:
        self._make_site_ready()
        self._watch_crashes(crash_handlers)

    def _watch_crashes(self, libraries: Sequence[ContentRef]) -> None:
        if libraries and not self._crashes_watched:
            self._crashes_watched = True
            for library in libraries:  # only a library of this architecture can be loaded
                child.install_crash_handler(self._content.locate(library))

    def _make_site_ready(self) -> None:
        """Run what ``python -S`` left out, so that user code finds the usual interpreter."""
        if not self._site_ready:
            self._site_ready = True
            site.main()


def _in_trace(
    trace: Carrier, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call something whose spans are part of a trace that has begun elsewhere."""
    with continued(trace, name):
        return call(*args, **kwargs)


def _flush_traces(_context: str, _argument: Any) -> None:
    flush_runner()


def _unchecked(procedure: Callable[[str, Any], Any], lasting: bool, context: str) -> Work:  # noqa: FBT001 - a part of a partial call
    return Work(partial(procedure, context), lasting=lasting)


def make_procedures(
    blocks: MappedBlocks, affinity: CoreAffinity, content: ContentFolder
) -> dict[str, Procedure]:
    """Return the table of procedures of a new runner."""
    return Procedures(blocks, affinity, content).table()


def _remembered(known: OrderedDict[bytes, Any], key: bytes, load: Callable[[], Any]) -> Any:
    if key in known:
        known.move_to_end(key)
        return known[key]
    loaded = known[key] = load()
    while len(known) > MAX_OPEN_PROGRAMS:
        _, unused = known.popitem(last=False)
        if isinstance(unused, OpenProgram):
            unused.close()
    return loaded


def main(options: bytes, parent: int, descriptors: list[int]) -> NoReturn:
    """Run a runner; entry of a forked process."""
    child.main(options, parent, descriptors, make_procedures)
