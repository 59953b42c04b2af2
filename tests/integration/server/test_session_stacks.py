"""The stacks of a session over HTTP, with the rights of each viewer."""

from __future__ import annotations

import sys
import threading

import cloudpickle
import httpx
import pytest

import sapwood
from sapwood.security.rights import ROLES

from .conftest import PATIENCE, WebHead, until


def hangs() -> None:
    threading.Event().wait()


@pytest.fixture(autouse=True, scope="module")
def pickled_by_value() -> None:
    """Send the functions of this file as code."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.row("D-13")
def test_stacks_of_a_session_that_hangs(web: WebHead) -> None:
    path = "/api/v1/sessions/night/stacks"
    with sapwood.connect().create_session(2, name="night", on="local") as owner:
        call = owner.submit_to(2, hangs)
        with web.client(*ROLES["watcher"]) as viewer:

            def asked() -> httpx.Response:
                found = viewer.get(path)
                assert found.status_code == 200, found.text
                return found

            until(lambda: "hangs (" in asked().json()["text"])
            found = asked().json()
            assert found["text"].startswith("agent 1: idle\nagent 2: busy in hangs for ")
            assert [one["state"] for one in found["agents"]] == ["idle", "busy"]
            assert viewer.get(path, params={"timeout": 61}).status_code == 400
            assert viewer.get(path.replace("night", "day")).status_code == 404
        with web.client("connect", "observe") as blind:
            refused = blind.get(path)
            assert refused.status_code == 403
            assert "attach" in refused.text
        assert not call.done()
    web.head.sessions.end("night").result(PATIENCE)
