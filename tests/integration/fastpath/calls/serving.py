"""A runner in a separate process, with the test in the place of its agent."""

from __future__ import annotations

import mmap
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sapwood.code import transfers
from sapwood.code.image import OpenProgram
from sapwood.code.runner import calls
from sapwood.code.runner.child import Runner, Work
from sapwood.code.runner.options import RunnerOptions
from sapwood.code.runner.printing import Printing
from sapwood.comm import values
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.errors import SapwoodError

PATIENCE = 30.0
"""Seconds after which an answer does not come any more."""


class Served:
    """A runner that maps.

    Args:
        program: Its program, which is open in this process.
        part: Its slice.
        fastpath: Whether calls may be made without Python.
        prepare: Called in the runner's process.
        spin: Seconds for which it looks for the next call.

    Attributes:
        pid: Its process.
        printed: Descriptor of what it prints.
    """

    def __init__(
        self,
        program: OpenProgram,
        part: Any,
        prepare: Callable[[], object] = bool,
        spin: float = 0.001,
        fastpath: bool = True,
    ) -> None:
        self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(PATIENCE)
        self._counted = mmap.mmap(-1, 8)
        self._number = 0
        self._options = RunnerOptions(spin=spin, fastpath=fastpath)
        self.printed, output = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._control.close()
            os.dup2(output, 1)
            self._serve(program, part, there, prepare)
        os.close(output)
        there.close()

    @property
    def by_python(self) -> int:
        """Calls that the interpreter has made."""
        return int.from_bytes(self._counted[:], "little")

    def ask(self, state: Any, context: str = "run-1", free: tuple[int, ...] = ()) -> Any:
        """Return what the map returns for a state.

        Raises:
            SapwoodError: What it raises.
        """
        encoded = values.encode(state)
        self._number += 1
        body, payload = calls.Bulk(encoded.body), calls.Bulk(bytes(encoded.payload()))
        call = calls.Call(self._number, "map", context, body, payload, free)
        self._control.send(calls.encode(call))
        data = self._control.recv(calls.MAX_DATAGRAM)
        result = calls.decode_result(data)
        assert result.number == self._number
        if result.error is not None:
            raise SapwoodError.from_record(result.error)
        assert calls.encode(msgspec.structs.astuple(result)) == data
        assert result.seconds >= 0
        assert result.payload.shared is None
        return values.decode(result.body.inline, result.payload.inline)

    def end(self) -> int:
        """Let it end, and return its exit code."""
        self._control.close()
        os.close(self.printed)
        _, status = os.waitpid(self.pid, 0)
        self._counted.close()
        return os.waitstatus_to_exitcode(status)

    def _serve(
        self,
        program: OpenProgram,
        part: Any,
        there: socket.socket,
        prepare: Callable[[], object],
    ) -> None:
        status = 1
        try:
            import sys  # noqa: PLC0415 - a separate process

            for number in signal.valid_signals():
                if callable(signal.getsignal(number)):  # pytest's
                    signal.signal(number, signal.SIG_DFL)
            transfers.any_watched[0] = False  # of other tests
            prepare()
            printing = Printing()
            sys.stdout, sys.stderr = printing.output, printing.error
            table = {
                "map": lambda _: Work(partial(self._map, program, part), None, program.native_call)
            }
            Runner(there, MappedBlocks(), table, printing, self._options).serve()
            status = 0
        finally:
            os._exit(status)

    def _map(self, program: OpenProgram, part: Any, state: Any) -> Any:
        self._counted[:] = (self.by_python + 1).to_bytes(8, "little")
        return program.map(part, state)
