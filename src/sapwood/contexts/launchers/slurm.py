"""Nodes through Slurm: machines that ``salloc`` allocates, or the machines of the current job.

Slurm's own programs are used and no library: they are there in every version, and know the site's
configuration. ``salloc`` holds the allocation, and :mod:`~sapwood.contexts.launchers.holder` ends
``salloc`` with this process, so the job ends also when this process is killed. A node's daemon is
one step of the job (``srun``), whose pipes are the launcher's channel.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sapwood.contexts.launchers import holder
from sapwood.contexts.launchers.allocation import (
    TRANSITIONS,
    AllocationEvent,
    AllocationState,
    WaitCallback,
)
from sapwood.contexts.process import describe_status
from sapwood.core.arguments import whole
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.failures import new_thread
from sapwood.core.hostset import expand_hosts
from sapwood.environment.interpreter import python_command
from sapwood.environment.logs import logger

CONCURRENCY = 16
"""Steps that start at once; each is a request to Slurm's controller."""

FIRST_LOOK, LONGEST_LOOK = 1.0, 10.0
"""Seconds between two questions about a job that waits; they grow from the first to the second."""

ASK_TIMEOUT = 30.0
"""Seconds that Slurm may take to answer a question."""

RELEASE_TIMEOUT = 10.0
"""Seconds that ``salloc`` may take to give an allocation back, before the job is cancelled."""

MAX_SAID = 16 * 1024
"""Characters of what ``salloc`` says that are kept."""

_GRANTED = "sapwood-granted"
"""Begins the line in which the command of ``salloc`` names the job."""

_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_SOCKET"})
"""Variables that say where Slurm is and who we are; all others of a job change what steps get."""

_STRIPPED = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_")

_JOB = re.compile(r"(?:job allocation|job) (\d+)")
_TIME_OVER = re.compile(r"DUE TO TIME LIMIT")
_STEP_ENDED = re.compile(
    r"CANCELLED AT|[Jj]ob step aborted|Job/step already completing|Invalid job id|"
    r"Force Terminated|Expired|has been (?:cancelled|revoked)|step creation.*Job"
)
_OWN_CORES = ("--exclusive", "--cpus-per-task", "-c", "--oversubscribe", "-s", "--ntasks")
_PREFIX = re.compile(r"^(?:srun|salloc|slurmstepd(?:-\w+)?): (?:(?:error|fatal): )?")


class JobView(NamedTuple):
    """A job, as Slurm shows it.

    Attributes:
        job: Its number.
        state: Slurm's word, for example ``PENDING``.
        start: When it has started, or may start; None where Slurm does not know.
        nodes: Its machines, folded.
        partition: Where it runs.
        reason: Slurm's word for why it waits, for example ``Resources``.
    """

    job: str
    state: str
    start: dt.datetime | None
    nodes: str
    partition: str
    reason: str

    @classmethod
    def parse(cls, line: str) -> JobView:
        """Return the job of a line of ``squeue --format`` (:data:`FORMAT`).

        Example:
            >>> JobView.parse("6|PENDING|N/A||main|Resources").reason
            'Resources'

        Raises:
            ValueError: It is no such line.
        """
        job, state, start, nodes, partition, reason = line.strip().split("|", 5)
        try:
            when: dt.datetime | None = dt.datetime.fromisoformat(start)
        except ValueError:
            when = None
        return cls(job, state, when, nodes, partition, reason)

    def describe(self) -> str:
        """Return what a user wants to know while it waits.

        Example:
            >>> JobView.parse("6|PENDING|N/A||main|Resources").describe()
            'job 6 waits in partition main: Resources'
        """
        text = f"job {self.job} waits in partition {self.partition}: {self.reason}"
        if self.reason in _REASONS:
            text += f" ({_REASONS[self.reason]}; see `sinfo -l`)"
        if self.start is not None:
            text += f"; expected to start at {self.start:%Y-%m-%d %H:%M}"
        return text


_REASONS = {
    "PartitionConfig": "no machine there has the cores and memory that the job wants on each",
    "PartitionNodeLimit": "the job wants more machines than are allowed or up there",
    "PartitionTimeLimit": "the job wants a longer time than is allowed there",
}
"""Reasons for which a job may wait forever, in words."""

FORMAT = "%i|%T|%S|%N|%P|%r"
"""What ``squeue`` tells of a job; unlike its JSON, this is the same in all versions of Slurm."""


