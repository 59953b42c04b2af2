"""A runner host without an agent around it: the test plays the agent's event loop."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sapwood.code.pickling import pickle_of
from sapwood.code.runner.options import RunnerOptions
from sapwood.code.runner.runner_host import Job, JobOutcome, Preparation, RunnerHost
from sapwood.comm import values
from sapwood.comm.payload import Payload
from sapwood.contexts import orders
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.errors import SapwoodError

PATIENCE = 30.0
"""Seconds after which a test gives up waiting."""

CHANNELS = 160
"""Hosts that one zygote serves in its life."""

ZYGOTE = """
import socket, sys
from sapwood.contexts import orders, plan, process, zygote

process.adopt_orphans()
control, *channels = [socket.socket(fileno=int(word)) for word in sys.argv[1:]]
server = zygote.Zygote(
    control,
    plan.ZygotePlan(
        (), ("sapwood.activity.runner_procedures",), "sapwood.activity.runner_procedures:main"
    ),
    sys.path,
)
for number, channel in enumerate(channels, start=1):
    spec = orders.ProcessSpec("", number, 1)
    agent = zygote.ForkedProcess(zygote.ForkedTree(control), spec, channel)
    server._listen_to(agent)
server._complete_imports()
server.run()
"""


class Bench:
    """A runner host, and what happens to its calls."""

    def __init__(self, channel: socket.socket, options: RunnerOptions) -> None:
        self.loop = asyncio.new_event_loop()
        self.printed = bytearray()
        self.channel = channel
        self.host = RunnerHost(self.loop, options, RunnerFactory(channel), self._print)

    def _print(self, data: bytes) -> None:
        self.printed += data

    def submit(
        self, function: Callable[..., Any], *args: Any, **options: Any
    ) -> "asyncio.Future[JobOutcome]":
        """Hand a call to the runner."""
        future: asyncio.Future[JobOutcome] = self.loop.create_future()
        body, payload = argument_of(function, *args)
        context = options.pop("context", "test")
        self.host.submit(
            Job(
                "call_plain",
                context,
                body,
                payload,
                future.set_result,
                future.set_exception,
                function="the function",
                **options,
            )
        )
        return future

    def wait(self, future: "asyncio.Future[JobOutcome]") -> JobOutcome:
        """Let the loop run until a call is done."""
        return self.loop.run_until_complete(asyncio.wait_for(future, PATIENCE))

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call and return the result; its memory may be used again at once."""
        outcome = self.wait(self.submit(function, *args, **options))
        view = bytes(outcome.payload.view) if outcome.payload is not None else b""
        if outcome.payload is not None and outcome.payload.owner is not None:
            self.host.give_back(outcome.payload.owner)
        return values.decode(outcome.body, view)

    def error(self, function: Callable[..., Any], *args: Any, **options: Any) -> SapwoodError:
        """Call and return the error that it must end with."""
        with pytest.raises(SapwoodError) as caught:
            self.call(function, *args, **options)
        return caught.value

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until something is so."""
        deadline = self.loop.time() + PATIENCE
        while not condition():
            assert self.loop.time() < deadline, "it does not become so"
            self.loop.run_until_complete(asyncio.sleep(0.002))

    def close(self) -> None:
        """End the runner and the loop."""
        self.host.close()
        self.host.blocks.forget()
        self.loop.remove_reader(self.channel)
        self.channel.close()
        self.loop.close()


def argument_of(function: Callable[..., Any], *args: Any) -> tuple[bytes, Payload | None]:
    """Return what the procedure ``call`` wants, encoded."""
    code = pickle_of(function)
    encoded = values.encode({"code": code, "arguments": [list(args), {}]})
    return encoded.body, Payload(encoded.payload()) if encoded.nbytes else None


@pytest.fixture
def preparation_of() -> Callable[..., Preparation]:
    """Make preparations that call a function."""

    def make(function: Callable[..., Any], *args: Any) -> Preparation:
        return Preparation("call_plain", *argument_of(function, *args), "the preparation")

    return make


@pytest.fixture(scope="module")
def zygote() -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """A zygote that runs: its control socket, and connections for runners."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(CHANNELS)]
    descriptors = [theirs.fileno() for _, theirs in pairs]
    process = subprocess.Popen(
        [sys.executable, "-c", ZYGOTE, *map(str, descriptors)], pass_fds=descriptors
    )
    for _, theirs in pairs:
        theirs.close()
    control, *free = [ours for ours, _ in pairs]
    control.settimeout(0)
    yield control, free
    control.close()
    for channel in free:
        channel.close()
    process.wait()


@pytest.fixture
def reports(
    zygote: tuple[socket.socket, list[socket.socket]],
) -> Callable[[], list[orders.RunnerLost]]:
    """Return the lost runners that the zygote has reported since the last call."""

    def read() -> list[orders.RunnerLost]:
        found: list[orders.RunnerLost] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                report = orders.decode_report(zygote[0].recv(orders.MAX_ORDER))
                assert isinstance(report, orders.RunnerLost)
                found.append(report)
        return found

    read()
    return read


@pytest.fixture
def make_bench(zygote: tuple[socket.socket, list[socket.socket]]) -> Iterator[Callable[..., Bench]]:
    """Make runner hosts that end with the test."""
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(zygote[1].pop(), RunnerOptions(**options)))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A runner host."""
    return make_bench()
