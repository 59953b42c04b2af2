"""Sessions of real processes that echo: streams, requests, faults, ends."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.comm.link import LinkTiming
from sapwood.core.errors import (
    AgentLostError,
    ClosedError,
    DataValueError,
    ExecutionError,
    InputError,
    InternalError,
    ProtocolError,
    ResourceError,
    SapwoodError,
)
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import plan
from sapwood.environment.settings import RestartSettings
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.options import SessionOptions
from sapwood.session.streams import StreamHandle
from sapwood.session.wave_result import WaveResult

MakeSession = Callable[..., EmbeddedSession]
Until = Callable[[Callable[[], object]], None]

TIMEOUT = 30.0
STANDING = {"agents": 4, "fanout": 2, "exchanges": False}
SHAPES = [(1, 0), (3, 0), (4, 2), (5, 2), (9, 3)]


@pytest.mark.parametrize(("agents", "fanout"), SHAPES)
def test_what_is_sent_comes_back_from_everybody(
    make_session: MakeSession, agents: int, fanout: int
) -> None:
    session = make_session(agents, fanout)
    stream = session.open_stream("echo", {"x": "sum", "all": "concat", "n": "count"})
    futures = [
        stream.broadcast({"x": np.full(size, 2.0), "all": [size], "n": 1})
        for size in (1, 1000, 100_000, 1000)
    ]
    for size, future in zip((1, 1000, 100_000, 1000), futures, strict=True):
        result = future.result(TIMEOUT)
        np.testing.assert_array_equal(result.total["x"], np.full(size, 2.0 * agents))
        assert result.total["all"].tolist() == [size] * agents
        assert result.total["n"] == agents
        assert from_ranges(result.ranks) == set(range(1, agents + 1))
        assert result.weight == agents
    stream.close()


def test_a_stream_may_have_some_members_only(standing: EmbeddedSession) -> None:
    stream = standing.open_stream("echo", {"x": "sum"}, [2, 4])
    result = stream.broadcast({"x": 1}).result(TIMEOUT)
    assert result.total == {"x": 2}
    assert from_ranges(result.ranks) == {2, 4}


def test_several_streams_and_threads_at_once(standing: EmbeddedSession) -> None:
    session = standing
    totals: dict[int, list[int]] = {}

    def work(number: int) -> None:
        stream = session.open_stream("echo", {"x": "sum"})
        futures = [stream.broadcast({"x": number * wave}) for wave in range(20)]
        totals[number] = [future.result(TIMEOUT).total["x"] for future in futures]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {n: [4 * n * wave for wave in range(20)] for n in range(4)}


@pytest.mark.parametrize("size", [1, 100_000])
def test_an_agent_answers_what_it_is_asked(standing: EmbeddedSession, size: int) -> None:
    for rank in (1, 4):
        answer = standing.ask(rank, "ping", {"x": np.arange(size)}).result(TIMEOUT)
        np.testing.assert_array_equal(answer["x"], np.arange(size))
        answer["x"][0] = 7  # an answer belongs to the asker


def test_an_unknown_handler_is_a_clear_error(standing: EmbeddedSession) -> None:
    with pytest.raises(InputError, match="no request handler 'sing'"):
        standing.ask(1, "sing", None).result(TIMEOUT)
    with pytest.raises(InputError, match="no wave handler 'sing'"):
        standing.open_stream("sing", {}).broadcast(None).result(TIMEOUT)


def test_an_agent_that_does_not_exist_cannot_be_asked(standing: EmbeddedSession) -> None:
    with pytest.raises(AgentLostError):
        standing.ask(99, "ping", None).result(TIMEOUT)


def test_an_unknown_reduction_is_refused_at_once(standing: EmbeddedSession) -> None:
    with pytest.raises(ProtocolError, match="'summ' is not a reduction"):
        standing.open_stream("echo", {"x": "summ"})


@pytest.mark.parametrize("value", [object(), {"x": print}])
def test_what_cannot_travel_is_refused_at_once(standing: EmbeddedSession, value: Any) -> None:
    with pytest.raises(DataValueError):
        standing.ask(1, "ping", value)
    with pytest.raises(DataValueError):
        standing.open_stream("echo", {}).broadcast(value)


def test_answers_that_do_not_fit_fail_their_wave_only(standing: EmbeddedSession) -> None:
    stream = standing.open_stream("echo", {"x": "sum"})
    with pytest.raises(ExecutionError, match=r"\['y'\]"):
        stream.broadcast({"y": 1}).result(TIMEOUT)
    assert stream.broadcast({"x": 1}).result(TIMEOUT).total == {"x": 4}


def test_what_was_asked_cannot_be_taken_back(standing: EmbeddedSession) -> None:
    for future in (
        standing.ask(1, "ping", 1),
        standing.open_stream("echo", {"x": "sum"}).broadcast({"x": 1}),
    ):
        assert not future.cancel()
        future.result(TIMEOUT)


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agents", "fanout"), [(3, 0), (4, 2)])
def test_a_killed_agent_is_replaced(
    make_session: MakeSession, until: Until, watch: Any, agents: int, fanout: int
) -> None:
    session = make_session(agents, fanout)
    watched = watch(session)
    victim = session.supervisor.processes[2].pid
    os.kill(victim, signal.SIGKILL)
    until(lambda: watched.back() == {2})
    assert session.supervisor.processes[2].pid != victim
    assert session.ask(2, "ping", "there?").result(TIMEOUT) == "there?"
    stream = session.open_stream("echo", {"x": "sum"})
    assert stream.broadcast({"x": 1}).result(TIMEOUT).total == {"x": agents}


@pytest.mark.parametrize("victim", [1, 5])
def test_a_wave_is_completed_by_the_replacement(
    make_session: MakeSession, until: Until, watch: Any, victim: int
) -> None:
    session = make_session(4, 2)
    watched = watch(session)
    stream = session.open_stream("echo", {"x": "sum"})
    assert stream.broadcast({"x": 1}).result(TIMEOUT).total == {"x": 4}
    pid = session.supervisor.processes[victim].pid
    os.kill(pid, signal.SIGSTOP)  # so that the wave waits for it
    future = stream.broadcast({"x": np.ones(20_000)})
    os.kill(pid, signal.SIGKILL)
    until(lambda: victim in watched.back())
    result = future.result(TIMEOUT)
    np.testing.assert_array_equal(result.total["x"], np.full(20_000, 4.0))
    assert from_ranges(result.ranks) == {1, 2, 3, 4}


def test_of_a_killed_junction_only_the_junction_is_replaced(
    make_session: MakeSession, until: Until, watch: Any
) -> None:
    session = make_session(4, 2)
    watched = watch(session)
    before = {record.rank: record.pid for record in session.supervisor.processes}
    os.kill(before[5], signal.SIGKILL)
    until(lambda: 5 in watched.back())
    after = {record.rank: record.pid for record in session.supervisor.processes}
    assert {rank for rank in before if before[rank] != after[rank]} == {5}
    stream = session.open_stream("echo", {"x": "sum"})
    assert stream.broadcast({"x": 1}).result(TIMEOUT).total == {"x": 4}


def test_a_killed_zygote_is_replaced_with_everybody(
    make_session: MakeSession, until: Until, watch: Any
) -> None:
    session = make_session(4, 2)
    watched = watch(session)
    zygote = session.supervisor.zygote_pid
    os.kill(zygote, signal.SIGKILL)
    until(lambda: watched.back() == {1, 2, 3, 4, 5, 6})
    assert session.supervisor.zygote_pid != zygote
    stream = session.open_stream("echo", {"x": "sum"})
    assert stream.broadcast({"x": 1}).result(TIMEOUT).total == {"x": 4}


@pytest.mark.parametrize(
    ("fanout", "victim"), [(0, 2), pytest.param(2, 2, marks=pytest.mark.nightly), (2, 5)]
)
def test_a_stopped_process_is_noticed_and_replaced(
    make_session: MakeSession, until: Until, watch: Any, fanout: int, victim: int
) -> None:
    session = make_session(4, fanout, timing=LinkTiming(heartbeat=0.3, failure_after=2.0))
    watched = watch(session)
    os.kill(session.supervisor.processes[victim].pid, signal.SIGSTOP)
    until(lambda: victim in watched.back())
    assert session.ask(2, "ping", 1).result(TIMEOUT) == 1


HALTING = """
import os, signal
from sapwood.session import agent

