"""What user functions become when they travel: pickled code, or an image of a built program."""

import functools
import hashlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sapwood.activity.agent_requests import UserCode
from sapwood.activity.offered_content import OfferedContent
from sapwood.activity.tasks import TaskCall
from sapwood.code import pickling
from sapwood.code.build import Built, build_for_all
from sapwood.code.cache import BuildCache
from sapwood.code.crash_handler import build_crash_handlers
from sapwood.code.image import make_image
from sapwood.code.program import NativeFunctionRef, Program
from sapwood.code.target import Target
from sapwood.comm import values
from sapwood.comm.values import Pickled
from sapwood.content.refs import ContentRef
from sapwood.core.errors import ConfigurationError, DataValueError, SapwoodError
from sapwood.core.shown import shown
from sapwood.data.tables import native_argument, native_arguments
from sapwood.environment.logs import logger
from sapwood.environment.tracing import Carrier
from sapwood.environment.units import describe_size

MAX_PROGRAMS = 64
"""Programs with native functions that stay open; each holds descriptors of the build cache."""

LARGE_FUNCTION = 2**24
"""Bytes of a function from which a warning tells of what is in it."""

Function = Callable[..., Any] | NativeFunctionRef

FunctionCode = dict[str, Any]
"""The code of a function, as a part of the argument of each of its calls."""

_log = logger("tasks")


class NativeProgram(msgspec.Struct, frozen=True):
    """A program whose native functions are called as tasks; ``built`` keeps it in the cache."""

    image: bytes
    built: Built
    crash_handlers: tuple[ContentRef, ...]
    content: tuple[ContentRef, ...]


