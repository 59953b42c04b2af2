"""The declaration of a call of a head.

A call is a method of the part of the head that owns a noun, and :func:`call` declares it::

    class Nodes(HeadPart):
        @call("node.rename", right=ADMIN)
        def rename(self, caller: ServiceCaller, node: str, name: str) -> NodeRecord: ...

All else follows: the types of the message from the signature, the check of the right, the
dispatch, the row of the documentation's table, and the typed call of a client
(``head.call(Nodes.rename, "n1", "gpu1")``).
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import typing
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ProtocolError

if TYPE_CHECKING:
    from sapwood.head.protocol.caller import ServiceCaller

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

CALLER: Final = "caller"
"""Name of the parameter that receives the caller; a method without it is not given the caller."""

WRONG: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What reading a message of a wrong form raises."""


class Reach(enum.Enum):
    """What a call is about, which decides what is checked besides its right.

    Attributes:
        CLUSTER: The whole cluster; the right suffices.
        OBJECT: One node; the method checks the right for it.
        OWNED: One session, which the caller must own or have ``admin``; the method checks both.
        CALLER: What the caller, or the holder of its credential, has made.
        HEAD: The machine of the head: only processes there may make the call.
    """

    CLUSTER = "cluster"
    OBJECT = "object"
    OWNED = "owned"
    CALLER = "caller"
    HEAD = "head"

    @property
    def method_checks(self) -> bool:
        """Whether the method checks the right, because only it knows the object."""
        return self in {Reach.OBJECT, Reach.OWNED}


def takes_caller(function: Callable[..., Any]) -> bool:
    """Return whether a method is given the caller."""
    return CALLER in inspect.getfullargspec(function).args[1:2]


@dataclasses.dataclass(frozen=True, slots=True)
class Http:
    """The HTTP endpoint of a call.

    The method's docstring has its summary and the meanings of its parameters.

    Attributes:
        method: ``GET``, ``POST`` or ``DELETE``.
        path: Its path below ``/api/v1``; a part in braces is the parameter of this name.
        key: Name of the only member of the answer, for an answer that is a list.
        query: Whether the other parameters may be given in the query.
    """

    method: str
    path: str
    key: str = ""
    query: bool = True


class HeadCall(Generic[P, R_co]):
    """A declared call of a head.

    Attributes:
        function: The method that answers it.
        name: Its name in messages.
        right: The right that a caller needs.
        reach: What it is about.
        slow: Whether it runs on a pool of threads, because it waits for something.
        in_order: Whether it runs after the caller's former calls of this name.
        http: Its HTTP endpoint; None for none.
        elsewhere: What callers elsewhere can do, for a call of the head's machine.
        takes_caller: Whether the method is given the caller.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        right: str,
        reach: Reach,
        *,
        slow: bool,
        in_order: bool,
        http: Http | None,
        elsewhere: str,
    ) -> None:
        self.function = function
        self.name = name
        self.right = right
        self.reach = reach
        self.slow = slow
        self.in_order = in_order
        self.http = http
        self.elsewhere = elsewhere
        self.takes_caller = takes_caller(function)
        self.__doc__ = function.__doc__

    @cached_property
    def arguments(self) -> type[msgspec.Struct]:
        """The structure of what a message carries: the parameters of the method."""
        found = list(inspect.signature(self.function).parameters.values())
        return msgspec.defstruct(
            self.name,
            [
                (one.name, self._types[one.name])
                if one.default is one.empty
                else (one.name, self._types[one.name], one.default)
                for one in found[1 + self.takes_caller :]
            ],
            frozen=True,
            module=self.function.__module__,
        )

    @cached_property
    def answer(self) -> Any:
        """The type of the answer."""
        kind = self._types["return"]
        return typing.get_args(kind)[0] if typing.get_origin(kind) is Future else kind

    @cached_property
    def _types(self) -> dict[str, Any]:
        # no message has a caller, so modules need the class only for its annotation
        local = {"ServiceCaller": Any}
        return typing.get_type_hints(self.function, localns=local, include_extras=True)

    def with_values(self, *args: P.args, **kwargs: P.kwargs) -> msgspec.Struct:
        """Return what the message of a client carries."""
        return self.arguments(*args, **kwargs)

    def read_values(self, data: msgspec.Raw) -> dict[str, Any]:
        """Return the arguments that a message carries.

        Raises:
            ProtocolError: It carries something else.
        """
        try:
            return msgspec.structs.asdict(typed.unpacker(self.arguments)(memoryview(data)))
        except WRONG as error:
            raise ProtocolError(f"malformed call '{self.name}': {error}") from error

    def read_answer(self, data: msgspec.Raw) -> R_co:
        """Return the answer that a message carries.

        Raises:
            ProtocolError: It carries something else.
        """
        try:
            found: R_co = typed.unpacker(self.answer)(memoryview(data))
        except WRONG as error:
            raise ProtocolError(
                f"malformed answer to '{self.name}': {error}",
                hint="is the head of another version of Sapwood?",
            ) from error
        return found

    def __repr__(self) -> str:
        return f"<call {self.name}>"


class LocalCall(HeadCall[P, R_co]):
    """A call whose method does not need the caller, so that the head may use it as well."""

    @overload
    def __get__(self, part: None, owner: type) -> LocalCall[P, R_co]: ...
    @overload
    def __get__(self, part: HeadPart, owner: type) -> Callable[P, R_co]: ...
    def __get__(self, part: HeadPart | None, owner: type) -> Any:
        """Return the call itself, or the method of a part."""
        return self if part is None else self.function.__get__(part, owner)


class Declared(Protocol):
    """Makes a method a call; the answer of one that returns a future is the future's result."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, ServiceCaller, P], Future[R]], /
    ) -> HeadCall[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, ServiceCaller, P], R], /
    ) -> HeadCall[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # a future is an object like others
        self, function: Callable[Concatenate[Any, P], Future[R]], /
    ) -> HeadCall[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> LocalCall[P, R]: ...


def call(
    name: str,
    *,
    right: str,
    reach: Reach = Reach.CLUSTER,
    slow: bool = False,
    in_order: bool = False,
    http: Http | None = None,
    elsewhere: str = "",
) -> Declared:
    """Declare a method of a part of the head as a call.

    The first parameter may be the caller, under this name. All other parameters and the answer
    are values of types that messages can carry. The method may return a future of the answer.

    Args:
        name: Its name in messages.
        right: The right that a caller needs.
        reach: What it is about.
        slow: Whether it waits for a disk, the store or other processes, so that it must not run on
            the event loop.
        in_order: Whether a slow call must run after the caller's former calls of this name.
        http: Its HTTP endpoint, if it has one.
        elsewhere: What callers elsewhere can do, for a call of the head's machine.
    """

    def declared(function: Callable[..., Any], /) -> Any:
        kind: type[HeadCall[Any, Any]] = HeadCall if takes_caller(function) else LocalCall
        return kind(
            function,
            name,
            right,
            reach,
            slow=slow,
            in_order=in_order,
            http=http,
            elsewhere=elsewhere,
        )

    return declared


class HeadPart:
    """A part of the head: the state of one noun, and the calls about it."""

    @classmethod
    def declared(cls) -> list[HeadCall[..., Any]]:
        """Return the calls of this part."""
        return [one for one in vars(cls).values() if isinstance(one, HeadCall)]