def main(configuration, rank, incarnation, runner_factory):
    live = agent.main(configuration, rank, incarnation, runner_factory)
    if rank != 1 or incarnation not in {INCARNATIONS}:
        return live

    def run():
        os.kill(os.getpid(), signal.SIGSTOP)
        live()

    return run
"""


@pytest.fixture
def halting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Make an entry of agents of which some stop between their fork and their place."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(incarnations: range) -> str:
        name = f"halting_agent_{len(incarnations)}"
        text = HALTING.replace("{INCARNATIONS}", repr(incarnations))
        (tmp_path / f"{name}.py").write_text(text)
        return f"{name}:main"

    return make


def test_a_replacement_that_is_stopped_before_it_joins_is_replaced(
    make_session: MakeSession, until: Until, watch: Any, halting: Callable[..., str]
) -> None:
    session = make_session(2, agent_entry=halting(range(2, 3)), join_timeout=2.0)
    watched = watch(session)
    stream = session.open_stream("echo", {"x": "sum"})
    os.kill(session.supervisor.processes[1].pid, signal.SIGKILL)
    until(
        lambda: (
            session.supervisor.processes[1].incarnation == 2 and session.supervisor.processes[1].pid
        )
    )
    stopped = session.supervisor.processes[1].pid
    assert stream.exchange({"x": 1}, TIMEOUT).total == {"x": 2}
    assert watched.back() == {1}
    assert session.supervisor.processes[1].incarnation == 3
    reasons = [change.reason for change in watched.changes if not change.back]
    assert reasons[-1] == "it did not join the tree within 2 s (cluster.join_timeout)"
    assert not alive(stopped)


def test_a_place_whose_processes_never_join_is_given_up_with_the_reason(
    make_session: MakeSession, until: Until, halting: Callable[..., str]
) -> None:
    restart = RestartSettings(limit=2, window=0.5, backoff=0.01, backoff_max=0.01)
    session = make_session(2, agent_entry=halting(range(2, 100)), join_timeout=1.0, restart=restart)
    os.kill(session.supervisor.processes[1].pid, signal.SIGKILL)
    until(lambda: session.failure)
    assert isinstance(session.failure, AgentLostError)
    assert "did not join the tree within 1 s" in session.failure.what
    assert session.ask(2, "ping", "still here").result(TIMEOUT) == "still here"


def test_an_agent_that_is_stopped_at_the_start_is_replaced(
    make_session: MakeSession, halting: Callable[..., str]
) -> None:
    session = make_session(2, agent_entry=halting(range(1, 2)), join_timeout=2.0)
    assert [record.incarnation for record in session.supervisor.processes] == [2, 1]


def test_a_stopped_zygote_is_noticed_and_replaced(make_session: MakeSession, watch: Any) -> None:
    session = make_session(4, 2, timing=LinkTiming(heartbeat=0.3, failure_after=2.0))
    watched = watch(session)
    stream = session.open_stream("echo", {"x": "sum"})
    zygote = session.supervisor.zygote_pid
    os.kill(zygote, signal.SIGSTOP)
    os.kill(session.supervisor.processes[1].pid, signal.SIGKILL)
    assert stream.exchange({"x": 1}, TIMEOUT).total == {"x": 4}
    assert session.supervisor.zygote_pid != zygote
    assert not alive(zygote)
    reasons = {change.reason for change in watched.changes if not change.back}
    assert "the zygote gave no sign of life for 2 s" in reasons


def test_a_question_to_an_agent_that_is_lost_is_answered_with_its_loss(
    make_session: MakeSession,
) -> None:
    session = make_session(2)
    pid = session.supervisor.processes[1].pid
    os.kill(pid, signal.SIGSTOP)
    future = session.ask(1, "ping", 1)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(AgentLostError, match="agent 1 is gone"):
        future.result(TIMEOUT)


def test_an_agent_that_ends_too_often_is_given_up(make_session: MakeSession, until: Until) -> None:
    restart = RestartSettings(limit=1, backoff=0.01, backoff_max=0.01)
    session = make_session(2, restart=restart)
    record = session.supervisor.processes[1]
    for there in ((1, "ready"), (2, "ready")):
        until(lambda there=there: (record.incarnation, record.state.value) == there)  # type: ignore[misc]
        os.kill(record.pid, signal.SIGKILL)
    until(lambda: session.failure)
    assert isinstance(session.failure, AgentLostError)
    assert "rank 1" in session.failure.what
    assert session.ask(2, "ping", "still here").result(TIMEOUT) == "still here"


# --- beginnings and ends -------------------------------------------------------------------------

BROKEN = """
def main(configuration, rank, incarnation, runner_factory):
    raise RuntimeError("this agent cannot start")
