"""Commands of clients on nodes, as the head passes them on."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.futures import when_done
from sapwood.head import calls
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.service import ServiceServer
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree
from sapwood.session.requests import ServedRequest


class RemoteCommands:
    """Commands of clients on nodes."""

    def __init__(self, control: ControlTree, service: ServiceServer) -> None:
        self._control = control
        self._service = service
        self._lock = threading.Lock()
        self._owners: dict[tuple[int, int], tuple[ServiceCaller, Callable[[], None]]] = {}
        self._untaken: dict[int, tuple[ServiceCaller, ServedRequest]] = {}
        self._numbers = itertools.count(1)

    def serve(self) -> None:
        """Hear what commands write, and of their ends."""
        serve = self._control.session.requests.serve
        serve(messages.COMMAND_OUTPUT, self._wrote)
        serve(messages.COMMAND_ENDED, self._ended)

    def start(self, caller: ServiceCaller, order: calls.NodeOrder) -> Future[Any]:
        """Have a node start a command, and note whose it is."""
        command = messages.from_value(order.value, messages.StartCommand).command
        key = (command, order.host)
        with self._lock:
            if key in self._owners:
                raise ProtocolError(f"there is a command {command} already")
            forget = caller.when_gone(partial(self._abandoned, key))
            self._owners[key] = (caller, forget)
        try:
            answer = self._control.ask(order.host, order.handler, order.value)
        except BaseException:
            self._disown(key)
            raise

        def answered(done: Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._disown(key)  # it was not started

        when_done(answer, answered)
        return answer

    def _disown(self, key: tuple[int, int]) -> None:
        with self._lock:
            owner = self._owners.pop(key, None)
        if owner is not None:
            owner[1]()

    def are_on(self, host: int) -> bool:
        """Whether a command runs on a node."""
        with self._lock:
            return any(one == host for _, one in self._owners)

    def may(self, caller: ServiceCaller, command: int, host: int) -> bool:
        """Whether a client may give orders to a command: it is its own, or has ended."""
        with self._lock:
            owner = self._owners.get((command, host))
        return owner is None or owner[0] is caller

    def taken(self, caller: ServiceCaller, number: int) -> None:
        """A client has room for more output."""
        with self._lock:
            owner, question = self._untaken.get(number, (None, None))
            if owner is caller:
                del self._untaken[number]
        if question is not None and owner is caller:
            question.give(None, None)

    def nodes_gone(self, hosts: tuple[int, ...]) -> None:
        """Forget commands on nodes that are gone."""
        with self._lock:
            keys = [key for key in self._owners if key[1] in hosts]
            forget = [self._owners.pop(key)[1] for key in keys]
        for function in forget:
            function()

    def _abandoned(self, key: tuple[int, int]) -> None:
        with self._lock:
            owner = self._owners.pop(key, None)
            mine = [n for n, (caller, _) in self._untaken.items() if owner and caller is owner[0]]
            questions = [self._untaken.pop(number)[1] for number in mine]
        for question in questions:
            question.give(None, None)
        order = messages.to_value(messages.CancelCommand(key[0]))
        with contextlib.suppress(SapwoodError):
            self._control.ask(key[1], messages.COMMAND_CANCEL, order)

    def _wrote(self, question: ServedRequest) -> None:
        output = messages.from_value(question.value(), messages.CommandOutput)
        host = question.asked.source
        with self._lock:
            owner = self._owners.get((output.command, host))
            number = next(self._numbers)
            if owner is not None:
                self._untaken[number] = (owner[0], question)
        if owner is None:
            question.give(None, None)
            return
        notice = calls.OfNode(host, messages.to_value(output), number)
        self._service.tell(owner[0], calls.COMMAND_OUTPUT, notice)

    def _ended(self, question: ServedRequest) -> None:
        report = messages.from_value(question.value(), messages.CommandEnded)
        host = question.asked.source
        with self._lock:
            owner = self._owners.pop((report.command, host), None)
        if owner is not None:
            owner[1]()  # it need not be cancelled any more
            notice = calls.OfNode(host, messages.to_value(report))
            self._service.tell(owner[0], calls.COMMAND_ENDED, notice)
        question.give(None, None)
