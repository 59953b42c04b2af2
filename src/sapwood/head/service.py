"""The server of a head: it admits callers, checks their rights and answers their calls."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Executor, Future
from functools import partial
from typing import Any

import msgspec

from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.tls_connection import TlsConnection
from sapwood.comm.transport.unix import UnixConnection
from sapwood.core import typed
from sapwood.core.errors import ClosedError, ProtocolError, SapwoodError, SecurityError
from sapwood.core.failures import as_error, log_failure
from sapwood.core.futures import CallerFuture, when_done
from sapwood.environment.logs import logger
from sapwood.head.authorizer import Authorizer
from sapwood.head.protocol.call import CALLER, WRONG, HeadCall, HeadPart
from sapwood.head.protocol.caller import MAX_STRANGE_MESSAGE, ServiceCaller
from sapwood.head.protocol.framing import (
    MAX_MESSAGE,
    Notice,
    Reply,
    ServiceCall,
    raw,
)
from sapwood.head.protocol.greeting import CUT_OFF, GREET, PRESENT
from sapwood.security.capabilities import Shown
from sapwood.security.rights import Rights
from sapwood.session.loop_thread import LoopThread

MAX_CALLS = 10_000
"""Calls of one client that may wait for an answer."""

MAX_CLIENTS = 256
"""Clients that may be there at a time."""

MAX_STRANGERS = 64
"""Clients that have shown no credential yet; with more, the first of them is cut off."""

STRANGER_PATIENCE = 10.0
"""Seconds that a client has to show one."""

FAREWELL = 1.0
"""Seconds that a client has to read why it is cut off."""

LONGEST_TIMER = 3600.0
"""Seconds after which the end of a credential is looked at again at the latest."""

_log = logger("head")


class ServiceServer:
    """Answers clients; what a listener gives their connections to.

    Args:
        thread: Its loop watches the connections.
        authorizer: Says who may call what; without one, only clients at a Unix socket may.
        serves: Whether calls are answered; otherwise peers are disconnected.
        pool: Runs slow calls.
    """

    def __init__(
        self,
        thread: LoopThread,
        authorizer: Authorizer | None = None,
        serves: Callable[[], bool] = lambda: True,
        pool: Executor | None = None,
    ) -> None:
        self._calls: dict[str, tuple[HeadPart, HeadCall[..., Any]]] = {}
        self._pool = pool
        self._last: dict[tuple[int, str], Future[Any]] = {}
        self._serves = serves
        self._thread = thread
        self._authorizer = authorizer
        self._callers: dict[int, ServiceCaller] = {}
        self._numbers = itertools.count(1)

    def answer(self, parts: Iterable[HeadPart]) -> None:
        """Answer the calls of these parts; before the first client comes."""
        for part in parts:
            self._calls |= {one.name: (part, one) for one in part.declared()}

    @property
    def callers(self) -> list[ServiceCaller]:
        """Those that are there."""
        return list(self._callers.values())

    def tell(self, caller: ServiceCaller, name: str, value: Any) -> None:
        """Send a client a notice; from any thread."""
        with contextlib.suppress(ClosedError):
            self._thread.post(self._notify, caller, Notice(name, value))

    def tell_all(self, name: str, value: Any) -> None:
        """Send all clients a notice; from any thread."""
        with contextlib.suppress(ClosedError):
            self._thread.post(self._notify_all, Notice(name, value))

    def _notify_all(self, notice: Notice) -> None:
        for caller in self.callers:
            self._notify(caller, notice)

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a client in."""
        del initiator
        number = next(self._numbers)
        assert isinstance(connection, UnixConnection | TlsConnection)  # noqa: S101 - no others come
        caller = ServiceCaller(number, connection)
        strangers = [one for one in self._callers.values() if one.rights is None]
        if caller.rights is None:
            if len(strangers) >= MAX_STRANGERS:
                self._cut_off(strangers[0], "others wait, and it has shown no credential")
            self._thread.loop.call_later(STRANGER_PATIENCE, self._too_late, caller)
        elif len(self._callers) - len(strangers) >= MAX_CLIENTS:
            self._refuse(caller)
            return number
        self._callers[number] = caller
        return number

    def _refuse(self, caller: ServiceCaller) -> None:
        _log.warning("client refused", reason=f"{MAX_CLIENTS} are there")
        self._thread.loop.call_soon(caller.connection.abort)

    def _too_late(self, caller: ServiceCaller) -> None:
        if caller.there and caller.rights is None:
            self._cut_off(caller, "it has shown no credential in time")

    def _cut_off(self, caller: ServiceCaller, reason: str) -> None:
        """End a connection, and tell the client why: it has no rights from now on."""
        _log.warning("client cut off", number=caller.number, reason=reason)
        if self._callers.pop(caller.number, None) is None:
            return
        if caller.rights is not None and self._authorizer is not None:
            self._authorizer.note_cut_off(caller, caller.rights, reason)
        caller.rights = None
        self._notify(caller, Notice(CUT_OFF, reason))
        caller.gone()
        caller.connection.close()
        self._thread.loop.call_later(FAREWELL, caller.connection.abort)

    def speaks_for(self, caller: ServiceCaller, address: str) -> None:
        """Leave a client no rights until it shows the credential of whom it speaks for.

        Args:
            caller: The HTTP server, on this machine.
            address: Where that one is.
        """
        caller.rights, caller.address = None, address
        caller.reader.max_header = MAX_STRANGE_MESSAGE
        self._thread.loop.call_later(STRANGER_PATIENCE, self._too_late, caller)

    def deny(self, ids: frozenset[str]) -> int:
        """Cut off those whose credential was revoked; return how many. From any other thread."""
        return self._thread.call(self._deny, ids)

    def _deny(self, ids: frozenset[str]) -> int:
        found = [
            one for one in self.callers if one.rights is not None and ids & set(one.rights.ids)
        ]
        for caller in found:
            self._cut_off(caller, "its credential was revoked")
        return len(found)

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes of a client in."""
        caller = self._callers.get(number)
        if caller is None:
            return
        try:
            for message in caller.reader.feed(data):
                self._serve(caller, message)
        except ProtocolError as error:
            _log.warning("client cut off", reason=str(error))
            caller.connection.abort()

    def connection_closed(self, number: int, reason: str) -> None:
        """Forget a client."""
        del reason
        caller = self._callers.pop(number, None)
        if caller is not None:
            caller.gone()

    def close(self) -> None:
        """End all connections, after what is on its way."""
        for caller in self.callers:
            caller.connection.close()

    def _admit(self, caller: ServiceCaller, call: ServiceCall, authorizer: Authorizer) -> None:
        """Ask the peer for a credential."""
        if call.name == GREET:
            self._reply(caller, call.number, authorizer.greet(caller))
            return
        try:
            rights = authorizer.admit(caller, typed.unpacker(Shown)(memoryview(call.value)))
        except (SecurityError, *WRONG) as error:
            problem = error if isinstance(error, SecurityError) else ProtocolError(str(error))
            self._reply(caller, call.number, error=problem)
            self._cut_off(caller, problem.what)
            return
        others = [one for one in self._callers.values() if one.rights is not None]
        if len(others) > MAX_CLIENTS:
            self._refuse(caller)
            return
        caller.reader.max_header = MAX_MESSAGE
        self._look_at_end(caller, rights, authorizer)
        self._reply(caller, call.number, authorizer.facts_of(rights))

    def _look_at_end(self, caller: ServiceCaller, rights: Rights, authorizer: Authorizer) -> None:
        """Cut a client off when its credential ends."""
        if not caller.there or caller.rights is not rights:
            return
        left = authorizer.seconds_left(rights)
        if left <= 0:
            self._cut_off(caller, "its credential has expired")
        else:
            self._thread.loop.call_later(
                min(left, LONGEST_TIMER), self._look_at_end, caller, rights, authorizer
            )

    def _serve(self, caller: ServiceCaller, call: ServiceCall) -> None:
        if not caller.there:
            return
        if not self._serves():
            caller.connection.abort()
            return
        if call.name in {GREET, PRESENT} and self._authorizer is not None:
            self._admit(caller, call, self._authorizer)
            return
        part, declared = self._calls.get(call.name, (None, None))
        if part is None or declared is None:
            error = ProtocolError(
                f"the head knows no '{call.name}'", hint="is it of another version of Sapwood?"
            )
            self._reply(caller, call.number, error=error)
            return
        if caller.waiting >= MAX_CALLS:
            raise ProtocolError(f"a client has more than {MAX_CALLS} open calls")
        try:
            answer = self._run(caller, part, declared, call.value)
        except SapwoodError as error:
            self._reply(caller, call.number, error=error)
            return
        except Exception as error:  # noqa: BLE001 - a mistake here must not end the head
            doing = f"call '{call.name}'"
            log_failure(doing, error)
            self._reply(caller, call.number, error=as_error(error, doing))
            return
        if isinstance(answer, Future):
            caller.waiting += 1
            when_done(answer, partial(self._answered, caller, call.number))
        else:
            self._reply(caller, call.number, answer)

    def _run(
        self, caller: ServiceCaller, part: HeadPart, call: HeadCall[..., Any], value: msgspec.Raw
    ) -> Any:
        """Check a call and its right, and have its method answer; on the loop's thread."""
        if self._authorizer is not None:
            self._authorizer.require(caller, call)
        else:
            _require_credential(caller)
        given = call.read_values(value)
        if call.takes_caller:
            given[CALLER] = caller
        if not call.slow:
            return call.function(part, **given)
        work = partial(call.function, part, **given)
        answer: Future[Any] = CallerFuture()
        answer.set_running_or_notify_cancel()
        if not call.in_order:
            self._submit(answer, work)
            return answer
        key = (caller.number, call.name)
        former, self._last[key] = self._last.get(key), answer
        when_done(answer, partial(self._forget_last, key))
        if former is None:
            self._submit(answer, work)
        else:
            when_done(former, lambda _: self._submit(answer, work))
        return answer

    def _forget_last(self, key: tuple[int, str], answer: Future[Any]) -> None:
        if self._last.get(key) is answer:
            self._last.pop(key, None)

    def _submit(self, answer: Future[Any], work: Callable[[], Any]) -> None:
        """Have a thread of the pool do something, and pass its outcome on."""
        assert self._pool is not None  # noqa: S101 - who has slow calls gives one
        try:
            doing = self._pool.submit(work)
        except RuntimeError:  # the pool was shut down
            answer.set_exception(ClosedError("the head ends"))
        else:
            when_done(doing, partial(_pass_on, answer))

    def _reply(
        self,
        caller: ServiceCaller,
        number: int,
        value: Any = None,
        error: SapwoodError | None = None,
    ) -> None:
        """Answer a call, if only by saying why the answer cannot be sent."""
        try:
            record = None if error is None else error.to_record()
            caller.write(Reply(number, raw(value), record))
        except ProtocolError as problem:
            caller.write(Reply(number, error=problem.to_record()))

    def _notify(self, caller: ServiceCaller, notice: Notice) -> None:
        try:
            caller.write(notice)
        except ProtocolError as error:
            _log.warning("notice left out", name=notice.name, reason=str(error))

    def _answered(self, caller: ServiceCaller, number: int, answer: Future[Any]) -> None:
        try:
            error = answer.exception()
        except CancelledError:
            error = ClosedError("the head ends")
        if error is None:
            done = partial(self._reply, caller, number, answer.result())
        else:
            problem = as_error(error, "a call of the head")
            done = partial(self._reply, caller, number, error=problem)

        def write() -> None:
            caller.waiting -= 1
            done()

        with contextlib.suppress(ClosedError):
            self._thread.post(write)


def _require_credential(caller: ServiceCaller) -> None:
    if caller.rights is None:
        raise SecurityError("this head takes no credentials")


def _pass_on(answer: Future[Any], done: Future[Any]) -> None:
    """Give an answer what another future has, or what the future in that will have."""
    try:
        found = done.result()
    except CancelledError:
        answer.set_exception(ClosedError("the head ends"))
    except Exception as error:  # noqa: BLE001 - it becomes the answer of that call
        answer.set_exception(error)
    else:
        if isinstance(found, Future):
            when_done(found, partial(_pass_on, answer))
        else:
            answer.set_result(found)
