"""Holds machines of a Dask cluster, and carries the standard streams of what runs on them.

It runs as a separate process, by the text of this file, so Dask sends the class of its actors by
value: the machines need no Sapwood. What it has in common with Ray's it imports here.

Dask frees an actor without references, but not while one of its calls waits. So an actor
also ends its command when it hears nothing for a while.
"""

# ruff: noqa: PLC0415 - only this process, and its actors, have Dask

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from sapwood.contexts.launchers.ray_holder import (
    CHUNK,
    FIRST_LOOK,
    LONGEST_LOOK,
    MESSAGE,
    Command,
    Holder,
    Refusal,
    plural,
)

BEAT = 1.0
"""Seconds between two signs of life for an actor."""

LEASE = 15.0
"""Seconds without such a sign after which an actor ends its command."""

LOOKS = 5
"""How often it looks for one in that time. A worker that stands still looks for none meanwhile."""

CONNECT = 20.0
"""Seconds in which the scheduler must answer."""


class SapwoodDaskCommand:
    """A command of the shell on a machine; an actor of Dask.

    All calls are coroutines, as Dask has one thread for all others. The command reads to its end
    when the worker's process ends, as only that has the other end of its input.

    Args:
        command: The command.
        chunk: Bytes that are read at once.
        lease: Seconds without a sign of life after which the command is ended.
        looks: How often it looks for one in that time.
    """

    def __init__(self, command: str, chunk: int, lease: float, looks: int) -> None:
        self._command = command
        self._chunk = chunk
        self._lease = lease
        self._looks = looks
        self._process: Any = None
        self._missed = 0  # looks since the last sign of life
        self._watch: Any = None

    async def start(self) -> None:
        """Begin it."""
        self._process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._watch = asyncio.create_task(self._watched())

    async def beat(self) -> None:
        """Record a heartbeat of the holder."""
        self._missed = 0

    async def write(self, data: bytes) -> bool:
        """Give it input, and wait until it is taken; nothing is the end. Return whether it was."""
        if not data:
            self._process.stdin.close()
            return False
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            return False
        return True

    async def read(self, stream: int) -> bytes:
        """Wait for output (1) or errors (2); nothing is the end."""
        file = self._process.stdout if stream == 1 else self._process.stderr
        data: bytes = await file.read(self._chunk)
        return data

    async def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        status: int = await self._process.wait()
        return status

    async def end(self, patience: float) -> None:
        """End its input, and after a while itself."""
        if self._watch is not None:
            self._watch.cancel()
        if self._process is None:
            return
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), patience)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _watched(self) -> None:
        while self._process.returncode is None:
            await asyncio.sleep(self._lease / self._looks)
            self._missed += 1
            if self._missed > self._looks:
                self._watch = None
                await self.end(self._lease / self._looks)
                return


class DaskMachine:
    """A machine, and the worker on it that begins commands.

    Args:
        worker: The worker's address.
        name: What people call the machine.
        cpus: Threads of all workers on it.
    """

    def __init__(self, worker: str, name: str, cpus: int) -> None:
        self.worker = worker
        self.name = name
        self.cpus = cpus


def machines_of(workers: dict[str, dict[str, Any]]) -> list[DaskMachine]:
    """Return the machines of a Dask cluster, with the first worker of each.

    Example:
        >>> found = machines_of({
        ...     "tcp://10.0.0.2:1": {"host": "10.0.0.2", "nthreads": 2},
        ...     "tcp://10.0.0.1:2": {"host": "10.0.0.1", "nthreads": 4},
        ...     "tcp://10.0.0.1:1": {"host": "10.0.0.1", "nthreads": 4}})
        >>> [(one.worker, one.name, one.cpus) for one in found]
        [('tcp://10.0.0.1:1', '10.0.0.1', 8), ('tcp://10.0.0.2:1', '10.0.0.2', 2)]
    """
    found: dict[str, DaskMachine] = {}
    for address in sorted(workers):
        host = str(workers[address].get("host") or address)
        machine = found.setdefault(host, DaskMachine(address, host, 0))
        machine.cpus += int(workers[address].get("nthreads", 1))
    return sorted(found.values(), key=lambda one: one.name)


