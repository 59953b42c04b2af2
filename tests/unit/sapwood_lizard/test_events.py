"""Events of lizard-slayer's API: one worker, in order, with bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sapwood.core.errors import BuildError, ClosedError, InternalError, ResourceError
from sapwood_lizard import events
from sapwood_lizard.events import ApiEvent, EventChange, EventStatus, EventWorker, describe

PATIENCE = 30.0


class Doings:
    """Events that wait until the test releases them."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []
        self.done: list[Any] = []
        self.go = threading.Semaphore(0)
        self.ended = threading.Event()
        self.final = threading.Semaphore(0)
        handlers = {"note": self.note, "fail": self.fail, "bad": lambda _data: {"set": {1}}}
        self.worker = EventWorker(handlers, self.changed, self.ended.set)

    def note(self, data: Mapping[str, Any]) -> dict[str, Any]:
        assert self.go.acquire(timeout=PATIENCE)
        self.done.append(data["n"])
        return {"n": data["n"]}

    def fail(self, _data: Mapping[str, Any]) -> Any:
        raise BuildError("it does not compile", where="kernel.cu:3")

    def changed(self, event: ApiEvent) -> None:
        self.changes.append((event.id, event.status.value))
        if event.is_final:
            self.final.release()

    def shown(self, event: ApiEvent) -> dict[str, Any]:
        text = self.worker.get(event.id)
        assert text is not None
        found: dict[str, Any] = json.loads(text)
        return found

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.final.acquire(timeout=PATIENCE)


@pytest.fixture
def doings() -> Iterator[Doings]:
    made = Doings()
    yield made
    made.go.release(1000)
    made.worker.close()


@pytest.mark.row("B-API-1")
def test_events_are_done_one_after_the_other(doings: Doings) -> None:
    made = [doings.worker.submit("note", {"n": n}) for n in range(5)]
    assert doings.shown(made[-1]) == {
        "event_id": made[-1].id,
        "type": "note",
        "status": "pending",
        "result": None,
        "completion_time": 0.0,
    }
    doings.go.release(5)
    doings.wait(5)
    assert doings.done == [0, 1, 2, 3, 4]
    last = doings.shown(made[-1])
    assert (last["status"], last["result"]) == ("success", {"n": 4})
    assert last["completion_time"] > 0
    assert [each for each in doings.changes if each[0] == made[2].id] == [
        (made[2].id, "pending"),
        (made[2].id, "success"),
    ]


def test_a_failure_says_all_that_is_known_and_the_next_event_is_done(doings: Doings) -> None:
    failed, odd = doings.worker.submit("fail", {}), doings.worker.submit("bad", {})
    doings.wait(2)
    assert doings.shown(failed)["status"] == "failure"
    assert doings.shown(failed)["result"] == {
        "error": "BuildError: it does not compile (kernel.cu:3)"
    }
    assert "not JSON serializable" in doings.shown(odd)["result"]["error"]
    assert describe(ValueError("x")) == "ValueError('x')"


def test_too_many_are_refused(doings: Doings, monkeypatch: pytest.MonkeyPatch) -> None:
    first = doings.worker.submit("note", {"n": 0})
    while doings.shown(first)["status"] == "pending":
        pass
    monkeypatch.setattr(events, "MAX_WAITING", 2)
    for n in (1, 2):
        doings.worker.submit("note", {"n": n})
    with pytest.raises(ResourceError, match="2 events wait already"):
        doings.worker.submit("note", {"n": 3})
    doings.go.release(3)
    doings.wait(3)
    monkeypatch.setattr(events, "MAX_WAITING_BYTES", 100)
    doings.worker.submit("note", {"n": 4}, 1000)  # one that is large may come alone
    with pytest.raises(ResourceError):
        doings.worker.submit("note", {"n": 5}, 1)
    doings.go.release()
    doings.wait()
    doings.worker.submit("note", {"n": 6}, 99)


def test_the_oldest_are_forgotten(doings: Doings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_FINAL", 2)
    made = [doings.worker.submit("note", {"n": n}) for n in range(3)]
    doings.go.release(3)
    doings.wait(3)
    assert doings.worker.get(made[0].id) is None
    assert doings.shown(made[1])["status"] == "success"
    monkeypatch.setattr(events, "MAX_FINAL_BYTES", 1)
    doings.worker.submit("fail", {})
    doings.wait()
    assert doings.worker.get(made[2].id) is None


def test_when_it_closes_what_waits_fails(doings: Doings) -> None:
    first, second = (doings.worker.submit("note", {"n": n}) for n in range(2))
    while doings.shown(first)["status"] == "pending":
        pass
    doings.go.release()
    doings.worker.close()
    assert doings.ended.wait(PATIENCE)
    statuses = [doings.shown(each)["status"] for each in (first, second)]
    assert statuses in (["success", "failure"], ["success", "success"])
    with pytest.raises(ClosedError):
        doings.worker.submit("note", {"n": 2})


def test_when_it_finishes_what_waits_is_done(doings: Doings) -> None:
    second = [doings.worker.submit("note", {"n": n}) for n in range(2)][1]
    doings.worker.finish()
    doings.go.release(2)
    assert doings.ended.wait(PATIENCE)
    assert doings.shown(second)["status"] == "success"


def test_what_is_final_stays_final() -> None:
    event = ApiEvent("note", {}, 0)
    event.change(EventChange.FAIL, {"error": "x"})
    with pytest.raises(InternalError, match="an event got begin while failure"):
        event.change(EventChange.BEGIN)
    assert event.status is EventStatus.FAILURE