"""

SLEEPY = """
import signal
def main(*_):
    return signal.pause
"""


def test_an_agent_that_cannot_start_fails_the_session(
    make_session: MakeSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_agent.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    restart = RestartSettings(limit=1, backoff=0.01, backoff_max=0.01)
    with pytest.raises(AgentLostError, match="exited with code 1"):
        make_session(2, agent_entry="broken_agent:main", restart=restart)
    assert "this agent cannot start" in capfd.readouterr().err


def test_an_agent_that_never_gets_ready_fails_the_session(
    make_session: MakeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleepy_agent.py").write_text(SLEEPY)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ResourceError, match=r"2 of 2 processes are not ready after 0.3 s"
    ) as caught:
        make_session(2, agent_entry="sleepy_agent:main", ready_timeout=0.3)
    assert caught.value.where == "rank[1-2]"


def test_closing_twice_is_closing_once(make_session: MakeSession) -> None:
    session = make_session(2)
    assert not session.closed
    session.close()
    session.close()
    assert session.closed


def test_what_is_under_way_fails_when_the_session_closes(make_session: MakeSession) -> None:
    session = make_session(2)
    os.kill(session.supervisor.processes[1].pid, signal.SIGSTOP)
    asked = session.ask(1, "ping", np.zeros(100_000))
    wave = session.open_stream("echo", {"x": "sum"}).broadcast({"x": np.zeros(100_000)})
    session.close()
    for future in (asked, wave):
        with pytest.raises(ClosedError):
            future.result(TIMEOUT)


def test_a_session_that_its_own_thread_cannot_close_is_closed_later(
    make_session: MakeSession,
) -> None:
    """It counted as closed, and its processes stayed for good."""
    session = make_session(1)
    with pytest.raises(SapwoodError, match="own thread cannot wait"):
        session.call(session.close)
    assert not session.closed
    assert session.ask(1, "ping", 1).result(TIMEOUT) == 1
    session.close()
    assert session.closed


@pytest.mark.parametrize("part", ["streams", "requests", "groups", "mailbox"])
def test_a_part_that_cannot_be_ended_does_not_keep_the_others(
    part: str, make_session: MakeSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The processes of the session once stayed; a second close did nothing."""
    session = make_session(1)
    pid = session.supervisor.processes[1].pid
    waiting = session.receive(1, 5)

    def broken(_reason: SapwoodError) -> None:
        raise KeyError(part)

    owner = getattr(session, part)
    setattr(owner, "refuse" if part == "streams" else "abandon", broken)
    with pytest.raises(KeyError):
        session.close()
    assert f"KeyError: '{part}'" in caplog.text
    if part != "mailbox":
        with pytest.raises(ClosedError):
            waiting.result(TIMEOUT)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("kind", [KeyError, SystemExit])
