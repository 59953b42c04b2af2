"""Messages and queries on real processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    AgentLostError,
    CancelledError,
    ClosedError,
    ConfigurationError,
    DataValueError,
)
from sapwood.environment.settings import CommSettings

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]
PATIENCE = 30.0


TREE = (4, 2)


@pytest.fixture
def tree(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Four agents below two junctions."""
    return standing


def user_code() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what runs on agents: functions that travel with their code."""

    def echo(times: int) -> None:
        here = sapwood.here()
        for _ in range(times):
            value, source, tag = here.receive()
            here.send(source, value, tag + 1)

    def ring(size: int) -> tuple[int, int]:
        here = sapwood.here()
        count = len(here.agents)
        right, left = here.rank % count + 1, (here.rank - 2) % count + 1
        sending = here.send_later(right, np.full(size, here.rank), tag=5)
        message = here.receive(left, 5)
        sending.result()
        return int(message.value.sum()) // size, message.source

    return echo, ring


echo, ring = user_code()


@pytest.mark.row("C2-P2P")
@pytest.mark.parametrize("size", [0, 10, 100_000, 1_000_000])
def test_what_is_sent_to_an_agent_comes_back(tree: sapwood.Cluster, size: int) -> None:
    done = tree.submit_to(3, echo, 1)
    sent = {"array": np.arange(size), "text": "x" * (size // 10), "pair": (1, 2.5)}
    sending = tree.send_later(3, sent, tag=7)
    value, source, tag = tree.receive(timeout=PATIENCE)
    assert (source, tag) == (3, 8)
    np.testing.assert_array_equal(value["array"], sent["array"])
    value["array"] += 1  # it is the receiver's own
    assert value["text"] == sent["text"]
    assert value["pair"] == (1, 2.5)
    sending.result(PATIENCE)
    done.result(PATIENCE)


@pytest.mark.row("C2-ROUTE")
@pytest.mark.parametrize("size", [1, 100_000])
def test_agents_send_each_other_messages(tree: sapwood.Cluster, size: int) -> None:
    done = [tree.submit_to(rank, ring, size) for rank in range(1, 5)]
    assert [one.result(PATIENCE) for one in done] == [(4, 4), (1, 1), (2, 2), (3, 3)]


@pytest.mark.row("C2-ROUTE")
def test_several_topologies_at_once(tree: sapwood.Cluster, make_cluster: MakeCluster) -> None:
    others = [make_cluster(3), make_cluster(5, 3)]
    for cluster in (tree, *others):
        count = len(cluster.agents)
        done = [cluster.submit_to(rank, ring, 10) for rank in range(1, count + 1)]
        expected = [(left, left) for left in [count, *range(1, count)]]
        assert [one.result(PATIENCE) for one in done] == expected


@pytest.mark.row("C2-P2P")
@pytest.mark.parametrize("size", [3, 100_000])
def test_one_message_to_several(tree: sapwood.Cluster, size: int) -> None:
    def total() -> float:
        return float(sapwood.here().receive(0).value.sum())

    done = [tree.submit_to(rank, total) for rank in (1, 2, 4)]
    tree.send([1, 2, 4], np.ones(size))
    assert [one.result(PATIENCE) for one in done] == [float(size)] * 3


@pytest.mark.row("C2-MATCH")
def test_a_receive_takes_what_it_wants_in_the_order_in_which_it_came(
    tree: sapwood.Cluster,
) -> None:
    def send() -> None:
        here = sapwood.here()
        for number in range(3):
            here.send(0, number, tag=number % 2)

    for rank in (1, 2):
        tree.submit_to(rank, send).result(PATIENCE)
    assert tree.receive(2, 1).value == 1
    assert tree.receive(tag=1) == sapwood.types.Message(1, 1, 1)
    assert [tree.receive(1).value for _ in range(2)] == [0, 2]
    assert [tree.receive(sapwood.types.ANY, sapwood.types.ANY).value for _ in range(2)] == [0, 2]
    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        tree.receive(timeout=0.01)


@pytest.mark.row("C2-MATCH")
def test_requests_can_be_tested_waited_for_and_taken_back(tree: sapwood.Cluster) -> None:
    first, second = tree.receive_later(1), tree.receive_later(2)
    assert not first.test()
    assert not wait([first, second], 0.01, FIRST_COMPLETED).done
    tree.submit_to(2, lambda: sapwood.here().send(0, "two")).result(PATIENCE)
    assert wait([first, second], PATIENCE, FIRST_COMPLETED).done == {second}
    assert second.result().value == "two"
    assert first.cancel()
    assert first.cancelled()
    tree.submit_to(1, lambda: sapwood.here().send(0, "one")).result(PATIENCE)
    assert tree.receive(1, timeout=PATIENCE).value == "one"


@pytest.mark.row("C2-MATCH")
def test_requests_in_a_function_on_an_agent(tree: sapwood.Cluster) -> None:
    def wait() -> list[Any]:
        here = sapwood.here()
        requests = [here.receive_later(tag=tag) for tag in (1, 2)]
        here.send(0, "go")
        one = here.wait_any(requests, timeout=30)
        first = one is requests[1]
        tested = requests[0].test()
        here.send(0, "on")
        whole = here.wait_all(requests, timeout=30)
        try:
            here.receive(timeout=0.01)
        except TimeoutError:
            return [first, tested, whole, *(request.result().value for request in requests)]
        return []

    done = tree.submit_to(4, wait)
    assert tree.receive(4).value == "go"
    tree.send(4, "b", tag=2)
    assert tree.receive(4).value == "on"
    tree.send(4, "a", tag=1)
    assert done.result(PATIENCE) == [True, False, True, "a", "b"]


@pytest.mark.row("C2-MATCH")
def test_a_query_names_who_is_missing_and_why(tree: sapwood.Cluster) -> None:
    def answer() -> int:
        rank = sapwood.here().rank
        if rank == 2:
            time.sleep(1000)
        if rank == 3:
            raise ValueError("not today")
        return rank * rank

    for limit in (2, 8, 32):  # a busy machine may keep the others from answering in time, too
        result = tree.query(answer, timeout=float(limit))
        if len(result.answers) == 2 and isinstance(result.reasons[3], ValueError):
            break
    assert result.answers == {1: 1, 4: 16}
    assert result.missing == "agent[2-3]"
    assert not result.complete
    assert f"did not answer in {limit} s" in str(result.reasons[2])
    assert isinstance(result.reasons[3], ValueError)
    # The call that took too long was taken back: its agent is free again.
    again = tree.query(os.getpid, timeout=PATIENCE)
    assert again.complete
    assert again.missing == ""
    assert len(set(again.answers.values())) == 4


@pytest.mark.row("C2-MATCH")
def test_a_query_of_a_handler_at_some_agents(tree: sapwood.Cluster) -> None:
    assert tree.query("ping", [1, 2], agents=[2, 4]).answers == {2: [1, 2], 4: [1, 2]}
    with pytest.raises(ConfigurationError, match="one argument"):
        tree.query("ping", 1, 2)


def pid_of(cluster: sapwood.Cluster, rank: int) -> int:
    return next(agent.pid for agent in cluster.agents if agent.rank == rank)


@pytest.mark.row("C2-ORDER")
def test_who_waits_for_a_place_that_is_lost_hears_of_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)

    def wait() -> str:
        receiving = sapwood.here().receive_later(2)  # its agent hears of it before it tells
        sapwood.here().send(0, "waiting")
        try:
            receiving.result()
        except sapwood.SapwoodError as error:
            return f"{type(error).__name__}: {error.what}"
        return ""

    done = cluster.submit_to(1, wait)
    assert cluster.receive(1).value == "waiting"
    mine = cluster.receive_later(2)
    result = cluster.query(lambda: os.kill(os.getppid(), 0), agents=[3])
    assert result.complete
    os.kill(pid_of(cluster, 2), signal.SIGKILL)
    assert done.result(PATIENCE).startswith("AgentLostError: agent 2 is gone")
    with pytest.raises(AgentLostError, match="agent 2"):
        mine.result(PATIENCE)


@pytest.mark.row("C2-AM")
def test_large_messages_without_shared_memory_tell_their_progress(
    make_cluster: MakeCluster, until: Until
) -> None:
    cluster = make_cluster(2, comm=CommSettings(shared_memory=False))
    done = cluster.submit_to(1, echo, 1)
    told: list[tuple[int, int]] = []
    sent = np.arange(500_000)
    receiving = cluster.receive_later(1)
    receiving.on_progress(lambda arrived, total: told.append((arrived, total)))
    sending = cluster.send_later(1, sent)
    message = receiving.result(PATIENCE)
    np.testing.assert_array_equal(message.value, sent)
    until(lambda: told[-1] == (sent.nbytes, sent.nbytes))  # callbacks have their own thread
    assert len(told) > 10
    assert told == sorted(told)
    assert receiving.progress() == (sent.nbytes, sent.nbytes)
    sending.result(PATIENCE)
    done.result(PATIENCE)
    moving = cluster.send_later(2, np.zeros(10_000_000))
    assert moving.progress() == (0, 0)  # no agent receives it yet
    moving.cancel()
    with pytest.raises(CancelledError):
        moving.result(PATIENCE)


@pytest.mark.row("C2-AM")
def test_a_large_message_that_nobody_takes_can_be_taken_back(tree: sapwood.Cluster) -> None:
    request = tree.send_later(1, np.zeros(1_000_000))
    assert not request.wait(0.05)
    request.cancel()
    with pytest.raises(sapwood.SapwoodError, match="was cancelled"):
        request.result(PATIENCE)
    done = tree.submit_to(1, lambda: sapwood.here().receive().value)
    tree.send(1, "small")
    assert done.result(PATIENCE) == "small"


def test_messages_wait_while_nobody_wants_them_and_their_senders_are_held_up(
    tree: sapwood.Cluster,
) -> None:
    """Far more than the place may keep: the rest waits at the sender, and nothing is lost."""
    count = 3000

    def send_all() -> None:
        for number in range(count):
            requests[number] = tree.send_later(2, [number, b"x" * 10_000])

    requests: dict[int, sapwood.types.Request] = {}
    thread = threading.Thread(target=send_all)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()  # it waits for room

    def receive(count: int) -> list[int]:
        here = sapwood.here()
        return [here.receive(0).value[0] for _ in range(count)]

    assert tree.submit_to(2, receive, count).result(PATIENCE) == list(range(count))
    thread.join(PATIENCE)
    assert not wait(requests.values(), PATIENCE).not_done


def test_mistakes_are_told(tree: sapwood.Cluster) -> None:
    for wrong in (5, -1, [1, 9], "1", []):
        with pytest.raises(ConfigurationError):
            tree.send(wrong, None)  # type: ignore[arg-type]  # what is not allowed
    for tag in (-1, 2**63, 1.5, True):
        with pytest.raises(ConfigurationError, match="tag"):
            tree.send(1, None, tag)  # type: ignore[arg-type]  # what is not allowed
    with pytest.raises(DataValueError):
        tree.send(1, object())
    with pytest.raises(ConfigurationError, match="agent 7 does not exist"):
        tree.receive(7)


@pytest.mark.parametrize("rank", [5, -2])
def test_a_function_on_an_agent_is_told_that_there_is_no_such_agent(
    tree: sapwood.Cluster, rank: int
) -> None:
    """A receive from a rank that does not exist would wait for ever."""

    def receive() -> None:
        sapwood.here().receive(rank)

    def send() -> None:
        sapwood.here().send([1, rank], "x")

    for function in (receive, send):
        error = tree.submit_to(1, function).exception(PATIENCE)
        assert isinstance(error, ConfigurationError)
        assert error.what == f"agent {rank} does not exist"
        assert error.hint == "the agents are 1 to 4"


def test_the_end_of_the_cluster_ends_what_waits(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    waiting = cluster.receive_later()
    sending = cluster.send_later(1, np.zeros(1_000_000))
    cluster.close()
    for request in (waiting, sending):
        with pytest.raises(ClosedError):
            request.result(PATIENCE)
    with pytest.raises(ClosedError):
        cluster.send(1, None)
