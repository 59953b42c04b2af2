"""Kill what a detached run consists of, at random moments, and compare its result.

A head, two nodes on this machine, a session over them; run after run of k-means with reproducible
sums. SIGKILL ends an agent, a junction, a runner, a zygote, a node daemon, the driver of the run,
the root of the session, the head, or several of them at once; what users would restart (the
head, a node that had joined) are restarted. With ``--stops`` some are stopped for a while instead
(SIGSTOP, then SIGCONT): they count as lost meanwhile, and come back. The result must equal that of
an undisturbed run, bit by bit. No client is attached meanwhile: the runs are detached.

    python benchmarks/kills.py --seconds 300 --seed 1
    python benchmarks/kills.py --machines 4 --until 300 --stops 0.15     # network namespaces
    python benchmarks/kills.py --seconds 0 --faults down disk quorum     # of whole clusters
    python benchmarks/kills.py --seconds 0 --faults down quorum --machines 4

With ``--faults`` whole clusters are broken first, see ``cluster_faults.py``.

It prints a line for each run, and in the end how many kills there were of each kind. The exit code
is 1 if a result was wrong, or a run or a fault did not end as documented.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

import sapwood
from cluster_faults import FAULTS, FaultError
from machines import HEAD, Machines, machines
from sapwood.activity.progress import RunInfo
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.code.run_spec import RunSpec
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.head import calls, session_records
from sapwood.head.folder import find_head
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.runs import ANSWER, PROGRESS

PROGRAM = Path(__file__).with_name("programs") / "centres.py"
SESSION = "kills"
LABEL = "second"

KINDS = ("agent", "junction", "runner", "zygote", "node", "driver", "root", "head")
WEIGHTS = (4, 3, 4, 2, 2, 3, 4, 2)
SEVERAL = (
    ("agent", "junction"),
    ("agent", "agent", "runner"),
    ("zygote", "driver"),
    ("head", "node", "root"),
    ("head", "root", "driver"),
    ("head", "root"),
    ("root", "driver"),
    ("head", "driver"),
    ("root", "node"),
    ("root", "agent"),
)

AGENTS = 4
"""Of the session: sums of slices depend on how many there are."""

STUCK = 150.0
"""Seconds after which a run that is not over counts as stuck."""

STOPPED = 6.0
"""Longest time for which something is stopped, seconds: twice that after which it is lost."""

LISTENS = 0x10000
"""Flag of a Unix socket that listens, in ``/proc/net/unix``."""


class KilledCluster:
    """A head with nodes and a session, parts of which are killed.

    Args:
        folder: The folder of its state.
        agents: Of the session.
        nodes: Nodes, the head's own among them; 0 for a session on the head's machine alone.
        lan: Machines that are the nodes instead; this process is on their head.
    """

    def __init__(
        self, folder: Path, agents: int = AGENTS, nodes: int = 2, lan: Machines | None = None
    ) -> None:
        self.kills: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self.late: list[str] = []
        self._agents = agents
        self._nodes = nodes
        self._lan = lan
        self._mark = f"XDG_STATE_HOME={folder}\0".encode()
        self._joined: dict[str, int] = {}
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder),
            "SAPWOOD_POLICY__RESTARTS__LIMIT": "1000000",
            "SAPWOOD_RESTART__LIMIT": "1000000",
            "SAPWOOD_CLUSTER__NODE_PATIENCE": "2s",
            "SAPWOOD_COMM__HEARTBEAT": "0.5s",
            "SAPWOOD_COMM__FAILURE_AFTER": "3s",
            "SAPWOOD_NODES__LOSS_TIMEOUT": "3s",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def __enter__(self) -> Self:
        os.environ["XDG_STATE_HOME"] = self._environment["XDG_STATE_HOME"]
        self.up()
        on = "head" if self._nodes else "local"
        words = ("--on", on, "--agents", str(self._agents), "--idle", "0")
        self._command("session", "create", SESSION, *words)
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(subprocess.CalledProcessError, SapwoodError):
            self._command("down")
        for pid in *self._joined.values(), *self._all():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _command(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "sapwood", *words, "--json"],
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
            timeout=120,
        )
        return json.loads(done.stdout)

    def up(self) -> None:
        """Begin the head, and the nodes that join it."""
        if self._lan is not None:
            self._command("up", "--no-node", "--listen", f"{self._lan.address(HEAD)}:0")
        else:
            self._command("up", *["--no-node"] * (self._nodes == 0))
        self.join()

    def join(self) -> None:
        """Begin the nodes that join and do not live."""
        own = [LABEL] if self._nodes > 1 else []
        labels = own if self._lan is None else self._lan.names
        for label in labels:
            if not started_at(self._joined.get(label, 0)):
                self._joined[label] = self._join(label)

    def _join(self, label: str) -> int:
        """Begin a node, and return its process."""
        token = self._command("token", "create")["text"]
        words = [sys.executable, "-m", "sapwood", "node", "join", "-", "--as", label]
        words.append("--background")
        done = subprocess.run(
            words if self._lan is None else self._lan.command(label, words),
            input=token.encode(),
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
            timeout=120,
        )
        return int(done.stdout.split()[-1])

    def begin(self, parameters: Mapping[str, str], output: Path | None = None) -> calls.RunRecord:
        """Begin a detached run."""
        wanted = calls.CreateRun(
            spec=RunSpec(str(PROGRAM), parameters=parameters),
            settings={"cluster.on": f"session:{SESSION}"},
            output="" if output is None else str(output),
        )
        return asked_head("default", CALL_TIMEOUT, Runs.create, wanted)

    def cancel(self, run: calls.RunRecord) -> None:
        """End a run."""
        asked_head("default", 60.0, Runs.cancel, run.id)

    def found(self, run: str) -> calls.RunRecord | None:
        """Return a run as the head knows it; None while no head runs."""
        with contextlib.suppress(SapwoodError, OSError):
            return asked_head("default", CALL_TIMEOUT, Runs.find, run)
        return None

    def session(self) -> session_records.SessionRecord | None:
        """Return the session as the head knows it; None while no head runs."""
        with contextlib.suppress(SapwoodError, OSError):
            return asked_head("default", CALL_TIMEOUT, Sessions.find, SESSION)
        return None

    def targets(self, kind: str, run: calls.RunRecord) -> list[int]:
        """Return the processes of a kind that there are now."""
        if kind == "head":
            with contextlib.suppress(SapwoodError):
                return [find_head().pid]
            return []
        if kind in {"root", "driver"}:
            found = self.session() if kind == "root" else self.found(run.id)
            return [found.pid] if found is not None and found.pid else []
        known = self._all()
        zygotes = [one for one, facts in known.items() if facts.is_zygote]
        if kind == "zygote":
            return zygotes
        if kind == "node":
            return [one for one, facts in known.items() if facts.is_daemon]
        below = {one: facts for one, facts in known.items() if facts.parent in zygotes}
        if kind == "runner":
            return [one for one, facts in below.items() if facts.leads]
        found_places = [one for one, facts in below.items() if not facts.leads]
        return [one for one in found_places if listens(one) == (kind == "junction")]

    def _all(self) -> dict[int, Facts]:
        found = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    if self._mark in Path(entry.path, "environ").read_bytes():
                        found[int(entry.name)] = Facts(int(entry.name))
        return found

    def stop(self, kind: str, run: calls.RunRecord, rng: random.Random) -> bool:
        """Stop a process for a while; return whether there was one."""
        found = sorted(self.targets(kind, run))
        if not found:
            return False
        pid = rng.choice(found)
        born = started_at(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED * rng.random())
        if born and started_at(pid) == born:  # it may have been killed, as it counted as lost
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stops[kind] += 1
        return True

    def kill(self, kinds: Sequence[str], run: calls.RunRecord, rng: random.Random) -> bool:
        """Kill one process of each kind at once; return whether there were any."""
        chosen = [(kind, self.targets(kind, run)) for kind in kinds]
        picked = ((kind, rng.choice(sorted(found))) for kind, found in chosen if found)
        pids = [(kind, pid) for pid, kind in {pid: kind for kind, pid in picked}.items()]
        for _, pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for kind, pid in pids:
            self.kills[kind] += 1
            while started_at(pid):  # until the kernel has cleared it
                time.sleep(0.001)
        return bool(pids)

    def mend(self, *, wait: float = 0.0) -> None:
        """Begin again what users begin: the head, and the node that joins."""
        if wait:
            time.sleep(wait)
        try:
            alive = started_at(find_head().pid) != 0
        except SapwoodError:
            alive = False
        try:
            if alive:
                self.join()
            else:
                self.up()
        except subprocess.CalledProcessError:
            return  # the next call does it
        except subprocess.TimeoutExpired as error:
            self.late.append(str(error))
            for file in Path(self._environment["XDG_STATE_HOME"]).rglob("*.log"):
                print(f"--- {file}\n{file.read_text(errors='replace')[-3000:]}", flush=True)


class Facts:
    """What a process is."""

    def __init__(self, pid: int) -> None:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] in "ZX":
            raise ValueError("it has ended")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        self.parent = int(fields[1])
        self.leads = int(fields[2]) == pid
        forked = any(b"sapwood.contexts.zygote" in word for word in words)
        above = Path(f"/proc/{self.parent}/cmdline").read_bytes().split(b"\0")
        self.is_zygote = forked and not any(b"sapwood.contexts.zygote" in word for word in above)
        self.is_daemon = b"join" in words and b"sapwood" in words


def started_at(pid: int) -> int:
    """Return whether a process lives: when it began, or 0."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def listens(pid: int) -> bool:
    """Return whether a process has a Unix socket that listens, as a junction has."""
    try:
        lines = Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
        own = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return False
    fields = (line.split() for line in lines)
    return any(int(one[3], 16) & LISTENS and f"socket:[{one[6]}]" in own for one in fields)


