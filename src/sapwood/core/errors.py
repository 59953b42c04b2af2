"""Every error that Sapwood raises on purpose, in one tree.

::

    SapwoodError                       SW000
    ├── InputError                     SW100  the request itself is wrong
    │   ├── ConfigurationError         SW110
    │   ├── ProgramError               SW120
    │   │   ├── ParameterError         SW121
    │   │   ├── BuildError             SW122
    │   │   ├── CompilerMissingError   SW123
    │   │   ├── FunctionMissingError   SW124
    │   │   └── ArgumentError          SW125
    │   └── DataError                  SW130
    │       ├── DataMissingError       SW131
    │       ├── DataShapeError         SW132
    │       └── DataValueError         SW133
    ├── ExecutionError                 SW200  user code did not finish
    │   ├── UserCodeError              SW201
    │   ├── RunnerCrashError           SW202
    │   ├── TimeLimitError             SW203  also a TimeoutError
    │   ├── MemoryLimitError           SW204  also a MemoryError
    │   ├── CancelledError             SW205  also that of concurrent.futures
    │   └── ProcessSpentError          SW206
    ├── ResourceError                  SW300  the machine has not enough of something
    │   ├── DrainedError               SW301  a run stopped before its machines went
    │   └── NotReadyError              SW302  a session has not begun yet
    ├── CommunicationError             SW400
    │   ├── ProtocolError              SW401
    │   ├── AgentLostError             SW402
    │   ├── ClosedError                SW403
    │   ├── NodeLostError              SW404
    │   ├── GroupError                 SW408
    │   └── ActorLostError             SW409
    ├── StoreError                     SW500  the store of a head cannot do what was asked
    │   ├── StoreInUseError            SW501
    │   ├── StoreFullError             SW502
    │   ├── StoreUnavailableError      SW503
    │   ├── HistoryGoneError           SW504
    │   └── LeaseLostError             SW505
    ├── SecurityError                  SW600  a certificate, token or credential is not valid
    └── InternalError                  SW900  a mistake of Sapwood itself

An error says *what* happened, *where*, and *what to do*; its code never changes and its
class decides the exit code of the command line (see ``docs/reference/errors.md``).
Errors cross process borders as :class:`ErrorRecord`, a plain structure, never pickled.
"""

from __future__ import annotations

import builtins
import concurrent.futures
import contextlib
import functools
import itertools
from types import MemberDescriptorType
from typing import Any, ClassVar, Self

import msgspec

MAX_RECORD_TEXT = 64 * 1024
"""Longest text of one field of an error record, in characters; the middle is cut out."""

REPORT_HINT = "this is a mistake of Sapwood itself: please report it"
"""What to do about an :class:`InternalError`."""

MAX_RECORD = 512 * 1024
"""Characters of all texts of one error record together."""

MAX_DETAILS = 16
"""Details of one error record; more are left out."""

MAX_TITLE = 1024
"""Longest title of a detail, in characters."""

