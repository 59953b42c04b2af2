"""Detached runs (``sapwood run --detach``) as programs see them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from sapwood.activity.dashboard_page import DashboardPage
from sapwood.activity.progress import RunInfo, RunState
from sapwood.activity.run_record import WorkStatistics
from sapwood.client.head_asking import CALL_TIMEOUT, AskWithin, asker
from sapwood.core import typed
from sapwood.core.arguments import function, wait_time
from sapwood.core.errors import (
    CancelledError,
    ConfigurationError,
    ErrorRecord,
    ExecutionError,
    SapwoodError,
)
from sapwood.core.hints import DEFAULT_CLUSTER, command, naming
from sapwood.core.html_table import escaped

if TYPE_CHECKING:
    from sapwood.head.calls import RunRecord

LOOK = 0.2
"""Seconds between two looks at a run that is followed."""

CANCEL_TIMEOUT = 60.0
"""Seconds in which a run that is cancelled must be over."""

OUTPUT_PIECE = 2**20
"""Bytes of output that are read at once."""

P = ParamSpec("P")
R = TypeVar("R")


def runs(
    cluster: str = "default",
    *,
    credential: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
) -> DetachedRuns:
    """Return the detached runs of a head, as ``sapwood run list`` shows them.

    Args:
        cluster: What ``sapwood up --cluster`` was given, or ``sapwood://host:port``.
        credential: A credential, or the file with one, for a head on another machine; it must
            give the right ``admin``.
        key: The key of the credential's holder, or the file with it, if it is bound to one.

    Example:
        ::

            for run in sapwood.connect().runs.list():
                print(run.id, run.program, run.progress)
            total = sapwood.connect().runs.find("3f2a").result()["total"]
    """
    return DetachedRuns(asker(cluster, credential, key), cluster)


class DetachedRuns:
    """The detached runs of a head; made by ``sapwood.connect().runs``.

    Each call asks the head.

    Args:
        ask: Calls the head.
        cluster: What the user calls the cluster: its name or ``sapwood://host:port``.
    """

    def __init__(self, ask: AskWithin, cluster: str = DEFAULT_CLUSTER) -> None:
        self._ask = ask
        self._cluster = cluster

    def list(self) -> tuple[DetachedRun, ...]:
        """Return the active runs, in the order of their start.

        Raises:
            NodeLostError: No such head is up here.
            SecurityError: The credential does not give the right.
        """
        return tuple(one for one in self.history() if one.state is RunState.RUNNING)

    def history(self) -> tuple[DetachedRun, ...]:
        """Return also those that are over, the last 200 of them.

        Raises:
            NodeLostError: No such head is up here.
            SecurityError: The credential does not give the right.
        """
        from sapwood.head.parts.runs import Runs  # noqa: PLC0415 - as above

        records = self._ask(CALL_TIMEOUT, Runs.every)
        return tuple(DetachedRun(one, self._ask, self._cluster) for one in records)

    def find(self, run: str) -> DetachedRun:
        """Return a run by its id, or the start of it.

        Raises:
            ConfigurationError: There is none, or several.
            NodeLostError: No such head is up here.
        """
        from sapwood.head.parts.runs import Runs  # noqa: PLC0415 - as above

        return DetachedRun(self._ask(CALL_TIMEOUT, Runs.find, run), self._ask, self._cluster)


class DetachedRun:
    """A detached run: it has the methods of a future, and coroutines can await it.

    Its files are on the machine of its head, so everything except its state can be read there
    only.

    Args:
        record: What the head knows.
        ask: Calls the head.
        cluster: What the user calls the cluster: its name or ``sapwood://host:port``.
    """

    def __init__(self, record: RunRecord, ask: AskWithin, cluster: str = DEFAULT_CLUSTER) -> None:
        self._record = record
        self._ask = ask
        self._cluster = cluster

    @property
    def record(self) -> RunRecord:
        """What the head knew when it was asked last."""
        return self._record

    @property
    def id(self) -> str:
        """No other run of this cluster ever has it."""
        return self._record.id

    @property
    def program(self) -> str:
        """Name of the program."""
        return self._record.program

    @property
    def session(self) -> str:
        """Its session; empty for separate agents."""
        return self._record.session

    @property
    def state(self) -> RunState:
        """How it was when the head was asked last; :meth:`refresh` asks again."""
        return RunState(self._record.state)

    @property
    def seconds(self) -> float:
        """Its duration so far, seconds."""
        return (self._record.ended or time.time()) - self._record.created

    @property
    def restarts(self) -> tuple[float, ...]:
        """When its process was restarted after it was killed, seconds since 1970."""
        return tuple(self._record.restarts)

    @property
    def waits(self) -> str:
        """For what machines it waits; empty while it does not, and on other machines."""
        from sapwood.head.runs import WAIT  # noqa: PLC0415 - rarely needed

        try:
            return "" if self.state.final else (self._folder / WAIT).read_text("utf-8")
        except OSError:
            return ""

    @property
    def progress(self) -> RunInfo | None:
        """How far it has come; None before it has said so, and on other machines."""
        from sapwood.head.runs import PROGRESS  # noqa: PLC0415 - rarely needed

        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return typed.json_reader(RunInfo)((self._folder / PROGRESS).read_bytes())
        return None

    @property
    def work(self) -> WorkStatistics | None:
        """Which agent did which work, and why it moved; None before it is known, and elsewhere."""
        from sapwood.head.runs import WORK  # noqa: PLC0415 - rarely needed

        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return typed.json_reader(WorkStatistics)((self._folder / WORK).read_bytes())
        return None

    @property
    def answer(self) -> Any:
        """What ``sapwood run --json`` prints of it when it is over; None before."""
        from sapwood.head.runs import ANSWER  # noqa: PLC0415 - as above

        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self._folder / ANSWER).read_bytes())
        return None

    @property
    def error(self) -> SapwoodError | None:
        """Why it has no result; None while it runs, and if it has one."""
        if self.state in {RunState.RUNNING, RunState.DONE}:
            return None
        if self.state is RunState.CANCELLED:
            return CancelledError(f"the run {self.id} was cancelled")
        answer = self.answer
        if isinstance(answer, dict):
            with contextlib.suppress(msgspec.ValidationError):
                error = SapwoodError.from_record(typed.convert(answer.get("error"), ErrorRecord))
                error.hint = naming(error.hint, self._cluster)
                return error
        said = ""
        with contextlib.suppress(OSError):
            said = self.output_file.read_text("utf-8", "replace")[-2000:]
        return ExecutionError(
            f"the run {self.id} has ended without an answer"
            f"{f': {self._record.reason}' if self._record.reason else ''}"
            f"{f'; restarts: {len(self.restarts)}' if self.restarts else ''}",
            details={"end of its output": said} if said else {},
        )

    @property
    def output_file(self) -> Path:
        """The file with what agents print, on the machine of the head."""
        from sapwood.head.runs import OUTPUT  # noqa: PLC0415 - as above

        return self._folder / OUTPUT

    @property
    def _folder(self) -> Path:
        return Path(self._record.folder)

    def require_files(self) -> None:
        """Check that the files of the run can be read here.

        Raises:
            ConfigurationError: They are on another machine, the head's.
        """
        from sapwood.comm.machine import machine_id  # noqa: PLC0415 - as above

        if self._record.machine not in {"", machine_id()} or not self._folder.is_dir():
            raise ConfigurationError(
                f"what the run {self.id} has written is on the machine of its head, not here",
                where=f"{self._folder}; the run is {self.state.value}",
                hint=f"look there: {command('run', 'follow', self.id, cluster=self._name())}",
            )

    def _name(self) -> str:
        """Return the name of the cluster, as users of the head's machine call it."""
        from sapwood.head.parts.cluster import WholeCluster  # noqa: PLC0415 - as above

        if "://" not in self._cluster:
            return self._cluster
        return self._ask(CALL_TIMEOUT, WholeCluster.facts).name

    def refresh(self) -> DetachedRun:
        """Ask the head how it is now; return this run.

        Raises:
            ConfigurationError: It is not kept any more.
            NodeLostError: No such head is up here.
        """
        from sapwood.head.parts.runs import Runs  # noqa: PLC0415 - as above

        self._record = self._ask(CALL_TIMEOUT, Runs.find, self.id)
        return self

    def result(
        self,
        timeout: float | None = None,
        *,
        on_output: Callable[[bytes], object] = lambda _data: None,
    ) -> Any:
        """Wait until it is over, and return its result as plain values.

        Args:
            timeout: Seconds to wait; by default for ever. The run continues in any case.
            on_output: Receives what agents print, and have printed, as it comes.

        Raises:
            ConfigurationError: Its head is on another machine.
            TimeoutError: It takes longer.
            SapwoodError: Why it has no result.
        """
        error = self.exception(timeout, on_output=on_output)
        if error is not None:
            raise error
        return self.answer["result"]

    def exception(
        self,
        timeout: float | None = None,
        *,
        on_output: Callable[[bytes], object] = lambda _data: None,
    ) -> SapwoodError | None:
        """Wait until it is over, and return why it has no result; None if it has one.

        Args:
            timeout: Seconds to wait; by default for ever.
            on_output: Receives what agents print, and have printed, as it comes.

        Raises:
            ConfigurationError: Its head is on another machine.
            TimeoutError: It takes longer.
        """
        self.follow(on_output, timeout)
        return self.error

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over; return whether it is.

        Args:
            timeout: Seconds to wait; by default for ever.

        Raises:
            NodeLostError: The head has ended.
        """
        timeout = wait_time(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        while self.refresh().state is RunState.RUNNING:
            if end is not None and time.monotonic() >= end:
                return False
            pause.wait(LOOK)
        return True

    def done(self) -> bool:
        """Ask the head whether it is over."""
        return self.wait(0)

    def running(self) -> bool:
        """Ask the head whether it has not ended."""
        return not self.wait(0)

    def cancelled(self) -> bool:
        """Ask the head whether it was cancelled."""
        return self.refresh().state is RunState.CANCELLED

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a coroutine for the result; cancelling the wait leaves the run alone.

        Example:
            ::

                result = await sapwood.connect().runs.find("3f2a")
        """
        return self._waited().__await__()

    async def _waited(self) -> Any:
        import asyncio  # noqa: PLC0415 - few programs have a loop

        while not await asyncio.to_thread(self.wait, LOOK):  # so that it can be cancelled
            pass
        return await asyncio.to_thread(self.result)

    def attach(
        self,
        on_output: Callable[[bytes], object] = lambda _data: None,
        timeout: float | None = None,
    ) -> Any:
        """Do as :meth:`result`; deprecated, works until version 0.2."""
        warnings.warn(
            "DetachedRun.attach() works until version 0.2: use result()",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.result(timeout, on_output=on_output)

    def follow(
        self,
        on_output: Callable[[bytes], object],
        timeout: float | None = None,
        on_restart: Callable[[Sequence[float]], object] = lambda _times: None,
    ) -> None:
        """Give a function what agents print until the run is over, however it ends.

        Args:
            on_output: As for :meth:`result`.
            timeout: Likewise.
            on_restart: Receives the time of each restart of the run, seconds since 1970.

        Raises:
            ConfigurationError: Its head is on another machine.
            TimeoutError: It takes longer.
        """
        function(on_output, "on_output")
        function(on_restart, "on_restart")
        timeout = wait_time(timeout)
        self.require_files()
        end = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        told = 0
        with self.output_file.open("rb") as output:
            while True:
                over = self.refresh().state is not RunState.RUNNING
                if len(self.restarts) != told:
                    told = len(self.restarts)
                    on_restart(self.restarts)
                while data := output.read(OUTPUT_PIECE):
                    on_output(data)
                if over:
                    return
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError(f"the run {self.id} has not ended after {timeout:g} s")
                pause.wait(LOOK)

    def cancel(self) -> None:
        """End it, and wait for that.

        Raises:
            ConfigurationError: It is over already.
            NodeLostError: No such head is up here.
        """
        from sapwood.head.parts.runs import Runs  # noqa: PLC0415 - as above

        self._record = self._ask(CANCEL_TIMEOUT, Runs.cancel, self.id)

    def __repr__(self) -> str:
        return f"<DetachedRun {self.id}: {self.program}, {self.state}>"

    def _page(self) -> DashboardPage:
        """Return where a dashboard shows it; nowhere if the head does not answer."""
        from sapwood.head.parts.cluster import WholeCluster  # noqa: PLC0415 - as above

        try:
            facts = self._ask(CALL_TIMEOUT, WholeCluster.facts)
        except SapwoodError:
            return DashboardPage()
        return DashboardPage.at(facts.urls, f"runs/{self.id}", facts.name)

    def _repr_html_(self) -> str:
        progress = self.progress
        said = "" if progress is None else f"<br>{escaped(progress)}"
        bar = "" if progress is None else progress.bar()
        name = f"<b>{escaped(self.program)}</b> {escaped(self.id)}"
        return f"{name}: {self.state.value} {bar}{said}{self._page().html()}"
