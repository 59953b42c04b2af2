"""The component of a node that runs commands for clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sapwood.environment.component import ComponentContext, ComponentEvent
from sapwood.environment.lifecycle import State
from sapwood.nodes import messages
from sapwood.nodes.command_processes import CommandProcesses, Done
from sapwood.nodes.control_link import ControlLink
from sapwood.session.agent import IncomingRequest


class NodeCommands:
    """Commands on this machine. When it stops, those that run are killed, and the head hears of it.

    Args:
        link: The link with the head.
    """

    name = "commands"

    def __init__(self, link: ControlLink) -> None:
        self._link = link
        self._processes = self._new_processes()
        self._ending = False
        self.requests: dict[str, Callable[[IncomingRequest], None]] = {
            name: partial(self._pass_on, name) for name in self._processes.requests
        }

    def _new_processes(self) -> CommandProcesses:
        return CommandProcesses(self._link.loop, self._wrote, self._ended)

    # --- as a component ------------------------------------------------------------------------

    def start(self, _context: ComponentContext) -> None:
        """Admit commands, once commands of an earlier life are gone."""

    def check(self) -> State:
        """Return READY, when the commands of an earlier life are gone."""
        self._ending = self._ending and bool(self._processes.running)
        return State.STARTING if self._ending else State.READY

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Start to kill all commands; this does not wait."""
        self._ending = True
        self._processes.cancel_all()

    # --- for the daemon ------------------------------------------------------------------------

    def activity(self) -> list[messages.CommandActivity]:
        """Return what runs, for people."""
        return self._processes.activity()

    def processes(self) -> set[int]:
        """Return the processes of all commands."""
        return self._processes.processes()

    def abandon(self) -> None:
        """Kill all commands and wait, because no reader is left."""
        self._processes.close()
        self._processes = self._new_processes()

    def wait_closed(self) -> None:
        """Kill what is left, and wait for that, after :meth:`stop`."""
        self._processes.close()

    def _pass_on(self, name: str, request: IncomingRequest) -> None:
        self._processes.requests[name](request.value(), partial(request.reply, None))

    def _wrote(self, output: messages.CommandOutput, taken: Done) -> None:
        def answered(_answer: Any) -> None:
            taken()

        self._link.ask(messages.COMMAND_OUTPUT, messages.to_value(output), answered)

    def _ended(self, report: messages.CommandEnded) -> None:
        self._link.ask(messages.COMMAND_ENDED, messages.to_value(report))
