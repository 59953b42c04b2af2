"""What the production supervisor needs of the world, on virtual time: a loop and a zygote."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sapwood.comm import events as ev
from sapwood.contexts import orders
from sapwood.contexts.heartbeat import HeartbeatMonitor
from sapwood.core.clock import VirtualClock
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.starters import StarterKey
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import ProcessSupervisor
from sapwood_simulation.network import Network


class ProcessHost(Protocol):
    """The simulation around a zygote."""

    network: Network
    loop: VirtualLoop
    pids: dict[int, tuple[int, SimulatedSpawner]]

    def later(self, mean: float, function: Callable[..., Any], *args: Any) -> None:
        """Have something happen after a time drawn around a mean, seconds."""

    def new_pid(self) -> int:
        """Return a process id that no process had."""

    def stall(self, rank: int) -> float:
        """Draw for how long a new process stops before it joins the tree, seconds."""

    def zygote_ended(self) -> None:
        """Note that all processes end with their zygote."""


class VirtualLoop:
    """The part of an event loop that a supervisor uses, on a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []

    def time(self) -> float:
        """Return the virtual time, seconds."""
        return self._clock.now()

    def call_later(self, delay: float, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called later."""
        heapq.heappush(self._due, (self.time() + delay, next(self._order), function, args))

    def call_soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called next."""
        self.call_later(0.0, function, *args)

    def call_soon_threadsafe(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called next; there is one thread."""
        self.call_soon(function, *args)

    def run_due(self) -> None:
        """Call what is due."""
        while self._due and self._due[0][0] <= self.time():
            _, _, function, args = heapq.heappop(self._due)
            function(*args)

    def next_due(self) -> float:
        """Return when the next call is due; infinite if there is none."""
        return self._due[0][0] if self._due else math.inf


class SimulatedSpawner:
    """A zygote that starts nodes instead of processes; what a supervisor needs of a Spawner."""

    def __init__(self, simulation: ProcessHost, supervisor: ProcessSupervisor) -> None:
        self._simulation = simulation
        self._supervisor = supervisor
        self._closed = False
        self._stopped = False
        self._pulse = HeartbeatMonitor()
        self._held: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.living: dict[int, tuple[int, int]] = {}
        self.pid = 1

    def start(self) -> None:
        """Start; there is nothing to do."""

    def listen(self, _loop: Any) -> None:
        """Do nothing: the simulation delivers the reports."""

    def detach(self) -> None:
        """Hear no reports any more."""
        self._closed = True

    def close(self) -> None:
        """End all processes of this zygote."""
        self._closed = True
        for rank, _ in list(self.living.values()):
            self._simulation.network.kill(rank)

    def reconfigure(self, _configuration: bytes) -> None:
        """Do nothing: simulated processes begin with the tree as it is."""

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Start processes, each after a while."""
        for spec in processes:
            self._simulation.later(0.002, self._launch, spec)

    def kill(self, pid: int) -> None:
        """Kill a process, after a while."""
        self._simulation.later(0.0005, self._kill, pid)

    def is_silent(self, looks: int, _first: int) -> bool:
        """Say whether it gave no sign of life for a number of looks."""
        self._pulse.look()
        if not self._stopped:
            self._pulse.heard()
        return self._pulse.missed >= looks

    def end(self) -> None:
        """Kill it, and with it its processes."""
        self._simulation.zygote_ended()
        self.detach()
        self.close()

    def stop(self) -> None:
        """Do nothing until :meth:`resume`; processes keep running meanwhile."""
        self._stopped = True

    def resume(self) -> None:
        """Go on, with what was ordered and what ended meanwhile."""
        self._stopped = False
        held, self._held = self._held, []
        for function, args in held:
            function(*args)

    def _holds(self, function: Callable[..., Any], *args: Any) -> bool:
        """Return whether it is stopped, so that the call waits until it resumes."""
        if self._stopped and not self._closed:
            self._held.append((function, args))
        return self._stopped

    def _launch(self, spec: orders.ProcessSpec) -> None:
        if self._closed or self._holds(self._launch, spec):
            return
        simulation = self._simulation
        if spec.rank in simulation.network.nodes:  # a former process still exists: a fork waits
            simulation.later(0.001, self._launch, spec)
            return
        pid = simulation.new_pid()
        self.living[pid] = (spec.rank, spec.incarnation)
        simulation.pids[spec.rank] = (pid, self)
        simulation.network.launch(spec.rank, spec.incarnation, pid)
        self._report(orders.Spawned(spec.rank, spec.incarnation, pid))
        if stall := simulation.stall(spec.rank):
            simulation.network.pause(spec.rank)
            simulation.loop.call_later(stall, self._go_on, pid)
        else:
            simulation.later(0.001, self._connect, pid)

    def _go_on(self, pid: int) -> None:
        if pid in self.living:
            self._simulation.network.resume(self.living[pid][0])
            self._connect(pid)

    def _connect(self, pid: int) -> None:
        if self._closed or pid not in self.living:
            return
        self._simulation.network.post(self.living[pid][0], ev.Begin())

    def _kill(self, pid: int) -> None:
        if pid in self.living and not self._holds(self._kill, pid):
            self._simulation.network.kill(self.living[pid][0])

    def ended(self, pid: int) -> None:
        """A process of this zygote ended."""
        rank, incarnation = self.living.pop(pid)
        self._report(orders.Exited(rank, incarnation, pid, -9))

    def _report(self, report: orders.Report) -> None:
        if self._holds(self._report, report):
            return
        self._simulation.later(0.0005, self._tell, report)

    def _tell(self, report: orders.Report) -> None:
        if not self._closed:
            self._supervisor.reported((), report)


class SimulatedSupervisor(ProcessSupervisor):
    """The production supervisor with a simulated zygote."""

    def __init__(self, simulation: ProcessHost, *arguments: Any) -> None:
        self.simulation = simulation
        super().__init__(*arguments)

    def new_starter(self, key: StarterKey) -> ProcessStarter:
        """Return a simulated zygote for the default interpreter."""
        if key:
            return super().new_starter(key)
        self.simulated = SimulatedSpawner(self.simulation, self)
        return self.simulated

    def post(self, event: lev.Event) -> None:
        """Carry out an event, and check what always holds."""
        super().post(event)
        self.life.check()

    def lose_zygote(self) -> None:
        """Let all processes end at once, as they do when their zygote is killed."""
        self.simulated.detach()
        self.simulated.close()
        self.ended()