EXCEPTION_TYPE = "exception type"
"""Title of the detail that names the class of a user's exception; it is not shown."""


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as plain data.

    Code, what happened, where, what to do, titled details, and the user's exception as a pickle
    that only the client opens; empty fields are omitted.
    """

    code: str
    what: str
    where: str = ""
    hint: str = ""
    details: dict[str, str] = {}
    exception: bytes = b""


class SapwoodError(Exception):
    """Base of all errors of Sapwood.

    Args:
        what: What happened, one sentence.
        where: The place: a file and line, an agent, a parameter.
        hint: What the reader can do about it.
        details: Longer texts by title (compiler output, captured stderr, a backtrace).

    Attributes:
        exception: The exception of the user's that this error tells of, pickled.

    Example:
        >>> print(SapwoodError("no such file", where="data.npy", hint="check the path"))
        no such file (data.npy). Hint: check the path
    """

    code: ClassVar[str] = "SW000"
    exit_code: ClassVar[int] = 1
    exception: bytes = b""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        hint: str = "",
        details: dict[str, str] | None = None,
    ) -> None:
        # Not super(): next in line may be a built-in exception that wants other arguments.
        Exception.__init__(self, what)
        self.what = what
        self.where: str = where
        self.hint = hint
        self.details: dict[str, str] = dict(details or {})

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += f" ({self.where})"
        if self.hint:
            text += f". Hint: {self.hint}"
        for title, body in self.details.items():
            if title != EXCEPTION_TYPE:
                text += f"\n--- {title} ---\n{body.rstrip()}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        return SapwoodError.from_record, (self.to_record(),)

    def to_record(self, limit: int = MAX_RECORD_TEXT) -> ErrorRecord:
        """Return this error as plain data of at most about ``MAX_RECORD`` bytes.

        Args:
            limit: Characters of each text at most; less where all texts together are too long.
        """
        while True:
            record = ErrorRecord(
                code=self.code,
                what=_shorten(self.what, limit),
                where=_shorten(self.where, limit),
                hint=_shorten(self.hint, limit),
                details={
                    _shorten(title, MAX_TITLE): _shorten(body, limit)
                    for title, body in itertools.islice(self.details.items(), MAX_DETAILS)
                },
                exception=self.exception,
            )
            texts = (record.what, record.where, record.hint, *record.details.values())
            if limit <= MAX_TITLE or sum(map(len, texts)) <= MAX_RECORD:
                return record
            limit //= 2

    @classmethod
    def from_record(cls, record: ErrorRecord) -> SapwoodError:
        """Return the error that a record describes, of the class its code names."""
        kind = error_classes().get(record.code, SapwoodError)
        if kind is UserCodeError:
            kind = _also_builtin(record.details.get(EXCEPTION_TYPE, ""))
        error = kind(record.what, where=record.where, hint=record.hint, details=record.details)
        if record.exception:
            error.exception = record.exception
        return error

    def located(self, where: str) -> Self:
        """Add a place to what an error knows of its place, and return the same error."""
        known = self.where.split(", ") if self.where else []
        known += [part for part in where.split(", ") if part not in known]
        self.where = ", ".join(known)
        return self

    def located_in(self, function: str) -> Self:
        """Add a function to what an error knows of its place, unless its text names that already.

        Example:
            >>> str(SapwoodError("the recursion is too deep").located_in("rec"))
            'the recursion is too deep (rec)'
            >>> str(SapwoodError("killed by SIGSEGV in rec").located_in("rec"))
            'killed by SIGSEGV in rec'
        """
        named = function in self.what.replace(",", " ").split()
        return self if named else self.located(function)


class InputError(SapwoodError):
    """The request itself is wrong; the same request fails again."""

    code = "SW100"
    exit_code = 2


class ConfigurationError(InputError):
    """A configuration file, variable or flag is wrong."""

    code = "SW110"


class ProgramError(InputError):
    """A program cannot be read or does not fit together."""

    code = "SW120"


class ParameterError(ProgramError):
    """A program parameter is unknown, of the wrong type or out of range."""

    code = "SW121"


class BuildError(ProgramError):
    """A source does not compile; ``details["compiler output"]`` is the compiler's whole text."""

    code = "SW122"
    exit_code = 3


class CompilerMissingError(ProgramError):
    """This machine has no compiler for the language of a source."""

    code = "SW123"
    exit_code = 3


class FunctionMissingError(ProgramError):
    """A program names a function that its sources do not define."""

    code = "SW124"


class ArgumentError(ProgramError):
    """An argument does not fit the parameter of a native function."""

    code = "SW125"


class DataError(InputError):
    """A dataset cannot be used."""

    code = "SW130"


class DataMissingError(DataError):
    """A data file is missing or cannot be read."""

    code = "SW131"


class DataShapeError(DataError):
    """Data are of the wrong shape or type, or empty."""

    code = "SW132"


class DataValueError(DataError):
    """Data hold values that a program cannot take, for example NaN."""

    code = "SW133"


class ExecutionError(SapwoodError):
    """User code did not finish."""

    code = "SW200"
    exit_code = 4


class UserCodeError(ExecutionError):
    """User code raised an exception; ``details["traceback"]`` is its traceback.

    The error is an instance of the exception's class too: ``except ValueError`` catches what a
    function raised on an agent. Of a task that is so for every class, and the exception itself
    is the ``__cause__``; elsewhere for the built-in ones and those derived from them.
    """

    code = "SW201"


