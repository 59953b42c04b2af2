"""Pickles of tasks: what users hold and values cannot carry, and the exceptions that they raise.

Only runners and the client that asked open them; in between they are bytes like others.
"""

import contextlib
import functools
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, ClassVar, NewType

import cloudpickle
import numpy as np

from sapwood.code import pickled_kinds
from sapwood.code.user_modules import is_made_at_run_time, reference_to
from sapwood.comm.values import LONG, Pickled
from sapwood.core.errors import DataValueError, SapwoodError, put_together, taken_apart

MAX_EXCEPTION = 32 * 1024
"""Bytes of a pickled exception; of a larger one only class and text arrive."""

_PROTOCOL = 5

_NO_FILE = "<dynamic-code>"
"""What cloudpickle 3.1.3 and newer write in place of the file that a function comes from."""

_MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"

_HINT = (
    "put the function or class into a file of a program's folder, or into a module that is "
    "installed on the machines; or have Python {} there, by nodes.python"
)


def code_of_one_version(minor: str, maker: Callable[..., CodeType], *parts: Any) -> CodeType:
    """Make compiled code again where a Python runs it that is like the one that compiled it.

    Another one would crash.

    Args:
        minor: The Python that compiled it, for example ``3.11``.
        maker: What makes it.
        *parts: What it is made of.

    Raises:
        DataValueError: This Python is of another minor version.
    """
    if minor != _MINOR:
        raise DataValueError(
            f"this Python is {_MINOR} and does not run code that Python {minor} compiled",
            hint=_HINT.format(minor),
        )
    return maker(*parts)


def check_versions(pickled: bytes, where: str, pythons: Iterable[str]) -> None:
    """Refuse what cannot be opened by some Pythons, because it has compiled code.

    Args:
        pickled: What :func:`pickle_of` returns, or something around it.
        where: Whose it is, for the error.
        pythons: Versions of the Pythons, for example ``3.12.1``; empty ones are not known.

    Raises:
        DataValueError: It cannot be opened everywhere.
    """
    if code_of_one_version.__name__.encode() not in pickled:
        return
    others = sorted({".".join(one.split(".")[:2]) for one in pythons if one} - {_MINOR})
    if others:
        raise DataValueError(
            f"it travels as code that Python {_MINOR} compiled, and there are processes with "
            f"Python {', '.join(others)}, which do not run that",
            where=where,
            hint=_HINT.format(_MINOR),
        )


def _reduce_code(code: CodeType) -> Any:
    """Keep the file of a function, which tracebacks name and whose lines they show."""
    maker, parts = cloudpickle.Pickler.dispatch_table[CodeType](code)
    kept = (code.co_filename if part == _NO_FILE else part for part in parts)
    return code_of_one_version, (_MINOR, maker, *kept)


