from __future__ import annotations

import os
from typing import Any

import pytest

import sapwood
from sapwood.code.runner import rpc_messages
from sapwood.code.runner.rpc_server import RunnerRpcServer
from sapwood.core.errors import ConfigurationError


def test_outside_of_a_runner_it_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigurationError, match="functions that run on an agent"):
        sapwood.here()


@pytest.mark.slow
def test_a_fork_of_a_runner_may_not_ask(bench: Any) -> None:
    def ask() -> bytes:
        here = sapwood.here()
        near, far = os.pipe()
        if os.fork() == 0:
            try:
                here.ask("x")
            except sapwood.SapwoodError as error:
                os.write(far, error.what.encode())
            os._exit(0)
        os.wait()
        return os.read(near, 1000)

    bench.host.rpc_server = RunnerRpcServer(bench.loop, rpc_messages.RpcWelcome(1, ((1, 2),)), {})
    assert b"from which this one was forked" in bench.call(ask)


def test_open_requests_are_bounded(bench: Any) -> None:
    def ask(limit: int) -> str:
        from sapwood.code.runner import rpc_messages  # noqa: PLC0415 - the runner's, not this process'

        rpc_messages.MAX_OPEN = limit
        here = sapwood.here()
        here.ask("hold")
        here.ask("hold")
        try:
            here.ask("hold")
        except sapwood.SapwoodError as error:
            rpc_messages.MAX_OPEN = 4096
            return error.what
        return ""

    bench.host.rpc_server = RunnerRpcServer(
        bench.loop, rpc_messages.RpcWelcome(1, ((1, 2),)), {"hold": lambda _: None}
    )
    assert "more than 2 requests" in bench.call(ask, 2)
