"""Commands of Dask's workers, without Dask."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from sapwood.contexts.launchers import dask_holder
from sapwood.contexts.launchers.dask_holder import LOOKS, SapwoodDaskCommand
from sapwood.contexts.launchers.ray_holder import CHUNK

TIMEOUT = 20.0


class Looks:
    """Passes the time between two looks of an actor when the test says so."""

    def __init__(self) -> None:
        self._let = asyncio.Semaphore(0)
        self._began = asyncio.Semaphore(0)

    async def sleep(self, _seconds: float) -> None:
        self._began.release()
        await self._let.acquire()

    async def pass_one(self) -> None:
        """Let it look, and wait until it waits for the next time."""
        self._let.release()
        await asyncio.wait_for(self._began.acquire(), TIMEOUT)

    async def begin(self) -> None:
        """Wait until it waits for the first time."""
        await asyncio.wait_for(self._began.acquire(), TIMEOUT)

    def pass_last(self) -> None:
        """Let it look once more."""
        self._let.release()


def test_a_command_outlives_a_worker_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """User code that holds the interpreter for long keeps signs of life waiting, too."""

    async def live() -> None:
        looks = Looks()
        monkeypatch.setattr(asyncio, "sleep", looks.sleep)
        clock = itertools.count(0.0, 1000.0)
        monkeypatch.setattr(dask_holder, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        command = SapwoodDaskCommand("cat", CHUNK, 15.0, LOOKS)
        await command.start()
        await looks.begin()
        for _ in range(2 * LOOKS):
            await looks.pass_one()  # the first look after it stood still
            await command.beat()
        assert await command.write(b"still here\n")
        assert await command.read(1) == b"still here\n"
        for _ in range(LOOKS):
            await looks.pass_one()
        looks.pass_last()
        assert await asyncio.wait_for(command.wait(), TIMEOUT) == 0

    asyncio.run(live())