class CodeMaker:
    """Makes of functions what runners can load; builds each program once.

    Args:
        cache: Where built libraries are kept.
        environment: Returns the variables of builds.
        targets: Returns what programs are built for.
        pythons: Returns the versions of the Pythons that load them.
        offered: Offers libraries to agents on other machines.
        pickle: Whether arguments, results and exceptions of tasks may be pickled.
    """

    def __init__(
        self,
        cache: BuildCache,
        environment: Callable[[], Mapping[str, str]],
        targets: Callable[[], Sequence[Target]],
        pythons: Callable[[], Sequence[str]],
        offered: OfferedContent,
        *,
        pickle: bool = True,
    ) -> None:
        self._cache = cache
        self._environment = environment
        self._targets = targets
        self._pythons = pythons
        self._offered = offered
        self.pickle = pickle
        self._programs: OrderedDict[tuple[str, str], NativeProgram] = OrderedDict()
        self._warned = False

    def code(self, function: Function) -> FunctionCode:
        """Return the code of a function; large arrays in it travel beside it, as arguments do.

        Raises:
            ConfigurationError: It cannot be called.
            DataValueError: It cannot be sent to an agent.
            BuildError: Its program does not compile.
        """
        if isinstance(function, NativeFunctionRef):
            return {"code": self._native(function.program).image}
        if not callable(function):
            raise ConfigurationError(
                f"{shown(function)} cannot be called",
                hint="pass a function, or program['name']",
            )
        pickled = self._pickled(function, beside=True)
        if not pickled.buffers:
            return {"code": pickled.data}
        # Runners know the function by this key: to hash megabytes at each call takes long.
        key = hashlib.sha256(pickled.data)
        for buffer in pickled.buffers:
            key.update(buffer.data)
        return {"code": pickled, "key": key.digest()}

    def call(
        self,
        function: Function,
        code: FunctionCode,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        limit: float,
        trace: Carrier | None = None,
    ) -> TaskCall:
        """Return one call of a function whose code was made before.

        Args:
            function: The function.
            code: What :meth:`code` returned for it.
            args: Positional arguments.
            kwargs: Keyword arguments.
            limit: Seconds that the call may take; 0 for no limit.
            trace: Headers that continue a trace in the function, if there is one.

        Raises:
            DataValueError: An argument cannot travel.
        """
        call = self.plain_call(function, code, args, kwargs, limit, trace)
        return call or self.pickled_call(function, code, args, kwargs, limit, trace)

    def plain_call(
        self,
        function: Function,
        code: FunctionCode,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        limit: float,
        trace: Carrier | None = None,
    ) -> TaskCall | None:
        """Return a call whose arguments are plain values and arrays; None if they are not."""
        name = name_of(function)
        if isinstance(function, NativeFunctionRef):
            native = self._native(function.program)
            argument = {
                "code": native.image,
                "native": name,
                "arguments": (tuple(map(native_argument, args)), native_arguments(kwargs)),
                "crash_handlers": msgspec.to_builtins(
                    list(native.crash_handlers), builtin_types=(bytes,)
                ),
            }
            procedure, debug_files, content = "native", native.built.debug_files, native.content
        else:
            argument = {**code, "arguments": (args, kwargs)}
            procedure, debug_files, content = self._procedure, {}, ()
        if trace:
            argument["trace"] = trace
        try:
            encoded = values.encode(argument).owned()
        except DataValueError:
            return None
        return TaskCall(procedure, name, encoded, limit, debug_files, self.pickle, content)

    def pickled_call(
        self,
        function: Function,
        code: FunctionCode,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        limit: float,
        trace: Carrier | None = None,
    ) -> TaskCall:
        """Return a call whose arguments are any objects, pickled.

        Raises:
            DataValueError: They cannot be pickled, or must not be.
        """
        name = name_of(function)
        if not self.pickle or isinstance(function, NativeFunctionRef):
            try:
                values.encode((args, kwargs))
            except DataValueError as error:
                if not isinstance(function, NativeFunctionRef):
                    error.hint += "; or set tasks.pickle = true"
                raise error.located(name) from None
        pickled = pickling.dump(
            (args, kwargs),
            f"an argument of {name}",
            "open files, make locks and connections inside the function",
        )
        pickling.check_versions(pickled.data, name, self._pythons())
        argument = {**code, "arguments": pickled}
        encoded = values.encode({**argument, "trace": trace} if trace else argument).owned()
        return TaskCall(self._procedure, name, encoded, limit, {}, self.pickle)

    @property
    def _procedure(self) -> str:
        return "call" if self.pickle else "call_plain"

    def for_stream(self, function: Any, limit: float) -> tuple[UserCode, dict[str, Path]]:
        """Return a function or filter of a stream, and the debug files of its libraries."""
        if isinstance(function, NativeFunctionRef):
            native = self._native(function.program)
            name = function.function
            user = UserCode(
                name,
                native.image,
                name,
                list(native.crash_handlers),
                time_limit=limit,
                content=list(native.content),
            )
            return user, native.built.debug_files
        steps = makes_steps(function)
        pickled = self._pickled(function, beside=False)
        return UserCode(name_of(function), pickled.data, steps=steps, time_limit=limit), {}

    def _pickled(self, function: Callable[..., Any], *, beside: bool) -> Pickled:
        pickled = _pickled(function, beside=beside)
        pickling.check_versions(pickled.data, name_of(function), self._pythons())
        if len(pickled.data) > LARGE_FUNCTION and not self._warned:
            self._warned = True
            _log.warning(
                "a function carries large data in its closure, its defaults or globals",
                function=name_of(function),
                size=describe_size(len(pickled.data)),
                hint="keep them in arrays: these travel in shared memory",
            )
        return pickled

    def _native(self, program: Program) -> NativeProgram:
        key = (program.hash, repr(sorted(program.parameters.items())))
        native = self._programs.get(key)
        if native is None:
            variables = dict(self._environment())
            built = build_for_all(
                program, self._targets(), cache=self._cache, environment=variables
            )
            handlers = build_crash_handlers(self._cache, built)
            image = make_image(program, built, self._cache)
            content = self._offered.code(image, handlers)
            native = NativeProgram(msgspec.msgpack.encode(image), built, handlers, content)
            self._programs[key] = native
            while len(self._programs) > MAX_PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return native


def _pickled(function: Callable[..., Any], *, beside: bool) -> Pickled:
    """Return a pickled function, with large arrays beside it or inside."""
    try:
        if beside:
            return pickling.with_buffers(function)
        return Pickled(pickling.pickle_of(function))
    except SapwoodError as error:  # it holds a cluster, a stream, a future
        raise error.located(name_of(function)) from None
    except Exception as error:
        hint = "open files, make locks and connections inside the function"
        if isinstance(error.__cause__ or error, RecursionError):
            hint = "use fewer levels of lists and dictionaries in one another"
        raise DataValueError(
            f"the function cannot be sent to an agent: {error}",
            where=name_of(function),
            hint=hint,
        ) from error


def makes_steps(what: object) -> bool:
    """Whether a function is a generator: each value is sent alone."""
    return inspect.isgeneratorfunction(inspect.unwrap(what) if callable(what) else what)


def name_of(what: object) -> str:
    """Return what people call a function."""
    if isinstance(what, functools.partial):
        return name_of(what.func)
    if isinstance(what, NativeFunctionRef):
        return what.function
    return str(getattr(what, "__qualname__", None) or type(what).__qualname__)
