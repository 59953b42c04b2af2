"""What native code costs beside itself: loading, calling, building after an edit.

``native_code.load``
    The second run of an unchanged program: read its files, find the library in the cache and
    verify it, load program and library as a runner does, find the function. Compilers that
    were started are counted; there must be none. Floor: hash the library and load it by ctypes.
``native_code.call``
    A map with ten numpy arrays of 100 doubles in the state, from the agent through its runner
    and back, both on one core as during a run with an agent for each core, and both forks of one
    process as in a session. Floor: the same function called by ctypes in one process, with the
    addresses of ten arrays.
``native_code.call.apart``
    The same where the operating system chooses the cores, as outside of runs. On a machine
    that idles this is mostly the time in which two sleeping cores wake up.
``native_code.edit``
    From the edit of a source until its new version is built and told. Floor: the compiler
    alone, the same two commands.
``native_code.cuda``
    Patching and compiling a CUDA file of one kernel for the CPU, with the precompiled header
    of the shim in the cache. Floor: g++ on a loop of the same work.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np

from report import HERE, Figure, Options, Report, read_options
from sapwood.activity.agent_calls import opening_message
from sapwood.activity.agent_requests import OpenRun
from sapwood.code import load_program
from sapwood.code.build import Built, build
from sapwood.code.cache import BuildCache
from sapwood.code.image import ProgramImage, make_image, open_image
from sapwood.code.program import Program
from sapwood.code.python_module import check_syntax
from sapwood.code.runner.affinity import CoreAffinity
from sapwood.code.runner.options import RunnerOptions
from sapwood.code.runner.runner_host import Job, JobOutcome, Preparation, RunnerHost
from sapwood.code.watch import Watch
from sapwood.comm import values
from sapwood.comm.payload import Payload
from sapwood.comm.reactor import Reactor
from sapwood.contexts import orders, plan, process
from sapwood.contexts import zygote as zygotes
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.data.slice import SliceRef

TEN = HERE / "programs" / "ten"
NAMES = "abcdefghij"
PATIENCE = 120.0
KERNEL = """__global__ void twice(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= %d;
}
extern "C" void run(float *x, int n) { twice<<<(n + 255) / 256, 256>>>(x, n); }
"""
LOOP = 'extern "C" void run(float *x, int n) { for (int i = 0; i < n; i++) x[i] *= %d; }\n'


def main() -> None:
    """Measure and print."""
    options = read_options("Native code.", agents=(1,), runs=9)
    with (
        tempfile.TemporaryDirectory() as folder,
        Report("Native code", options) as report,
    ):
        place = Path(folder)
        cache = BuildCache(place / "cache")
        measure_load(cache, place, options, report)
        cores = len(os.sched_getaffinity(0))
        measure_calls("native_code.call", cores, cache, options, report)
        measure_calls("native_code.call.apart", 0, cache, options, report)
        measure_edit(cache, place, options, report)
        measure_cuda(cache, place, options, report)


def seconds(function: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


# --- loading --------------------------------------------------------------------------------------


def measure_load(cache: BuildCache, place: Path, options: Options, report: Report) -> None:
    """Load an unchanged program again and again, with a compiler that counts its starts."""
    log = place / "starts"
    compiler = place / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\necho start >> {log}\nexec /usr/bin/cc "$@"\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "PATH": f"{compiler.parent}:{os.environ['PATH']}"}
    first = build(load_program(TEN / "ten.py"), cache=cache, environment=environment)
    assert log.read_text().count("start") > 0, "the compiler is not counted"
    log.unlink()
    library = Path(first.libraries[0].image.path)
    loads = [seconds(lambda: load_again(cache, environment)) for _ in range(options.runs)]
    floors = [seconds(lambda: load_bare(library)) for _ in range(options.runs)]
    assert not log.exists(), "a compiler was started"
    report.add(Figure.of("native_code.load", 1, loads, floors, unit="ms"))


def load_again(cache: BuildCache, environment: dict[str, str]) -> None:
    """Do what a second run does: first the client's part, then the runner's."""
    check_syntax.cache_clear()
    program = load_program(TEN / "ten.py")
    built = build(program, cache=cache, environment=environment)
    assert built.cached
    image = msgspec.msgpack.encode(make_image(program, built))
    check_syntax.cache_clear()  # a runner is another process
    opened = open_image(msgspec.msgpack.decode(image, type=ProgramImage))
    opened.function("ten")
    opened.close()


def load_bare(library: Path) -> None:
    """Verify and load the library, nothing else."""
    hashlib.sha256(library.read_bytes()).digest()
    handle = ctypes.CDLL(str(library))
    _ = handle.ten
    dlclose(handle._handle)  # noqa: SLF001 - ctypes has no public name for it


dlclose = ctypes.CDLL(None).dlclose
dlclose.argtypes = [ctypes.c_void_p]


# --- calls ----------------------------------------------------------------------------------------


def measure_calls(
    name: str, bound_agents: int, cache: BuildCache, options: Options, report: Report
) -> None:
    """Call through a runner and by ctypes; both in turn."""
    program = load_program(TEN / "ten.py")
    built = build(program, cache=cache)
    arrays = {name: np.full(100, float(number)) for number, name in enumerate(NAMES)}
    calls = 20 if options.quick else 2000
    through, bare = [], []
    with runner(program, built, bound_agents) as call:
        floor = by_ctypes(Path(built.libraries[0].image.path), list(arrays.values()))
        encoded = values.encode(arrays)
        payload = Payload(encoded.payload())
        for number in range(options.runs + 1):
            spent = seconds(lambda: [call(encoded, payload) for _ in range(calls)]) / calls
            alone = seconds(lambda: [floor() for _ in range(calls)]) / calls
            if number:  # the first round warms up
                through.append(spent)
                bare.append(alone)
        assert float(call(encoded, payload)["total"]) == floor() == 45.0
    report.add(Figure.of(name, 1, through, bare, unit="us"))


def by_ctypes(library: Path, arrays: list[Any]) -> Callable[[], float]:
    """Return the call as one writes it with ctypes."""
    function = ctypes.CDLL(str(library)).ten
    function.argtypes = [ctypes.c_void_p] * 10 + [ctypes.c_int64, ctypes.c_void_p]
    function.restype = None
    total = np.zeros(1)

    def call() -> float:
        function(*[array.ctypes.data for array in arrays], len(arrays[0]), total.ctypes.data)
        return float(total[0])

    return call


class StartingReactor(Reactor):
    """The event loop of an agent, which can be started again after a stop."""

    def start(self) -> None:
        """Run until the next stop."""
        self._stopped = False
        self.run()


def serve_runners(control: socket.socket, channel: socket.socket) -> NoReturn:
    """Be a zygote with one channel, over which runners are asked for."""
    entry = "sapwood.activity.runner_procedures"
    try:
        process.adopt_orphans()
        server = zygotes.Zygote(control, plan.ZygotePlan((), (entry,), f"{entry}:main"), sys.path)
        agent = zygotes.ForkedProcess(
            zygotes.ForkedTree(control), orders.ProcessSpec("", 1, 1), channel
        )
        server._listen_to(agent)  # noqa: SLF001 - it would have forked the agent
        server._complete_imports()  # noqa: SLF001 - as above
        server.run()
    finally:
        os._exit(0)


@contextmanager
def runner(
    program: Program, built: Built, bound_agents: int
) -> Iterator[Callable[[Any, Payload], Any]]:
    """Give a function that maps a state in a runner, as the first of some agents has it done."""
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # In a session agent and runner are forks of one process: their code has the same addresses.
    zygote = os.fork()
    if not zygote:
        control.close()
        channel.close()
        serve_runners(theirs, other)
    theirs.close()
    other.close()
    loop = StartingReactor()
    setup = RunnerOptions(bound_agents=bound_agents)
    host = RunnerHost(loop, setup, RunnerFactory(channel), lambda _data: None)
    binding = CoreAffinity(setup.ordinal, bound_agents)
    binding.hold("run")
    image = msgspec.msgpack.encode(make_image(program, built))
    part = msgspec.msgpack.encode(SliceRef(start=0, stop=1))
    order = OpenRun(run="run", image=image, slice=part, start=0, stop=1, function="map")
    host.prepare("run", Preparation("open", opening_message(order, []), None))
    found: list[JobOutcome] = []

    def done(outcome: JobOutcome) -> None:
        found.append(outcome)
        loop.stop()

    def failed(error: Exception) -> None:
        raise error

    def call(state: Any, payload: Payload) -> Any:
        host.submit(Job("map", "run", state.body, payload, done, failed, needs="run"))
        loop.start()
        outcome = found.pop()
        view = bytes(outcome.payload.view) if outcome.payload is not None else b""
        return values.decode(outcome.body, view)

    try:
        yield call
    finally:
        binding.release("run")
        host.close()
        control.close()
        os.waitpid(zygote, 0)
        loop.close()


# --- edits ----------------------------------------------------------------------------------------


def measure_edit(cache: BuildCache, place: Path, options: Options, report: Report) -> None:
    """Edit a watched source and wait for its new version."""
    folder = place / "edited"
    folder.mkdir()
    text = (TEN / "ten.c").read_text()
    (folder / "ten.py").write_text((TEN / "ten.py").read_text())
    (folder / "ten.c").write_text(text)
    edits, compiles = [], []
    with Watch(folder / "ten.py", cache=cache) as watch:
        watch.wait(1, PATIENCE)
        for number in range(2, options.runs + 2):
            changed = f"{text}/* version {number} */\n"
            begin = time.perf_counter()
            (folder / "ten.c").write_text(changed)
            version = watch.wait(number, PATIENCE)
            edits.append(time.perf_counter() - begin)
            assert version.error is None
            compiles.append(seconds(lambda: compile_alone(folder / "ten.c")))
    report.add(Figure.of("native_code.edit", 1, edits, compiles, unit="ms"))


def compile_alone(source: Path, compiler: str = "cc", *flags: str) -> None:
    """Compile and link as the language does."""
    made = source.with_suffix(".o")
    usual = ["-O3", "-g", "-fPIC", "-march=native", *flags]
    subprocess.run([compiler, *usual, "-c", str(source), "-o", str(made)], check=True)
    library = source.with_suffix(".so")
    link = ["-shared", "-Wl,--no-undefined", "-lm", "-o", str(library)]
    subprocess.run([compiler, *usual, str(made), *link], check=True)


def measure_cuda(cache: BuildCache, place: Path, options: Options, report: Report) -> None:
    """Patch and compile a kernel that is another one each time."""
    folder = place / "cuda"
    folder.mkdir()
    program = "from sapwood import Program\nclass P(Program):\n    sources = ['k.cu']\n"
    (folder / "p.py").write_text(program)
    environment = {**os.environ, "SAPWOOD_CUDA": "cpu"}
    builds, floors = [], []
    for number in range(options.runs + 1):
        (folder / "k.cu").write_text(KERNEL % (number + 2))
        (folder / "k.cpp").write_text(LOOP % (number + 2))
        loaded = load_program(folder / "p.py")
        spent = seconds(lambda: build(loaded, cache=cache, environment=environment))  # noqa: B023 - called at once
        if number:  # the first one compiles the header
            builds.append(spent)
            floors.append(seconds(lambda: compile_alone(folder / "k.cpp", "c++", "-std=c++17")))
    report.add(Figure.of("native_code.cuda", 1, builds, floors, unit="ms"))


if __name__ == "__main__":
    main()