def undisturbed(parameters: Mapping[str, str], agents: int) -> dict[str, Any]:
    """Return the result of an undisturbed run."""
    with sapwood.local(agents) as cluster:
        result: dict[str, Any] = cluster.run(PROGRAM, parameters=parameters).result()
    return result


def same(file: Path, wanted: dict[str, Any]) -> bool:
    """Return whether a file has a result, bit by bit."""
    with np.load(file) as found:
        return set(found) == set(wanted) and all(
            np.asarray(wanted[name]).tobytes() == found[name].tobytes() for name in wanted
        )


def iteration(run: calls.RunRecord) -> int:
    """Return how far a run is."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return typed.json_reader(RunInfo)((Path(run.folder) / PROGRESS).read_bytes()).iteration
    return 0


def await_iteration(run: calls.RunRecord, wanted: int) -> None:
    """Wait until a run has come so far, or is over."""
    end = time.monotonic() + 15.0
    answer = Path(run.folder) / ANSWER
    while iteration(run) < wanted and time.monotonic() < end and not answer.stat().st_size:
        time.sleep(0.01)


def plans(rng: random.Random, only: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield what is killed at once, without end."""
    weights = [WEIGHTS[KINDS.index(kind)] for kind in only]
    several = [kinds for kinds in SEVERAL if set(kinds) <= set(only)]
    while True:
        if several and rng.random() < 0.25:
            yield rng.choice(several)
        else:
            yield tuple(rng.choices(only, weights))