class DaskHolder(Holder):
    """Machines of a Dask cluster.

    Args:
        front: The socket to the client.
        order: What the client wants.
        client: A client of the cluster.
    """

    def __init__(self, front: socket.socket, order: dict[str, Any], client: Any) -> None:
        super().__init__(front, {**order, "cpus": 0, "gpus": 0})
        self.client = client
        self.machines: list[DaskMachine] = []

    async def acquire(self) -> bool:
        """Get the machines, and wait for them; return whether the client still wants them.

        Raises:
            Refusal: They do not come in time.
        """
        self.tell(connected=self.client.scheduler.address)
        began, next_look, pause = time.monotonic(), 0.0, FIRST_LOOK
        while True:
            info = await self.client.scheduler.identity(n_workers=-1)
            found = machines_of(info["workers"])
            if len(found) >= max(1, self._count):
                break
            waited = time.monotonic() - began
            text = f"{plural(max(1, self._count), 'machine')} wanted; {len(found)} in the cluster"
            if waited >= next_look:
                self.tell(waits=text, seconds=waited)
                next_look = waited + pause
                pause = min(LONGEST_LOOK, pause * 1.5)
            if waited > self._timeout:
                raise Refusal(
                    "resource",
                    f"Dask did not have {plural(max(1, self._count), 'machine')} within "
                    f"{self._timeout:g} s",
                    "start more workers, on other machines; nodes.dask_timeout is how long to wait",
                    text,
                )
            if await self._over_within(FIRST_LOOK / 2):
                return False
        self.machines = found[: self._count or None]
        self.tell(
            granted=[one.name for one in self.machines], cpus=min(m.cpus for m in self.machines)
        )
        return True

    async def _over_within(self, seconds: float) -> bool:
        """Wait a while; return whether the client has ended."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._front, ended.set)  # it asks nothing yet
        try:
            await asyncio.wait_for(ended.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._front)
        return True

    def new_command(self, number: int, command: str, streams: list[int]) -> Command:
        """Return a command that is to run on a machine."""
        return DaskCommand(self, number, command, streams)

    def new_actor(self, number: int, command: str) -> Any:
        """Return a new actor that runs a command on a machine."""
        return DaskActor(self.client, self.machines[number].worker, command)

    def kill(self, actor: Any) -> None:
        """Let Dask free an actor."""
        actor.free()

    def lost(self, number: int) -> str:
        """Return why a machine is gone; empty while Dask has it."""
        del number
        return ""

    def close(self) -> None:
        """Hold nothing: the client is closed by who made it."""


class DaskActor:
    """An actor, called as one of Ray is: ``actor.read.remote(1)``.

    Args:
        client: A client of the cluster.
        worker: Where the actor is to be.
        command: What it runs.
    """

    def __init__(self, client: Any, worker: str, command: str) -> None:
        self._future = client.submit(
            SapwoodDaskCommand,
            command,
            CHUNK,
            LEASE,
            LOOKS,
            actor=True,
            workers=[worker],
            allow_other_workers=False,
            pure=False,
        )
        self._client = client
        self._worker = worker
        self._ready = asyncio.ensure_future(self._begin())
        self._beats = asyncio.ensure_future(self._beat())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Call(self, name)

    async def ask(self, name: str, *args: Any) -> Any:
        """Have a method called."""
        actor = await asyncio.shield(self._ready)
        try:
            return await getattr(actor, name)(*args)
        except OSError as error:  # of Dask, not of the streams here
            raise RuntimeError(str(error)) from error

    def free(self) -> None:
        """Want it no more."""
        self._beats.cancel()
        self._ready.cancel()
        self._future.release()

    async def _begin(self) -> Any:
        try:
            actor = await self._future
            await actor.start()
        except OSError as error:
            raise RuntimeError(str(error)) from error
        except asyncio.CancelledError:
            if self._future.status in {"cancelled", "lost", "error"}:
                raise RuntimeError("it has lost this machine, or its worker") from None
            raise
        return actor

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            with contextlib.suppress(
                Exception
            ):  # of Dask: callers that wait for the command get the error
                await self.ask("beat")


class _Call:
    """A method of an actor."""

    def __init__(self, actor: DaskActor, name: str) -> None:
        self._actor = actor
        self._name = name

    def remote(self, *args: Any) -> asyncio.Future[Any]:
        """Call it."""
        return asyncio.ensure_future(self._actor.ask(self._name, *args))


class DaskCommand(Command):
    """A command on a machine of Dask, which may lose the machine while a call of it waits."""

    async def _carry(self) -> int:
        carried = asyncio.ensure_future(super()._carry())
        lost = asyncio.ensure_future(self._lost())
        try:
            await asyncio.wait({carried, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not carried.done():
                raise RuntimeError("it has lost this machine, or its worker")
            return carried.result()
        finally:
            for task in (carried, lost):
                task.cancel()
            await asyncio.gather(carried, lost, return_exceptions=True)

    async def _lost(self) -> None:
        """Wait until Dask has lost the worker."""
        holder = self._holder
        assert isinstance(holder, DaskHolder)  # noqa: S101 - that is who makes it
        worker = holder.machines[self._number].worker
        while True:
            await asyncio.sleep(BEAT)
            info = await holder.client.scheduler.identity(n_workers=-1)
            if worker not in info["workers"]:
                return  # an error ends this, too: the scheduler is gone

    async def _why(self, error: Exception) -> str:
        """Return why an actor is gone."""
        return f"Dask ended the command: {' '.join(str(error).split())[:1000]}"


async def hold(front: socket.socket, order: dict[str, Any]) -> None:
    """Hold machines as the client orders, until it ends.

    Raises:
        Refusal: They cannot be had.
    """
    try:
        from distributed import Client, Security
    except ImportError as error:
        raise Refusal(
            "configuration",
            f"this Python has no Dask: {error}",
            "install the version that the cluster has: pip install distributed==VERSION",
            sys.executable,
        ) from error
    security = Security(**order["security"]) if order["security"] else None
    try:
        client = await Client(
            order["address"],
            asynchronous=True,
            timeout=CONNECT,
            security=security,
            set_as_default=True,  # actors look for it
            name="sapwood",
        )
    except Exception as error:
        raise Refusal(
            "resource",
            "the Dask cluster cannot be reached",
            "check the address of the scheduler, and that versions of Dask and Python are the same",
            f"{order['address']}: {' '.join(str(error).split())[:500]}",
        ) from error
    try:
        holder = DaskHolder(front, order, client)
        if await holder.acquire():
            await holder.serve()
    finally:
        await client.close()


def main() -> None:
    """Hold machines as the client orders, until it ends."""
    front = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    order = json.loads(front.recv(MESSAGE))
    try:
        asyncio.run(hold(front, order))
    except Refusal as refusal:
        front.sendall(json.dumps(refusal.told).encode())


if __name__ == "__main__":
    main()
