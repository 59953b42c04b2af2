"""The runner of an agent without a process: it makes each call at once, on the thread that asks.

It has the procedures of a real runner, and arguments and results travel encoded, as between
processes. So a map gets read-only arrays, and a result that cannot travel is an error. Only
functions and classes are not copied: a debugger, a coverage tool and a test see the user's own.
"""

from __future__ import annotations

import bdb
import copy
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from sapwood.activity.runner_procedures import CodeLoader, Procedures
from sapwood.code.image import OpenProgram, ProgramImage
from sapwood.code.pickling import dump
from sapwood.code.program import Program
from sapwood.code.runner import here
from sapwood.code.runner.affinity import CoreAffinity
from sapwood.code.runner.here import AgentContext
from sapwood.code.runner.process_state import open_version
from sapwood.code.runner.rpc_client import RpcClient
from sapwood.code.runner.rpc_messages import RpcWelcome
from sapwood.code.runner.runner_host import Job, JobOutcome, Preparation
from sapwood.code.user_error import user_error
from sapwood.comm import values
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.comm.values import Pickled
from sapwood.content.refs import ContentFolder, ContentRef
from sapwood.core.errors import (
    CancelledError,
    ConfigurationError,
    DataValueError,
    ExecutionError,
    ProcessSpentError,
    SapwoodError,
)
from sapwood.core.rankset import to_ranges

MAX_FUNCTIONS = 1024
"""Functions of tasks and streams that are known by their tokens."""


def alone(what: str) -> ConfigurationError:
    """Return the error of something that needs agents which work at the same time.

    Args:
        what: What that is, in the plural.
    """
    return ConfigurationError(
        f"{what} are not available with in_process=True: its agents take turns in your process",
        hint="leave out in_process=True",
    )


class LiveCode(CodeLoader):
    """The functions and programs of this process, which its agents call without copying them."""

    def __init__(self) -> None:
        self._functions: OrderedDict[bytes, Any] = OrderedDict()
        self._numbers = itertools.count(1)
        self._programs: dict[str, type[Program]] = {}

    def add(self, function: Any) -> bytes:
        """Record a function or filter; return its token, which stands for the code.

        Functions and classes are not copied; objects with state are, as on their way to an agent.
        """
        token = b"live %d" % next(self._numbers)
        self._functions[token] = copy.deepcopy(function)
        while len(self._functions) > MAX_FUNCTIONS:
            self._functions.popitem(last=False)
        return token

    def add_program(self, program: Program) -> None:
        """Record the class of a program."""
        self._programs[program.hash] = type(program)

    def function(self, code: bytes | Pickled) -> Any:
        """Return a function or filter."""
        if isinstance(code, bytes) and code in self._functions:
            return self._functions[code]
        return super().function(code)

    def program(self, image: ProgramImage, content: ContentFolder) -> OpenProgram:
        """Open a program."""
        return open_version(image, content, self._programs.get(image.hash))


class _NoAgent:
    """Refuses what user code asks its agent for."""

    def ask(self, *_request: Any) -> NoReturn:
        raise alone("groups and messages between agents")

    ask_encoded = ask


class InProcessContext(AgentContext):
    """What :func:`sapwood.here` returns in a call of an agent in the client's process."""

    def __init__(self, rank: int, agents: Sequence[int]) -> None:
        super().__init__(cast("RpcClient", _NoAgent()), RpcWelcome(rank, to_ranges(agents)))
        self._values: dict[str, Any] = {}

    @property
    def values(self) -> dict[str, Any]:
        """The values that this agent keeps by name."""
        return self._values


class InProcessProcedures(Procedures):
    """The procedures of a runner in a process that belongs to the user."""

    def _make_site_ready(self) -> None:
        """Leave the interpreter as it is."""

    def _watch_crashes(self, libraries: Sequence[ContentRef]) -> None:
        """Leave the handlers of signals as they are."""


class InProcessRunner:
    """Makes the calls of one place; what a :class:`RunnerHost` does with a process.

    Args:
        code: The functions and programs of this process.
        place: What ``sapwood.here()`` returns in its calls; None at the client, which calls
            filters only.

    Attributes:
        problem: The exception with which the last failed call ended.
    """

    def __init__(self, code: LiveCode, place: AgentContext | None) -> None:
        self.pid = os.getpid()
        self.problem: BaseException | None = None
        self._place = place
        procedures = InProcessProcedures(MappedBlocks(), CoreAffinity(0, 0), ContentFolder(), code)
        self._procedures = procedures.table()
        self._preparations: dict[str, Preparation] = {}
        self._prepared: set[str] = set()

    def prepare(self, name: str, preparation: Preparation) -> None:
        """Record what must happen before jobs that need ``name``."""
        self._preparations[name] = preparation

    def forget(self, name: str) -> None:
        """Drop a preparation."""
        self._preparations.pop(name, None)
        self._prepared.discard(name)

    def submit(self, job: Job) -> None:
        """Make a call and report its outcome before this returns.

        Time limits are not kept: a user at the prompt of a debugger takes any time.
        """
        try:
            outcome = self.run(job)
        except SapwoodError as error:
            job.on_error(error)
        else:
            job.on_done(outcome)

    def run(self, job: Job) -> JobOutcome:
        """Make a call and return its result.

        Raises:
            SapwoodError: The call failed.
            BaseException: The user has quit a debugger or pressed Ctrl-C, or a test ends itself.
        """
        if job.needs and job.needs not in self._prepared:
            first = self._preparations.get(job.needs)
            if first is None:
                raise CancelledError("the run is over")
            self._call(first.procedure, job.context, first.body, first.payload)
            self._prepared.add(job.needs)
        return self._call(job.procedure, job.context, job.body, job.payload)

    def cancel(self, _context: str) -> None:
        """Do nothing: no call outlasts the method that wanted it."""

    def drop(self, _context: str, _reason: SapwoodError) -> bool:
        """Return that no call waits."""
        return False

    def give_back(self, _lease: object) -> None:
        """Do nothing: results are not in memory of a runner."""

    def _call(
        self, procedure: str, context: str, body: bytes, payload: Payload | None
    ) -> JobOutcome:
        pickles = False
        caller, outer = here.runner, here.runner.here
        caller.here = self._place
        try:
            argument = values.decode(body, payload.view if payload is not None else b"")
            work = self._procedures[procedure](context)
            pickles = work.pickles
            begin = time.perf_counter()
            result = work.call(argument)
            seconds = time.perf_counter() - begin
            if work.check is not None:
                work.check(result)
            return JobOutcome(*_encoded(result, pickles=pickles), seconds)
        except ProcessSpentError as error:
            raise ExecutionError(
                error.what, hint="start Python again: this process cannot unload the old version"
            ) from error
        except bdb.BdbQuit:
            raise
        except (Exception, SystemExit) as problem:
            self.problem = problem
            raise user_error(problem, pickles=pickles) from problem
        finally:
            caller.here = outer


def encoded_payload(encoded: values.Encoded) -> Payload | None:
    """Return a copy of the arrays of an encoded value, which nothing can write to."""
    return Payload(bytes(encoded.payload())) if encoded.nbytes else None


def _encoded(result: Any, *, pickles: bool) -> tuple[bytes, Payload | None]:
    try:
        encoded = values.encode(result)
    except DataValueError:
        if not pickles:
            raise
        encoded = values.encode(
            dump(
                result,
                f"a result of type {type(result).__qualname__}",
                "return what can be pickled: no open files, locks, connections or generators",
            )
        )
    return encoded.body, encoded_payload(encoded)