def test_a_mistake_while_an_answer_is_taken_in_fails_that_request_only(
    kind: type[BaseException], make_session: MakeSession, caplog: pytest.LogCaptureFixture
) -> None:
    """It once ended all that was under way in the session, for good."""
    session = make_session(1)
    original = session.requests._read
    broken: list[int] = []

    def read(number: int) -> None:
        if number in broken:
            broken.remove(number)
            raise kind("mistake")
        original(number)

    session.requests._read = read  # type: ignore[method-assign]
    with session_paused(session):
        bad, good = session.ask(1, "ping", 1), session.ask(1, "ping", 2)
        broken.append(bad.number)
    with pytest.raises(InternalError, match=f"{kind.__name__}: .*mistake") as failed:
        bad.result(TIMEOUT)
    assert "in read" in failed.value.details["traceback"]
    assert good.result(TIMEOUT) == 2
    assert "effect Answered failed" in caplog.text
    assert session.ask(1, "ping", 3).result(TIMEOUT) == 3


@contextlib.contextmanager
def session_paused(session: EmbeddedSession) -> Iterator[None]:
    """Keep the session's thread from doing anything meanwhile."""
    goes_on = threading.Event()
    session.on_loop(goes_on.wait)
    try:
        yield
    finally:
        goes_on.set()


