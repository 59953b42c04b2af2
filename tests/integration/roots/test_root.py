"""Front ends that leave a root in the middle of something."""

from __future__ import annotations

import os
import signal

import pytest

import sapwood
from sapwood.environment.settings import CommSettings, Settings
from sapwood.roots.rights import FrontEndRole
from sapwood.roots.root import RootSession
from sapwood_simulation.root_here import attach_here, root_here, root_of

from .conftest import PATIENCE, Until


def test_what_has_not_left_is_taken_back_with_its_front_end(until: Until) -> None:
    settings = Settings(comm=CommSettings(failure_after=PATIENCE))
    with root_here(settings, agents=2) as address:
        cluster = attach_here(address, settings)
        root = root_of(cluster)
        assert isinstance(root, RootSession)
        agent = cluster.agents[0].pid
        os.kill(agent, signal.SIGSTOP)
        try:
            for number in range(400):
                cluster.session.ask(1, "nothing", b"x" * 60_000)
                cluster.session.send(1, number, number)
            until(lambda: len(root.of_request) == len(root.of_send) == 400)
            cluster.close()
            until(lambda: len(root.of_request) < 400)
        finally:
            os.kill(agent, signal.SIGCONT)
        until(lambda: not root.of_request)
        with attach_here(address, settings) as again:
            assert again.submit(pow, 2, 5).result(PATIENCE) == 32


def test_who_breaks_the_protocol_is_cut_off_alone() -> None:
    settings = Settings()
    with root_here(settings, agents=1) as address, attach_here(address, settings) as cluster:
        with attach_here(address, settings, FrontEndRole.USER) as bad:
            bad.session.open_stream("echo", {}, [77])
            with pytest.raises(sapwood.ClosedError, match="cut off"):
                bad.submit(pow, 2, 2).result(PATIENCE)
        assert cluster.submit(pow, 2, 2).result(PATIENCE) == 4
