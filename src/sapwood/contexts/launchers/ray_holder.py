"""Holds machines of a Ray cluster, and carries the standard streams of what runs on them.

It runs as a separate process, by the text of this file, so it may use the standard library and
Ray only. Ray sends the class of its actors by value as it is one of the main module: the machines
need no Sapwood. All that this process has of Ray ends with it, as Ray sees to that.

Its standard input is a socket of packets, by which the client asks, and which ends with the
client. Each request to start a command brings one more socket, on which a process with the
command's standard streams waits for the exit code.
"""

# ruff: noqa: PLC0415 - only this process, and its actors, have Ray

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

CHUNK = 64 * 1024
"""Bytes that travel at once; Ray puts what has more than 100 KB into its object store."""

MESSAGE = 256 * 1024
"""Bytes of a message between the client and this process."""

PATIENCE = 5.0
"""Seconds in which a command may end after its input has, before it is killed."""

LAST_WORDS = 1.0
"""Seconds in which the output of a command that is over may come to its end: others may have it."""

FATE = 10.0
"""Seconds until Ray knows whether the machine of a lost actor is dead."""

FIRST_LOOK, LONGEST_LOOK = 1.0, 10.0
"""Seconds between two looks at machines that are waited for; they grow from first to second."""

TICK = 0.25
"""Seconds after which an end of the client is noticed while machines are waited for."""

RAY_FAILED = 254
"""Exit code where Ray is the cause, and not the command."""

THREADS = 8
"""Calls of an actor that may wait at once: for input, output, errors, the end, and to end it."""