class RunnerCrashError(ExecutionError):
    """A runner process ended by a signal or an exit in the middle of a call."""

    code = "SW202"


class TimeLimitError(ExecutionError, TimeoutError):
    """A call ran longer than its time limit and was killed; also a ``TimeoutError``."""

    code = "SW203"


class MemoryLimitError(ExecutionError, MemoryError):
    """A call needed more memory than its limit allows; also a ``MemoryError``."""

    code = "SW204"


class CancelledError(ExecutionError, concurrent.futures.CancelledError):
    """A run or task was cancelled; also a ``concurrent.futures.CancelledError``."""

    code = "SW205"


class ProcessSpentError(ExecutionError):
    """A runner has had another version of a program; its agent runs the call in a new one."""

    code = "SW206"


class ResourceError(SapwoodError):
    """The machine has not enough memory, disk, processes or files for the request."""

    code = "SW300"
    exit_code = 5


class DrainedError(ResourceError):
    """A run stopped after an iteration because its machines leave soon; it can be resumed."""

    code = "SW301"
    exit_code = 75


class NotReadyError(ResourceError):
    """A session has not begun yet, as it waits for its machines; try again later."""

    code = "SW302"
    exit_code = 75


class CommunicationError(SapwoodError):
    """Something between two places of the tree went wrong."""

    code = "SW400"
    exit_code = 6


class ProtocolError(CommunicationError):
    """A peer sent something that the protocol does not allow; only that peer is cut off."""

    code = "SW401"


class AgentLostError(CommunicationError):
    """An agent or junction is gone and the policy does not replace it."""

    code = "SW402"


class NodeLostError(CommunicationError):
    """A machine did not become a node of the cluster, or is one no more."""

    code = "SW404"


class GroupError(CommunicationError):
    """Members of a group did not call the same operation, or not in time, or one left."""

    code = "SW408"


class ActorLostError(CommunicationError):
    """The process that held an actor's state has ended, or the actor was closed."""

    code = "SW409"


class ClosedError(CommunicationError, RuntimeError):
    """The cluster, stream or link was closed before the operation.

    Also a ``RuntimeError``, which executors raise after their shutdown.
    """

    code = "SW403"


class StoreError(SapwoodError):
    """The store of a head is damaged, of a newer version, or cannot be read or written."""

    code = "SW500"
    exit_code = 5


class StoreInUseError(StoreError):
    """Another process has the store."""

    code = "SW501"


class StoreFullError(StoreError):
    """The disk or the quota of a store is full; nothing was written, and reading still works."""

    code = "SW502"


class StoreUnavailableError(StoreError):
    """No member of a store answered in time; the request may be done, now, later or never."""

    code = "SW503"
    exit_code = 6


class HistoryGoneError(StoreError):
    """A watch asked for changes that the store keeps no more: read all, then watch from there."""

    code = "SW504"


class LeaseLostError(StoreError):
    """A lease has expired or was revoked, and its keys are gone."""

    code = "SW505"


class SecurityError(SapwoodError):
    """A certificate, token or credential is not valid, or not for this."""

    code = "SW600"
    exit_code = 7


class InternalError(SapwoodError):
    """A mistake of Sapwood itself: an invariant or a table of states was violated.

    It fails what it concerns (a request, a stream, a link) and never blames a peer.
    ``details["traceback"]`` says where it happened, if it was an unexpected exception.
    """

    code = "SW900"


def invariant(condition: object, what: str) -> None:
    """Check an invariant.

    Args:
        condition: Must be true.
        what: The invariant in words, for the error.

    Raises:
        InternalError: It is false.

    Example:
        >>> invariant(1 < 2, "waves are numbered in order")
        >>> invariant(2 < 1, "waves are numbered in order")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        sapwood.core.errors.InternalError: violated: waves are numbered in order. Hint: ...
    """
    if not condition:
        raise InternalError(f"violated: {what}", hint=REPORT_HINT)


