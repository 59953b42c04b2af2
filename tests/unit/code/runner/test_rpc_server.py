"""A server with its agent's handlers, and user code in a real runner that goes through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import sapwood
from sapwood.code.runner import rpc_messages
from sapwood.code.runner.calls import Bulk
from sapwood.code.runner.rpc_server import RpcCall, RunnerRpcServer
from sapwood.comm import values
from sapwood.comm.payload import Payload
from sapwood.core.errors import ResourceError, RunnerCrashError

if TYPE_CHECKING:
    from asyncio import Future

    from sapwood.code.runner.runner_host import JobOutcome

Handlers = dict[str, Callable[[RpcCall], None]]


@pytest.fixture
def handlers(bench: Any) -> Handlers:
    """Who answers the runner of the bench."""
    found: Handlers = {}
    bench.host.rpc_server = RunnerRpcServer(
        bench.loop, rpc_messages.RpcWelcome(3, ((1, 5),)), found
    )
    return found


def echo(call: RpcCall) -> None:
    call.answer(call.body, call.payload)


@pytest.mark.slow
def test_user_code_knows_where_it_is(bench: Any, handlers: Handlers) -> None:
    def where() -> list[Any]:
        here = sapwood.here()
        return [here.rank, list(here.agents), repr(here)]

    assert handlers == {}
    assert bench.call(where) == [3, [1, 2, 3, 4], "<AgentContext: agent 3 of 4>"]


@pytest.mark.parametrize("size", [1, 4_000, 5_000, 1_000_000])
def test_questions_and_answers_of_any_size(bench: Any, handlers: Handlers, size: int) -> None:
    def ask(size: int) -> list[Any]:
        array = np.arange(size)
        answer = sapwood.here().ask("echo", {"array": array, "text": "x" * size}).result()
        good = bool((answer["array"] == array).all()) and answer["text"] == "x" * size
        answer["array"] += 1  # it is the asker's own
        return [good, int(answer["array"][0])]

    handlers["echo"] = echo
    for _ in range(3):
        assert bench.call(ask, size) == [True, 1]
    server = bench.host.rpc_server
    bench.until(lambda: not server._untaken)
    assert not server._open


def test_answers_come_in_any_order_while_the_job_runs(bench: Any, handlers: Handlers) -> None:
    waiting: list[RpcCall] = []

    def late(call: RpcCall) -> None:
        waiting.append(call)
        if len(waiting) == 3:
            for one in reversed(waiting):
                one.answer(one.body)

    def ask() -> Any:
        requests = [sapwood.here().ask("late", number) for number in range(3)]
        first = sapwood.here().wait_any(requests)
        assert first is not None
        assert sapwood.here().wait_all(requests, timeout=60)
        return [request.result() for request in requests]

    handlers["late"] = late
    assert bench.call(ask) == [0, 1, 2]


def test_errors_come_as_what_they_are(bench: Any, handlers: Handlers) -> None:
    def refuse(call: RpcCall) -> None:
        raise ResourceError("no room")

    def ask() -> list[str]:
        found = []
        for name in ("refuse", "absent"):
            try:
                sapwood.here().ask(name).result()
            except sapwood.SapwoodError as error:
                found.append(f"{type(error).__name__}: {error.what}")
        return found

    handlers["refuse"] = refuse
    refused, unknown = bench.call(ask)
    assert refused == "ResourceError: no room"
    assert unknown == "ProtocolError: agents know no question 'absent'"


def test_a_question_can_be_taken_back(bench: Any, handlers: Handlers) -> None:
    cancelled: list[bool] = []

    def cancel() -> bool:
        cancelled.append(True)
        return True

    def hold(call: RpcCall) -> None:
        call.on_cancel = cancel

    def ask() -> list[bool]:
        request = sapwood.here().ask("hold")
        return [request.wait(0.01), request.cancel(), request.cancelled()]

    handlers["hold"] = hold
    assert bench.call(ask) == [False, True, True]
    assert cancelled == [True]


def test_the_end_of_a_call_takes_back_what_it_left_open(bench: Any, handlers: Handlers) -> None:
    cancelled: list[bool] = []

    def cancel() -> bool:
        cancelled.append(True)
        return True

    def hold(call: RpcCall) -> None:
        call.on_cancel = cancel

    def ask() -> int:
        sapwood.here().ask("hold")
        return 5

    handlers["hold"] = hold
    assert bench.call(ask) == 5
    assert cancelled == [True]
    handlers["echo"] = echo
    assert bench.call(lambda: sapwood.here().ask("echo", 7).result()) == 7


def test_the_end_of_a_runner_takes_back_what_it_asked(bench: Any, handlers: Handlers) -> None:
    cancelled: list[bool] = []
    asked: list[RpcCall] = []

    def cancel() -> bool:
        cancelled.append(True)
        return True

    def hold(call: RpcCall) -> None:
        asked.append(call)
        call.on_cancel = cancel

    def ask() -> None:
        sapwood.here().ask("hold").result()

    handlers["hold"] = hold
    future: Future[JobOutcome] = bench.submit(ask)
    bench.until(lambda: bool(asked))
    bench.host.cancel("test")
    bench.until(future.done)
    assert future.exception() is not None
    assert cancelled == [True]
    asked[0].answer(b"", Payload(b"x"))  # too late, and no harm
    handlers["echo"] = echo
    assert bench.call(lambda: sapwood.here().ask("echo", 7).result()) == 7


def test_progress_of_a_large_answer_is_told(bench: Any, handlers: Handlers) -> None:
    def large(call: RpcCall) -> None:
        call.progress(10, 20)
        call.answer(values.encode(None).body)

    def ask() -> list[int]:
        request = sapwood.here().ask("large")
        request.result()
        return list(request.progress())

    handlers["large"] = large
    assert bench.call(ask) == [20, 20]  # all of it is there at the end


def test_more_answers_than_the_socket_holds(bench: Any, handlers: Handlers) -> None:
    def ask() -> int:
        requests = [sapwood.here().ask("echo", "x" * 20_000) for _ in range(100)]
        # Nothing is read before all are sent: the agent must keep what does not fit.
        return sum(len(request.result()) for request in requests)

    handlers["echo"] = echo
    assert bench.call(ask) == 2_000_000
    assert not bench.host.rpc_server._unsent


def write_to_the_server(data: bytes) -> str:
    from sapwood.code.runner import here  # noqa: PLC0415 - in the runner

    sapwood.here()
    channel = here.runner.channel
    assert channel is not None
    channel._socket.send(data)
    sapwood.here().ask("echo", 1).result()
    return "written"


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"\xc1",
        rpc_messages.encode(["one", "echo"]),
        rpc_messages.encode(rpc_messages.RpcRequest(7, rpc_messages.CANCEL, Bulk(b"\xc1"))),
        rpc_messages.encode(rpc_messages.RpcRequest(7, rpc_messages.CANCEL, Bulk(b"\x91\x01"))),
    ],
    ids=["text", "no message", "wrong types", "no body", "no number"],
)
@pytest.mark.slow
def test_user_code_that_writes_to_the_server_ends_only_its_runner(
    bench: Any, handlers: Handlers, data: bytes
) -> None:
    handlers["echo"] = echo
    error = bench.error(write_to_the_server, data)
    assert isinstance(error, RunnerCrashError)
    assert "wrote to the connection between its runner and its agent" in error.what
    assert bench.call(pow, 2, 2) == 4