def disturb(
    cluster: KilledCluster,
    rng: random.Random,
    parameters: Mapping[str, str],
    file: Path,
    kills: int,
    only: Sequence[str] = KINDS,
    stops: float = 0.0,
) -> tuple[calls.RunRecord, list[str], str]:
    """Run once, killing meanwhile; return the run, what was killed, and what is wrong with it."""
    run = cluster.begin(parameters, file)
    said: list[str] = []
    planned = plans(rng, only)
    for _ in range(kills):
        if rng.random() < 0.6:
            await_iteration(run, iteration(run) + rng.randint(1, 15))
        else:
            time.sleep(1.5 * rng.random())
        if (Path(run.folder) / ANSWER).stat().st_size:
            break  # it is over
        kinds = next(planned)
        if rng.random() < stops:
            if cluster.stop(kinds[0], run, rng):
                said.append(f"{kinds[0]} stopped@{iteration(run)}")
        elif cluster.kill(kinds, run, rng):
            said.append(f"{'+'.join(kinds)}@{iteration(run)}")
        cluster.mend(wait=rng.choice((0.0, 0.5)) * rng.random())
    end = time.monotonic() + STUCK
    while True:
        found = cluster.found(run.id)
        if found is not None and found.state != "running":
            return found, said, "" if found.state == "done" else f"it is {found.state}"
        if time.monotonic() > end:
            return found or run, said, f"it is stuck at iteration {iteration(run)}"
        cluster.mend(wait=0.1)