class SapwoodCommand:
    """A command of the shell on a machine; an actor of Ray.

    It reads to its end when the actor's process ends, however that happens, as only that has the
    other end of its input.

    Args:
        command: The command.
        chunk: Bytes that are read at once.
    """

    def __init__(self, command: str, chunk: int) -> None:
        self._chunk = chunk
        # Ray blocks SIGINT in the threads of its workers, and commands would inherit that.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=self.environment(),
            start_new_session=True,
        )

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the variables of the machine: those with which Ray was started there.

        A worker of Ray has others, such as ``OMP_NUM_THREADS=1``. Which GPUs it may use counts.
        """
        own = dict(os.environ)
        try:
            text = Path(f"/proc/{own['RAY_RAYLET_PID']}/environ").read_bytes()
        except (KeyError, OSError):
            return own
        found: dict[str, str] = {}
        for entry in text.split(b"\0"):
            name, equals, value = os.fsdecode(entry).partition("=")
            if equals:
                found[name] = value
        devices = {name: text for name, text in own.items() if name.endswith("_VISIBLE_DEVICES")}
        return found | devices

    def write(self, data: bytes) -> bool:
        """Give it input, and wait until it is taken; nothing is the end. Return whether it was."""
        assert self._process.stdin is not None  # noqa: S101 - made with pipes
        if not data:
            self._process.stdin.close()
            return False
        try:
            left = memoryview(data)
            while left:
                left = left[self._process.stdin.write(left) :]
        except (OSError, ValueError):  # ValueError: it is closed
            return False
        return True

    def read(self, stream: int) -> bytes:
        """Wait for output (1) or errors (2); nothing is the end."""
        file = self._process.stdout if stream == 1 else self._process.stderr
        assert file is not None  # noqa: S101 - made with pipes
        return os.read(file.fileno(), self._chunk)

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait()

    def end(self, patience: float) -> None:
        """End its input, and after a while itself."""
        assert self._process.stdin is not None  # noqa: S101 - made with pipes
        self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)


class Refusal(Exception):  # noqa: N818 - it is sent to the client
    """The reason why machines were refused.

    Args:
        kind: ``configuration`` or ``resource``.
        what: What happened.
        hint: What to do.
        where: What it is about.
    """

    def __init__(self, kind: str, what: str, hint: str = "", where: str = "") -> None:
        super().__init__(what)
        self.told = {"refused": what, "kind": kind, "hint": hint, "where": where}


def connection_refused(text: str) -> Refusal:
    """Return why Ray cannot be reached, from its output.

    Example:
        >>> connection_refused("Could not find any running Ray instance.").told["refused"]
        'no Ray cluster runs on this machine'
    """
    line = " ".join(text.split())
    if "mismatch" in line:
        return Refusal(
            "configuration",
            "the Ray cluster has other versions of Ray or Python than this process",
            "use an environment with the versions of the cluster",
            line,
        )
    if "Could not find any running Ray" in line:
        return Refusal(
            "configuration",
            "no Ray cluster runs on this machine",
            "start this on a machine of the cluster (`ray status` answers there), or "
            "begin one: ray start --head",
        )
    if "authentication" in line.lower() or "token" in line.lower():
        return Refusal(
            "configuration",
            "the Ray cluster does not let us in",
            "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH",
            line,
        )
    return Refusal(
        "resource",
        "the Ray cluster cannot be reached",
        "start this on a machine of the cluster, and see what `ray status` says there",
        line[:1000],
    )


def names_of(nodes: list[dict[str, Any]]) -> list[str]:
    """Return what people call some machines of Ray: host name, or name, each once.

    Example:
        >>> a = {"NodeID": "a1" * 9, "NodeName": "10.0.0.1", "NodeManagerHostname": "one"}
        >>> b = {"NodeID": "b2" * 9, "NodeName": "10.0.0.2", "NodeManagerHostname": "two"}
        >>> names_of([a, b])
        ['one', 'two']
        >>> names_of([a, b | {"NodeManagerHostname": "one"}])
        ['10.0.0.1', '10.0.0.2']
        >>> names_of([a, a | {"NodeID": "b2" * 9}])
        ['10.0.0.1-a1a1a1', '10.0.0.1-b2b2b2']
    """
    for key in ("NodeManagerHostname", "NodeName"):
        found = [str(node.get(key) or node["NodeID"]) for node in nodes]
        if len(set(found)) == len(found):
            return found
    return [f"{name}-{node['NodeID'][:6]}" for name, node in zip(found, nodes, strict=True)]


def plural(count: float, noun: str) -> str:
    """Return a number of things.

    Example:
        >>> plural(1, "CPU"), plural(2.0, "CPU")
        ('1 CPU', '2 CPUs')
    """
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


class Machine(NamedTuple):
    """A machine of the placement group.

    Attributes:
        node: What Ray calls it; another start of Ray on it is another one.
        bundle: Its number in the group.
    """

    node: str
    bundle: int


class Holder:
    """Machines of a Ray cluster.

    Args:
        front: The socket to the client.
        order: What the client wants.
    """

    def __init__(self, front: socket.socket, order: dict[str, Any]) -> None:
        self._front = front
        self._count = int(order["nodes"])
        self._bundle: dict[str, float] = {"CPU": order["cpus"]}
        if order["gpus"]:
            self._bundle["GPU"] = order["gpus"]
        self._gpus = order["gpus"]
        self._timeout = float(order["timeout"])
        self._address = order["address"] or "auto"
        self._group: Any = None
        self._machines: list[Machine] = []
        self._actors: Any = None
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    def tell(self, **message: Any) -> None:
        """Tell the client something, if it is there."""
        with contextlib.suppress(OSError):
            self._front.sendall(json.dumps(message).encode())

    # --- machines ------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect with the cluster.

        Raises:
            Refusal: That cannot be.
        """
        try:
            import ray
        except ImportError as error:
            raise Refusal(
                "configuration",
                f"this Python has no Ray: {error}",
                "install the version that the cluster has: pip install ray==VERSION",
                sys.executable,
            ) from error
        try:
            ray.init(
                address=self._address,
                namespace="sapwood",
                log_to_driver=False,
                logging_level="ERROR",
            )
        except Exception as error:
            raise connection_refused(str(error)) from error
        self.tell(connected=ray.get_runtime_context().gcs_address)

    def request(self) -> bool:
        """Get the machines, and wait for them; return whether the client still wants them.

        Raises:
            Refusal: They do not come in time.
        """
        import ray
        from ray.util.placement_group import placement_group

        if not self._bundle["CPU"]:
            self._bundle["CPU"] = self._largest(ray.nodes())
        wanted = [self._bundle] * self._count
        self._group = placement_group(wanted, strategy="STRICT_SPREAD")
        began = time.monotonic()
        pause, next_look = FIRST_LOOK, 0.0
        while not self._group.wait(0):  # Ray takes whole seconds, and less as none
            if select.select([self._front], [], [], TICK)[0]:  # it asks nothing yet: it has ended
                return False
            waited = time.monotonic() - began
            if waited >= next_look:
                self.tell(waits=self.waits_for(), seconds=waited)
                next_look = waited + pause
                pause = min(LONGEST_LOOK, pause * 1.5)
            if waited > self._timeout:
                raise Refusal(
                    "resource",
                    f"Ray did not have {self._described()} within {self._timeout:g} s",
                    "`ray status` shows what it has, and who wants it; nodes.ray_timeout is how "
                    "long to wait",
                    self.waits_for(),
                )
        self._granted()
        return True

    def _largest(self, nodes: list[dict[str, Any]]) -> float:
        """Return how many CPUs as many machines as are wanted have at least."""
        sizes = sorted(
            (node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]), reverse=True
        )
        sizes = [size for size in sizes if size >= 1]
        return float(sizes[: self._count][-1]) if sizes else 1.0

    def _described(self) -> str:
        each = " and ".join(plural(count, kind) for kind, count in self._bundle.items())
        return f"{plural(self._count, 'machine')} with {each}{' each' * (self._count > 1)}"

    def waits_for(self) -> str:
        """Return what a user wants to know while machines are waited for."""
        import ray
        from ray.util.placement_group import placement_group_table

        state = placement_group_table(self._group).get("stats", {}).get("scheduling_state", "")
        fitting = [
            node
            for node in ray.nodes()
            if node["Alive"]
            and all(node["Resources"].get(kind, 0) >= many for kind, many in self._bundle.items())
        ]
        total, free = ray.cluster_resources(), ray.available_resources()
        resources = ", ".join(
            f"{free.get(kind, 0):g} of {plural(total.get(kind, 0), kind)}" for kind in self._bundle
        )
        return f"{self._described()} wanted; {len(fitting)} in the cluster, {resources} free" + (
            f" ({state})" if state else ""
        )

    def _granted(self) -> None:
        """Tell the client which machines these are."""
        import ray
        from ray.util.placement_group import placement_group_table

        nodes = placement_group_table(self._group)["bundles_to_node_id"]
        by_id = {node["NodeID"]: node for node in ray.nodes()}
        bundles = sorted(nodes)
        names = names_of([by_id[nodes[bundle]] for bundle in bundles])
        named = sorted(zip(names, bundles, strict=True))
        self._machines = [Machine(nodes[bundle], bundle) for _, bundle in named]
        self._actors = ray.remote(SapwoodCommand)
        self.tell(granted=[name for name, _ in named], cpus=self._bundle["CPU"])

    # --- commands ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Do what the client asks until it ends, then end all that runs."""
        loop = asyncio.get_running_loop()
        self._front.setblocking(False)  # noqa: FBT003 - socket takes it so
        loop.add_reader(self._front, self._heard)
        await self._over.wait()
        loop.remove_reader(self._front)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _heard(self) -> None:
        """Start a command, or take note of the end."""
        try:
            data, handed, _, _ = socket.recv_fds(self._front, MESSAGE, 1)
        except BlockingIOError:
            return
        except OSError:
            data, handed = b"", []
        if not data:
            self._over.set()
            return
        asked = json.loads(data)
        channel = socket.socket(fileno=handed[0])
        task = asyncio.get_running_loop().create_task(
            self._command(asked["node"], asked["command"], channel)
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _command(self, number: int, command: str, channel: socket.socket) -> None:
        """Run a command on a machine until it ends, or its channel does."""
        channel.setblocking(False)  # noqa: FBT003 - socket takes it so
        with channel:
            try:
                streams = await self._streams(channel)
            except OSError:
                return
            running = self.new_command(number, command, streams)
            carried = asyncio.create_task(running.carry())
            cut = asyncio.create_task(self._cut(channel))
            try:
                await asyncio.wait({carried, cut}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                cut.cancel()
                if carried.done():
                    with contextlib.suppress(OSError):
                        channel.send(b"%d" % carried.result())
                carried.cancel()
                await asyncio.wait([carried])  # it watches the streams, whose numbers come again
                running.close()
                await running.end()

    async def _streams(self, channel: socket.socket) -> list[int]:
        """Return the standard streams of the process at the other end."""
        await _readable(channel)
        _, streams, _, _ = socket.recv_fds(channel, 1, 3)
        if len(streams) != 3:
            for stream in streams:
                os.close(stream)
            raise OSError("the channel has ended")
        return streams

    async def _cut(self, channel: socket.socket) -> None:
        """Wait until no caller waits for the command any more."""
        await _readable(channel)

    def new_command(self, number: int, command: str, streams: list[int]) -> Command:
        """Return a command that is to run on a machine."""
        return Command(self, number, command, streams)

    def kill(self, actor: Any) -> None:
        """End an actor."""
        import ray

        ray.kill(actor)

    def new_actor(self, number: int, command: str) -> Any:
        """Return a new actor that runs a command on a machine."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return self._actors.options(
            num_cpus=0,
            num_gpus=self._gpus,
            max_restarts=0,
            max_concurrency=THREADS,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=self._machines[number].bundle
            ),
        ).remote(command, CHUNK)

    def lost(self, number: int) -> str:
        """Return why a machine is gone; empty while Ray has it."""
        import ray

        for node in ray.nodes():
            if node["NodeID"] == self._machines[number].node and not node["Alive"]:
                why = " ".join(node.get("DeathReasonMessage", "").split())
                return f"Ray has lost this machine{': ' + why if why else ''}"
        return ""

    def close(self) -> None:
        """Give the machines back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        if self._group is not None:
            remove_placement_group(self._group)
        ray.shutdown()


class Command:
    """A command that runs on a machine.

    Args:
        holder: The holder of the machine.
        number: The machine.
        command: The command.
        streams: Descriptors of its standard streams here.
    """

    def __init__(self, holder: Holder, number: int, command: str, streams: list[int]) -> None:
        self._holder = holder
        self._number = number
        self._command = command
        self._input, self._output, self._errors = streams
        self._actor: Any = None
        self._open = set(streams)

    async def carry(self) -> int:
        """Carry its streams until it is over; return its exit code."""
        trouble = self._holder.lost(self._number)
        if not trouble:
            try:
                return await self._carry()
            except (asyncio.CancelledError, OSError):
                raise
            except Exception as error:  # noqa: BLE001 - of Ray: the actor has died, or did not begin
                trouble = await self._why(error)
        with contextlib.suppress(OSError):
            await _write(self._errors, f"{trouble}\n".encode())
        return RAY_FAILED

    async def _carry(self) -> int:
        self._actor = self._holder.new_actor(self._number, self._command)
        feeding = asyncio.create_task(self._feed())
        reading = [
            asyncio.create_task(self._drain(1, self._output)),
            asyncio.create_task(self._drain(2, self._errors)),
        ]
        try:
            status = int(await self._actor.wait.remote())
            await asyncio.wait(reading, timeout=LAST_WORDS)
        finally:
            for task in (feeding, *reading):
                task.cancel()
            await asyncio.gather(feeding, *reading, return_exceptions=True)
        return status if status >= 0 else 128 - status

    async def _feed(self) -> None:
        """Carry its input."""
        while True:
            await _readable(self._input)
            data = os.read(self._input, CHUNK)
            if not await self._actor.write.remote(data):
                self._close(self._input)  # whoever writes notices
                return

    async def _drain(self, stream: int, descriptor: int) -> None:
        """Carry its output or its errors."""
        heard = True
        while data := await self._actor.read.remote(stream):
            if heard:
                try:
                    await _write(descriptor, data)
                except OSError:
                    heard = False  # no process listens: the command must not wait for one
        self._close(descriptor)

    async def _why(self, error: Exception) -> str:
        """Return why an actor is gone."""
        deadline = time.monotonic() + FATE
        text = " ".join(str(error).split())
        while "node" in text.lower() or time.monotonic() < deadline - FATE + 1:
            lost = self._holder.lost(self._number)
            if lost or time.monotonic() > deadline:
                return lost or text[:1000]
            await asyncio.sleep(TICK)
        return f"Ray ended the command: {text[:1000]}"

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Have no streams any more."""
        for descriptor in tuple(self._open):
            self._close(descriptor)

    async def end(self) -> None:
        """End it, and its actor; what it writes meanwhile is lost."""
        if self._actor is None:
            return
        discarding = [asyncio.create_task(self._discard(stream)) for stream in (1, 2)]
        with contextlib.suppress(Exception):  # of Ray: the actor has died
            await asyncio.wait_for(self._actor.end.remote(PATIENCE), 2 * PATIENCE)
        for task in discarding:
            task.cancel()
        await asyncio.gather(*discarding, return_exceptions=True)
        with contextlib.suppress(Exception):
            self._holder.kill(self._actor)

    async def _discard(self, stream: int) -> None:
        while await self._actor.read.remote(stream):
            pass


def _awake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _readable(file: int | socket.socket) -> None:
    """Wait until there is something to read, or the end."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(file, _awake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(file)


async def _write(descriptor: int, data: bytes) -> None:
    """Write everything to a pipe, as fast as it is read."""
    loop = asyncio.get_running_loop()
    left = memoryview(data)
    os.set_blocking(descriptor, False)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            ready = loop.create_future()
            loop.add_writer(descriptor, _awake, ready)
            try:
                await ready
            finally:
                loop.remove_writer(descriptor)


def main() -> None:
    """Hold machines as the client orders, until it ends."""
    front = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    holder = Holder(front, json.loads(front.recv(MESSAGE)))
    try:
        holder.connect()
    except Refusal as refusal:
        holder.tell(**refusal.told)
        return
    try:
        if holder.request():
            asyncio.run(holder.serve())
    except Refusal as refusal:
        holder.tell(**refusal.told)
    finally:
        holder.close()


if __name__ == "__main__":
    main()