def error_classes() -> dict[str, type[SapwoodError]]:
    """Return every error class by its code, from the root of the tree down.

    Example:
        >>> error_classes()["SW122"].__name__
        'BuildError'
    """
    classes: dict[str, type[SapwoodError]] = {}
    pending: list[type[SapwoodError]] = [SapwoodError]
    while pending:
        kind = pending.pop(0)
        classes.setdefault(kind.code, kind)
        pending.extend(kind.__subclasses__())
    return classes


def nearest_builtin(kind: type[BaseException]) -> type[BaseException]:
    """Return the built-in exception that a class is or derives from.

    Example:
        >>> class Missing(KeyError): ...
        >>> nearest_builtin(Missing)
        <class 'KeyError'>
    """
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def taken_apart(exception: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the built-in class of an exception is made with, and its attributes.

    Example:
        >>> taken_apart(FileNotFoundError(2, "no such file", "a.npy"))
        ((2, 'no such file', 'a.npy'), {})
    """
    reduced: Any = nearest_builtin(type(exception)).__reduce__(exception)
    _, args, *state = reduced
    attributes = state[0] if state and isinstance(state[0], dict) else {}
    return args, {**_in_slots(exception), **attributes}


def _in_slots(exception: BaseException) -> dict[str, Any]:
    """Return the attributes that classes of an exception keep in ``__slots__``."""
    found: dict[str, Any] = {}
    for kind in type(exception).__mro__:
        if kind.__module__ == "builtins":
            break
        for name, member in list(vars(kind).items()):
            if type(member) is MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # it was never set
                    found[name] = member.__get__(exception)
    return found


def put_together(kind: type[Any], args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Return an exception of a class with what :func:`taken_apart` returned of another.

    The class's own constructor may want something else: only what is built in is called.

    Raises:
        TypeError: The built-in class takes no such arguments.
    """
    builtin = nearest_builtin(kind)
    made = builtin.__new__(kind, *args)
    builtin.__init__(made, *args)
    for name, value in attributes.items():
        with contextlib.suppress(Exception):  # a property of the class's
            object.__setattr__(made, name, value)
    return made


def with_exception(error: UserCodeError, exception: Exception) -> UserCodeError:
    """Return an error that is also an instance of the class of the user's exception.

    It has the arguments and attributes of the exception, but for those that errors of Sapwood
    have, and the exception itself as its cause. Where no class can be both, the error is
    returned, with that cause.

    Example:
        >>> error = with_exception(UserCodeError("KeyError: 'a'"), KeyError("a"))
        >>> isinstance(error, KeyError), error.args, error.what
        (True, ('a',), "KeyError: 'a'")
    """
    kind: Any = type(exception)
    both = _both(kind)
    if both is not None:
        args, attributes = taken_apart(exception)
        own = {name: value for name, value in attributes.items() if not hasattr(error, name)}
        try:
            made: UserCodeError = put_together(both, args, own | vars(error))
        except Exception:  # noqa: BLE001 - classes of the user's may do anything
            made = error
        error = made
    error.__cause__ = exception
    return error


@functools.lru_cache(maxsize=1024)
def _both(kind: Any) -> type[UserCodeError] | None:
    """Return a class of errors that also are exceptions of a class; None if there is none."""
    if issubclass(UserCodeError, kind):
        return UserCodeError
    namespace = {"__module__": UserCodeError.__module__, "__doc__": UserCodeError.__doc__}
    try:
        return type(UserCodeError.__name__, (UserCodeError, kind), namespace)
    except Exception:  # noqa: BLE001 - some cannot be combined, or do not want to be
        return None


@functools.cache
def _also_builtin(name: str) -> type[UserCodeError]:
    """Return a class of errors that also are the built-in exception of a name, if it is one."""
    builtin = getattr(builtins, name, None)
    if not (isinstance(builtin, type) and issubclass(builtin, Exception)):
        return UserCodeError
    kind: Any = builtin
    both = _both(kind)
    try:
        if both is not None:
            both("")
    except TypeError:  # some built-in exceptions cannot be made without what they are about
        return UserCodeError
    return both or UserCodeError


def _shorten(text: str, limit: int) -> str:
    if not text.isascii():  # names of files need not be text
        text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    half = max(1, limit // 2)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