def _with_parents(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


_NAMED = {FunctionType, type(functools.lru_cache(abs)), NewType}
"""Types of what pickle refers to by module and name, beside classes."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it has no types
    dispatch_table: ClassVar = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )
    reducers: Mapping[type, Callable[[Any], Any]] = MappingProxyType({})

    def reducer_override(self, value: Any) -> Any:
        """Refer to the user's modules by name and version, and copy what no file holds."""
        kind = type(value)
        if kind in self.reducers:
            return self.reducers[kind](value)
        if kind is ModuleType:
            by_value = cloudpickle.list_registry_pickle_by_value()
            if not by_value.isdisjoint(_with_parents(value.__name__)):
                return NotImplemented
            return reference_to(value) or NotImplemented
        anew = pickled_kinds.by_value(value)
        if anew is not None:
            return anew
        if kind not in _NAMED and not issubclass(kind, type):
            return NotImplemented
        module = sys.modules.get(getattr(value, "__module__", None) or "")
        if module is not None and is_made_at_run_time(module):
            cloudpickle.register_pickle_by_value(module)
        reduced = super().reducer_override(value)
        return reference_to(value) or reduced if reduced is NotImplemented else reduced


def pickle_of(
    value: Any,
    buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
    reducers: Mapping[type, Callable[[Any], Any]] | None = None,
) -> bytes:
    """Pickle a value with the functions and classes that it needs.

    Args:
        value: Any object.
        buffer_callback: That of :class:`pickle.Pickler`.
        reducers: For objects of these types, functions that return what ``__reduce__`` would.

    Raises:
        Exception: It cannot be pickled.

    Example:
        >>> pickle.loads(pickle_of(lambda: 7))()
        7
    """
    file = io.BytesIO()
    pickler = _Pickler(file, _PROTOCOL, buffer_callback=buffer_callback)
    if reducers is not None:
        pickler.reducers = reducers
    pickler.dump(value)
    return file.getvalue()


def with_buffers(value: Any) -> Pickled:
    """Pickle a value as :func:`pickle_of`; copies of its large buffers travel beside the pickle.

    Raises:
        Exception: It cannot be pickled.
    """
    pickled = _beside(value)
    copies = [np.frombuffer(one.tobytes(), np.uint8) for one in pickled.buffers]
    return Pickled(pickled.data, copies)


def _beside(value: Any) -> Pickled:
    buffers: list[np.ndarray[Any, Any]] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < LONG:
            return True
        buffers.append(np.frombuffer(raw, np.uint8))
        return False

    return Pickled(pickle_of(value, stays), buffers)


def dump(value: Any, what: str, hint: str) -> Pickled:
    """Pickle a value; large buffers stay where they are and travel beside the pickle.

    Args:
        value: Any object.
        what: What it is, for the error.
        hint: What to do when it cannot be pickled.

    Raises:
        DataValueError: It cannot be pickled.

    Example:
        >>> open_pickled(dump({1, frozenset({2})}, "a set", "")) == {1, frozenset({2})}
        True
    """
    try:
        return _beside(value)
    except SapwoodError:
        raise
    except Exception as error:
        if isinstance(error.__cause__ or error, RecursionError):
            hint = "use fewer levels of lists and dictionaries in one another"
        why = str(error).rstrip(".")
        raise DataValueError(f"{what} cannot travel: {why}", hint=hint) from error


def open_pickled(pickled: Pickled, *, lasting: bool = False) -> Any:
    """Return the value of a pickle, which can execute any code.

    Its arrays may be written to, in copies where their memory is read-only.

    Args:
        pickled: The pickle.
        lasting: Whether the value outlives the memory of the pickle.

    Raises:
        Exception: Whatever the classes of its objects raise.
    """
    buffers = [
        each.copy() if lasting or not each.flags.writeable else each for each in pickled.buffers
    ]
    # Only runners, which exist to run the user's code, and the client that asked come here.
    return pickle.loads(pickled.data, buffers=buffers)  # noqa: S301 - see above


def dump_exception(problem: BaseException) -> bytes:
    """Pickle what a user's exception is made of: its class, arguments and attributes.

    Its constructor need not take the arguments that the exception holds, and attributes that
    cannot be pickled are left out. Where the class cannot be pickled, its nearest base is used.

    Returns:
        The pickle, or nothing where there is none of at most :data:`MAX_EXCEPTION` bytes.
    """
    kind = next(filter(None, map(_one, type(problem).__mro__)), b"")
    args, attributes = taken_apart(problem)
    state = {name: _one(value) for name, value in attributes.items()}
    parts = (kind, _one(args), {name: data for name, data in state.items() if data})
    data = pickle.dumps(parts, _PROTOCOL)
    return data if len(data) <= MAX_EXCEPTION else pickle.dumps((kind, b"", {}), _PROTOCOL)


def open_exception(data: bytes) -> Exception | None:
    """Return the exception that :func:`dump_exception` took apart, or None if that fails.

    Example:
        >>> open_exception(dump_exception(KeyError("a")))
        KeyError('a')
    """
    # Only the client that asked comes here.
    with contextlib.suppress(Exception):
        packed_kind, packed_args, packed_state = pickle.loads(data)  # noqa: S301 - see above
        kind = pickle.loads(packed_kind)  # noqa: S301 - see above
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            return None
        args = pickle.loads(packed_args) if packed_args else ()  # noqa: S301 - see above
        state = {}
        for name, packed in packed_state.items():
            with contextlib.suppress(Exception):
                state[name] = pickle.loads(packed)  # noqa: S301 - see above
        made: Exception = put_together(kind, args, state)
        return made
    return None


def _one(value: Any) -> bytes:
    """Return the pickle of a value, or nothing if it cannot be pickled."""
    try:
        return pickle_of(value)
    except Exception:  # noqa: BLE001 - whatever the user's objects raise
        return b""