def test_a_closed_session_takes_nothing(make_session: MakeSession) -> None:
    session = make_session(1)
    stream = session.open_stream("echo", {"x": "sum"})
    session.close()
    with pytest.raises(ClosedError):
        session.ask(1, "ping", 1).result(TIMEOUT)
    with pytest.raises(ClosedError):
        session.open_stream("echo", {"x": "sum"})
    with pytest.raises(ClosedError):
        stream.broadcast({"x": 1}).result(TIMEOUT)


def test_a_closed_stream_takes_nothing(standing: EmbeddedSession) -> None:
    stream = standing.open_stream("echo", {"x": "sum"})
    stream.close()
    stream.close()
    with pytest.raises(ClosedError, match="the stream was closed"):
        stream.broadcast({"x": 1}).result(TIMEOUT)


def test_a_folder_whose_path_is_too_long_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_session: MakeSession
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    stream = make_session(1).open_stream("echo", {"x": "sum"})
    assert stream.broadcast({"x": 1}).result(TIMEOUT).total == {"x": 1}
    assert list(long.iterdir()) == []


def test_a_session_that_was_never_started_leaves_nothing() -> None:
    EmbeddedSession(
        SessionOptions(tree=plan(2, 0), agent_entry="sapwood.session.agent:main")
    ).close()


FRONT_END = """
import sys
from sapwood.core.topology import plan
from sapwood.session.options import SessionOptions
from sapwood.session.embedded import EmbeddedSession

session = EmbeddedSession(SessionOptions(tree=plan(4, 2), agent_entry="sapwood.session.agent:main"))
session.start()
places = session.supervisor.processes
print(session.supervisor.zygote_pid, *[record.pid for record in places], flush=True)
sys.stdin.read()
"""


def test_a_client_that_is_killed_leaves_nothing(until: Until) -> None:
    folder = Path(os.environ["XDG_RUNTIME_DIR"])
    before = set(folder.glob("sapwood-*"))  # the folder of the session of this module
    front = subprocess.Popen(
        [sys.executable, "-c", FRONT_END], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert front.stdout is not None
    pids = [int(word) for word in front.stdout.readline().split()]
    assert len(pids) == 7
    assert set(folder.glob("sapwood-*")) > before
    front.kill()
    front.communicate()
    until(lambda: not any(alive(pid) for pid in pids))
    until(lambda: set(folder.glob("sapwood-*")) == before)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_callback_may_use_what_another_thread_has_just_made(
    standing: EmbeddedSession, until: Until
) -> None:
    session = standing
    busy, made = threading.Event(), threading.Event()
    streams: list[StreamHandle] = []
    waves: list[Future[WaveResult]] = []

    def use() -> None:
        busy.set()
        assert made.wait(TIMEOUT)
        waves.append(streams[0].broadcast({"x": 1}))

    session.on_loop(use)
    assert busy.wait(TIMEOUT)
    streams.append(session.open_stream("echo", {"x": "sum"}))  # the loop has not heard of it
    made.set()
    until(lambda: waves)
    assert waves[0].result(TIMEOUT).total == {"x": 4}


def test_places_of_one_machine_do_without_tls(standing: EmbeddedSession) -> None:
    """Agents and junctions stay small: what they do not use, they do not load."""
    pids = [place.pid for place in standing.supervisor.processes]
    assert len(pids) > 4
    for pid in {*pids} - {0}:
        assert "_ssl." not in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