class SlurmLauncher:
    """Starts nodes on machines of a Slurm cluster.

    Inside an allocation (``salloc``, ``sbatch``) it uses that one, and leaves it as it is. Else
    :meth:`request` asks for one, and :meth:`close` gives it back.

    Args:
        nodes: How many machines; None means all of the allocation that this process is in.
        options: Arguments for ``salloc``.
        cores: Cores on each machine; 0 means whole machines, unless ``options`` say else.
        limit: The job's time limit, as Slurm takes it; empty means the partition's own.
        step_options: Arguments for ``srun``, where a site needs some.
        environment: The variables of this process.

    Raises:
        ConfigurationError: There is no Slurm here, or no number of nodes outside of an allocation.
    """

    name = "slurm"

    def __init__(
        self,
        nodes: int | None = None,
        options: Sequence[str] = (),
        *,
        cores: int = 0,
        limit: str = "",
        step_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        found = os.environ if environment is None else environment
        self.hosts: Sequence[str] = ()
        self.concurrency = CONCURRENCY
        self.job = found.get("SLURM_JOB_ID", "")
        self.owns_job = not self.job
        self._nodes = None if nodes is None else whole(nodes, "nodes", ConfigurationError)
        if self.owns_job and self._nodes is None:
            raise ConfigurationError(
                "this process is in no allocation of Slurm (SLURM_JOB_ID is not set)",
                hint="say how many nodes to allocate: slurm:4, or sapwood.slurm(nodes=4)",
            )
        self._options = tuple(options)
        self._step_options = tuple(step_options)
        self._cores = cores
        self._limit = limit
        self._environment = stripped(found)
        for program in ("salloc", "srun", "squeue", "scancel"):
            if shutil.which(program, path=found.get("PATH")) is None:
                raise ConfigurationError(
                    f"there is no Slurm here: no program {program}",
                    hint="start this on a login node of the cluster, or use --on ssh:HOST,HOST",
                )
        self._lock = threading.Lock()
        self._state = AllocationState.DELAYED
        self._holder: subprocess.Popen[bytes] | None = None
        self._said = ""
        self._heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def state(self) -> AllocationState:
        """What the allocation is."""
        with self._lock:
            return self._state

    # --- the allocation ------------------------------------------------------------------------

    def request(self, on_wait: WaitCallback | None = None) -> None:
        """Get the machines, and wait for them; the job is given back if this fails.

        Args:
            on_wait: Told about once a second, later less often, what the job waits for.

        Raises:
            ConfigurationError: The cluster cannot have such an allocation.
            ResourceError: Slurm refuses the job, or it is cancelled while it waits.
        """
        if not self.owns_job:
            self._use_own()
            return
        try:
            self._hold()
            self._wait(on_wait)
        except BaseException:
            self.close()
            raise

    def _use_own(self) -> None:
        """Use the allocation that this process is in."""
        view = self.look()
        if view is None or view.state not in {"RUNNING", "CONFIGURING"}:
            raise ConfigurationError(
                f"SLURM_JOB_ID names job {self.job}, which "
                + ("is over" if view is None else f"is {view.state}"),
                hint="unset SLURM_JOB_ID to get a separate allocation",
            )
        hosts = expand_hosts(view.nodes)
        if self._nodes is not None and self._nodes > len(hosts):
            raise ConfigurationError(
                f"{self._nodes} nodes are wanted, and job {self.job} has {len(hosts)}",
                hint="unset SLURM_JOB_ID to get a separate allocation",
            )
        self.hosts = tuple(hosts[: self._nodes])
        self._happened(AllocationEvent.GRANT)

    def _hold(self) -> None:
        """Start what holds the allocation."""
        text = Path(holder.__file__).read_text("utf-8")
        words = python_command("-c", text, site=False, variables=False)
        try:
            held = subprocess.Popen(
                [*words, *self.allocation_command()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,  # Ctrl-C at the terminal is the client's business
            )
        except OSError as error:
            raise ResourceError(f"cannot start salloc: {error.strerror}") from error
        self._holder = held
        for function in (self._read_grant, self._read_messages):
            thread = new_thread("sapwood-slurm", function, held, daemon=None)
            thread.daemon = True
            self._threads.append(thread)
            thread.start()

    def allocation_command(self) -> list[str]:
        """Return the command that gets and holds the allocation."""
        words = ["salloc", f"--nodes={self._nodes}", "--job-name=sapwood", "--no-kill"]
        if self._limit:
            words.append(f"--time={self._limit}")
        if self._cores:
            words += ["--ntasks-per-node=1", f"--cpus-per-task={self._cores}"]
        elif not any(option.startswith(_OWN_CORES) for option in self._options):
            words.append("--exclusive")
        hold = f'echo "{_GRANTED} $SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat'
        return [*words, *self._options, "sh", "-c", hold]

    def _read_grant(self, held: subprocess.Popen[bytes]) -> None:
        """Wait for the grant, then for the end of the allocation; on a separate thread."""
        assert held.stdout is not None  # noqa: S101 - made with pipes
        for line in held.stdout:
            words = line.decode(errors="replace").split()
            if words[:1] == [_GRANTED] and len(words) == 3:
                with self._lock:
                    self.job = words[1]
                    self.hosts = tuple(expand_hosts(words[2]))
                    waited = self._state is AllocationState.DELAYED
                    if waited:
                        self._state = TRANSITIONS.after(self._state, AllocationEvent.GRANT)
                if waited:
                    _log.info("allocation granted", job=words[1], nodes=words[2])
                self._heard.put("granted")
        held.wait()
        self._happened(AllocationEvent.GONE)
        self._heard.put("gone")

    def _read_messages(self, held: subprocess.Popen[bytes]) -> None:
        """Read the output of ``salloc``; on a separate thread."""
        assert held.stderr is not None  # noqa: S101 - made with pipes
        for line in held.stderr:
            text = line.decode(errors="replace")
            with self._lock:
                self._said = (self._said + text)[-MAX_SAID:]
                match = None if self.job else _JOB.search(text)
                if match is not None:
                    self.job = match.group(1)

    def _wait(self, on_wait: WaitCallback | None) -> None:
        """Wait until the allocation is granted."""
        began = time.monotonic()
        pause = FIRST_LOOK
        checked = False
        while True:
            with contextlib.suppress(queue.Empty):
                if self._heard.get(timeout=pause) == "granted":
                    return
                raise self._refused()
            view = self.look() if self.job else None
            if view is not None and view.state == "PENDING":
                if not checked:
                    self._check_possible(view)
                    checked = True
                if view.reason == "BadConstraints":
                    raise ConfigurationError(
                        "no machines of the cluster are as the options of Slurm want them",
                        where=view.describe(),
                    )
            if on_wait is not None:
                waits_for = "no answer yet" if view is None else view.describe()
                on_wait(f"Slurm: {waits_for}", time.monotonic() - began)
            pause = min(LONGEST_LOOK, pause * 1.5)

    def _check_possible(self, view: JobView) -> None:
        """Raise an error if the partition has fewer nodes than are wanted: that would never end."""
        lines = self._ask("sinfo", "--noheader", f"--partition={view.partition}", "--format=%R|%D")
        sizes: dict[str, int] = {}
        for line in lines.splitlines():
            name, _, count = line.strip().rpartition("|")
            if count.isdecimal():
                sizes[name] = sizes.get(name, 0) + int(count)
        if sizes and self._nodes is not None and self._nodes > max(sizes.values()):
            name, size = max(sizes.items(), key=lambda one: one[1])
            raise ConfigurationError(
                f"{self._nodes} nodes are wanted, and partition {name} of Slurm has {size}",
                hint="`sinfo` shows the partitions; choose one with "
                "--set 'nodes.slurm=[\"--partition=NAME\"]'",
            )

    def _refused(self) -> ConfigurationError | ResourceError:
        """Return why ``salloc`` ended without an allocation."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1.0)
        with self._lock:
            said, job = self._said.strip(), self.job
        if job:
            return ResourceError(self.fate(), hint="`sacct` or `scontrol show job` may say more")
        reasons = [_PREFIX.sub("", line) for line in said.splitlines()]
        reasons = [line for line in reasons if not line.startswith("Try ")]
        if any("partition" in line.lower() for line in reasons):
            return ConfigurationError(
                f"Slurm refuses the allocation: {reasons[0]}", hint="`sinfo` shows the partitions"
            )
        if any("contact" in line and "controller" in line for line in reasons):
            return ResourceError(
                f"Slurm's controller does not answer: {reasons[-1]}", hint="try `scontrol ping`"
            )
        last = reasons[-1] if reasons else "salloc ended without a message"
        return ConfigurationError(
            f"Slurm refuses the allocation: {last}",
            hint="`salloc --nodes=1 true` shows whether Slurm works on this machine",
        )

    def look(self) -> JobView | None:
        """Return what Slurm says of the job now; None where it knows nothing of it (any more)."""
        said = self._ask(
            "squeue", "--noheader", "--states=all", f"--jobs={self.job}", f"--format={FORMAT}"
        )
        with contextlib.suppress(ValueError):
            return JobView.parse(said)
        return None

    def seconds_left(self) -> float | None:
        """Return for how long the job has its machines still; None where Slurm does not say.

        Slurm is asked each time, as the limit may be changed. It counts by its own clock, so it
        does not matter what this machine's clock shows.
        """
        words = ("--noheader", "--states=all", f"--jobs={self.job}", "--format=%L")
        return time_left(self._ask("squeue", *words).strip())

    def is_gone(self) -> bool:
        """Return whether the job is over; ``salloc`` may outlive a job that was cancelled."""
        return self.state is AllocationState.RELEASED or not self._is_alive()

    def _is_alive(self) -> bool:
        view = self.look()
        return view is not None and view.state in {"PENDING", "CONFIGURING", "RUNNING"}

    def fate(self) -> str:
        """Return the end of the job as a text for people."""
        view = self.look()
        state = "" if view is None else view.state
        if state.startswith("CANCELLED"):
            return f"Slurm's job {self.job} was cancelled"
        if state in {"TIMEOUT", "DEADLINE"}:
            return f"the time of Slurm's job {self.job} is over"
        if state in {"RUNNING", "PENDING", "COMPLETING", "COMPLETED", ""}:
            return f"Slurm's job {self.job} is over"
        return f"Slurm's job {self.job} has ended: {state}"

    def _ask(self, *words: str) -> str:
        """Return what a program of Slurm says; empty where it fails."""
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=ASK_TIMEOUT,
                env=self._environment,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.warning("slurm does not answer", program=words[0], error=str(error))
            return ""
        return done.stdout if done.returncode == 0 else ""

    def _happened(self, event: AllocationEvent) -> None:
        with self._lock:
            self._state = TRANSITIONS.after(self._state, event, self.job)

    # --- the nodes -----------------------------------------------------------------------------

    def step_command(self, host: str, command: str) -> list[str]:
        """Return the command that starts a step of the job on one of its machines."""
        return [
            "srun",
            f"--jobid={self.job}",
            f"--nodelist={host}",
            "--nodes=1",
            "--ntasks=1",
            "--overlap",
            "--cpu-bind=none",
            "--mem=0",
            "--mpi=none",
            "--kill-on-bad-exit=0",
            *self._step_options,
            *("sh", "-c", command),
        ]

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command; see :class:`~sapwood.contexts.launchers.base.Launcher`."""
        if self.state is not AllocationState.GRANTED:
            raise ResourceError(self.fate())
        try:
            return subprocess.Popen(
                self.step_command(host, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ResourceError(f"cannot start srun: {error.strerror}") from error

    def explain(self, host: str, status: int, said: str) -> str:
        """Return why a node did not come, or went."""
        del host
        if _TIME_OVER.search(said):
            return f"the time of Slurm's job {self.job} is over"
        if _STEP_ENDED.search(said):
            return self.fate()
        last = _PREFIX.sub("", said.strip().rpartition("\n")[2])
        return last or f"srun {describe_status(status)}"

    def close(self) -> None:
        """Give back an allocation that was made here; keep the one that this process is in."""
        held = self._holder
        with self._lock:
            open_states = (AllocationState.DELAYED, AllocationState.GRANTED)
            if held is None or self._state not in open_states:
                return
            self._state = TRANSITIONS.after(self._state, AllocationEvent.RELEASE, self.job)
        assert held.stdin is not None  # noqa: S101 - made with pipes
        with contextlib.suppress(OSError):
            held.stdin.close()
        try:
            held.wait(RELEASE_TIMEOUT)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(held.pid, signal.SIGKILL)
            held.wait()
        if self.job and self._is_alive():
            self._ask("scancel", self.job)
        for thread in self._threads:
            thread.join()  # the other ends of the pipes are closed
        for stream in (held.stdout, held.stderr):
            if stream is not None:
                stream.close()


def time_left(text: str) -> float | None:
    """Return the seconds that Slurm's ``[days-][[hours:]minutes:]seconds`` stands for.

    Example:
        >>> time_left("2:58"), time_left("1-02:03:04"), time_left("59:00:00"), time_left("0:00")
        (178.0, 93784.0, 212400.0, 0.0)
        >>> time_left("UNLIMITED"), time_left("INVALID"), time_left("")
        (inf, None, None)
    """
    if text == "UNLIMITED":
        return math.inf
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()):
        return None
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return float(seconds + 86400 * int(days or 0))


def stripped(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those by which a job of Slurm changes what ``srun`` does.

    Example:
        >>> stripped({"SLURM_NTASKS": "7", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/root"})
        {'SLURM_CONF': '/etc/slurm.conf', 'HOME': '/root'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not name.startswith(_STRIPPED)
    }


_log = logger("slurm")