def main() -> int:
    """Kill until the time is over."""
    parser = argparse.ArgumentParser(description="Kill parts of detached runs; compare results.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=6, help="kills in each run, at most")
    parser.add_argument("--until", type=int, default=0, help="kills; ends then, not by seconds")
    parser.add_argument("--stops", type=float, default=0.0, help="share that is stopped instead")
    parser.add_argument("--nodes", type=int, default=2, choices=(0, 1, 2))
    parser.add_argument("--machines", type=int, default=0, help="network namespaces as nodes")
    parser.add_argument("--only", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--faults", nargs="+", default=[], choices=FAULTS)
    given = parser.parse_args()
    with machines(given.machines) if given.machines else nullcontext(Machines(0, "")) as lan:
        rng = random.Random(given.seed)  # noqa: S311 - no secret
        wrong = break_clusters(given.faults, rng, lan)
        if wrong or not (given.seconds or given.until):
            return int(wrong)
        return torture(given, lan if lan.prefix else None)


def break_clusters(names: Sequence[str], rng: random.Random, lan: Machines) -> bool:
    """Break a cluster in each of these ways; return whether one did not behave as documented."""
    wrong = False
    for name in names:
        with tempfile.TemporaryDirectory(
            prefix="sapwood-faults-", ignore_cleanup_errors=True
        ) as folder:
            try:
                said = FAULTS[name](Path(folder), rng, lan)
            except (FaultError, subprocess.SubprocessError) as error:
                said, wrong = f"WRONG: {error}", True
        print(f"{name}: {said}", flush=True)
    return wrong


def torture(given: argparse.Namespace, lan: Machines | None) -> int:
    """Kill until there were so many kills, or the time is over."""
    rng = random.Random(given.seed)  # noqa: S311 - no secret
    parameters = {"rounds": "60"}
    agents = AGENTS if lan is None else 2 * len(lan.names)
    wanted = undisturbed(parameters, agents)
    begin = time.monotonic()
    end = begin + given.seconds
    faults: list[str] = []
    done = 0
    with (
        tempfile.TemporaryDirectory(prefix="sapwood-kills-", ignore_cleanup_errors=True) as folder,
        KilledCluster(Path(folder), agents, given.nodes, lan) as cluster,
    ):
        while sum(cluster.kills.values()) < given.until if given.until else time.monotonic() < end:
            file = Path(folder) / f"result-{done}.npz"
            begun = time.monotonic()
            kills = rng.randint(1, given.kills)
            run, said, wrong = disturb(
                cluster, rng, parameters, file, kills, given.only, given.stops
            )
            if not wrong and not same(file, wanted):
                wrong = "its result is WRONG"
            done += 1
            took = time.monotonic() - begun
            print(
                f"run {done}: {wrong or 'equal'}, {len(run.restarts)} restarts, {took:.1f} s,"
                f" killed {', '.join(said) or 'nothing'}",
                flush=True,
            )
            if wrong:
                faults.append(f"run {done} {run.id}: {wrong}")
                show_logs(run, Path(folder))
            if wrong and "stuck" in wrong:
                break
        seconds = time.monotonic() - begin
        where = "this machine" if lan is None else f"{len(lan.names)} namespaces"
        print(
            f"{sum(cluster.kills.values())} kills in {done} runs on {where}, {seconds:.0f} s:"
            f" {dict(cluster.kills)}, stopped {dict(cluster.stops)}, late {cluster.late}"
        )
    print("\n".join(faults) or "no result was wrong")
    return 1 if faults else 0


def show_logs(run: calls.RunRecord, folder: Path) -> None:
    """Print the ends of the logs, to find out why."""
    for file in [*Path(run.folder).glob("*"), *folder.rglob("*.log")]:
        with contextlib.suppress(OSError):
            print(f"--- {file}\n{file.read_bytes()[-3000:].decode('utf-8', 'replace')}")


if __name__ == "__main__":
    sys.exit(main())
