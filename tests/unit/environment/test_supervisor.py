from collections.abc import Callable
from typing import Any

import pytest

from sapwood.comm.reactor import Reactor
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import ConfigurationError, InputError
from sapwood.environment.component import (
    Component,
    ComponentAction,
    ComponentContext,
    ComponentEvent,
)
from sapwood.environment.lifecycle import State
from sapwood.environment.settings import ClusterSettings, RestartSettings, Settings
from sapwood.environment.supervisor import (
    ALL_READY,
    ASKED,
    CHECK_INTERVAL,
    GIVEN_UP,
    RESTART_PLANNED,
    STATE_CHANGED,
    Supervisor,
)

SETTINGS = Settings(
    restart=RestartSettings(limit=3, window=60, backoff=1, backoff_max=3),
    cluster=ClusterSettings(ready_timeout=20),
)


class Part:
    """A component whose state the test decides; it writes what happens into a journal."""

    def __init__(self, name: str, journal: list[str] | None = None) -> None:
        self.name = name
        self.now = State.READY
        self.journal = [] if journal is None else journal
        self.heard: list[ComponentEvent] = []
        self.error: dict[str, Exception] = {}
        self.context: ComponentContext | None = None
        self.on_event: Callable[[ComponentEvent], None] | None = None

    def start(self, context: ComponentContext) -> None:
        self.context = context
        self._act("start")

    def check(self) -> State:
        self._act("check")
        return self.now

    def receive(self, event: ComponentEvent) -> None:
        self.heard.append(event)
        if self.on_event is not None:
            self.on_event(event)

    def stop(self) -> None:
        self._act("stop")

    def publish(self, topic: str, value: Any) -> None:
        assert self.context is not None
        self.context.publish(topic, value)

    def _act(self, what: str) -> None:
        if what != "check":
            self.journal.append(f"{what} {self.name}")
        if what in self.error:
            raise self.error[what]


def run_for(supervisor: Supervisor, clock: VirtualClock, seconds: float) -> None:
    """Poll whenever the supervisor wants to be polled, until the time has passed."""
    end = clock.now() + seconds
    wait = supervisor.poll()
    while wait is not None and clock.now() + wait <= end:
        clock.advance(wait)
        wait = supervisor.poll()


def make(*parts: Part) -> tuple[Supervisor, VirtualClock, list[ComponentEvent]]:
    clock = VirtualClock()
    components: list[Component] = list(parts)
    supervisor = Supervisor(components, SETTINGS, clock)
    events: list[ComponentEvent] = []
    supervisor.subscribe(events.append)
    return supervisor, clock, events


def state_of(supervisor: Supervisor, name: str) -> State:
    return supervisor.states[name]


def values(events: list[ComponentEvent], topic: str) -> list[Any]:
    return [event.value for event in events if event.topic == topic]


def test_components_start_in_order_and_stop_in_reverse() -> None:
    journal: list[str] = []
    supervisor, _clock, _events = make(Part("a", journal), Part("b", journal))
    with supervisor:
        assert set(supervisor.states.values()) == {State.READY}
    assert journal == ["start a", "start b", "stop b", "stop a"]
    assert set(supervisor.states.values()) == {State.STOPPED}
    assert supervisor.poll() is None


def test_readiness_is_told_once_with_its_time() -> None:
    slow, fast = Part("slow"), Part("fast")
    slow.now = State.STARTING
    supervisor, clock, events = make(slow, fast)
    supervisor.start()
    run_for(supervisor, clock, 2.0)
    assert values(events, ALL_READY) == []
    slow.now = State.READY
    run_for(supervisor, clock, 5.0)
    (seconds,) = values(events, ALL_READY)
    assert seconds == pytest.approx(2.0, abs=0.05)
    assert [event.topic for event in fast.heard if event.topic == ALL_READY] == [ALL_READY]
    assert ALL_READY in [event.topic for event in slow.heard]


def test_a_component_that_dies_is_restarted_after_a_wait_and_the_others_are_told() -> None:
    journal: list[str] = []
    weak, other = Part("weak", journal), Part("other")
    supervisor, clock, events = make(weak, other)
    supervisor.start()
    weak.now = State.FAILED
    supervisor.poll()
    assert state_of(supervisor, "weak") is State.FAILED
    assert values(events, RESTART_PLANNED) == [1]
    weak.now = State.READY
    clock.advance(0.9)
    supervisor.poll()
    assert state_of(supervisor, "weak") is State.FAILED
    clock.advance(0.1)
    supervisor.poll()
    assert state_of(supervisor, "weak") is State.READY
    assert journal == ["start weak", "stop weak", "start weak"]
    told = [step.after for step in values(other.heard, STATE_CHANGED)]
    assert told[-3:] == [State.FAILED, State.STARTING, State.READY]
    assert values(events, ALL_READY) == [0.0, 1.0]


def test_waits_grow_and_after_the_limit_it_is_given_up() -> None:
    weak, other = Part("weak"), Part("other")
    weak.error["check"] = RuntimeError("broken")
    supervisor, clock, events = make(weak, other)
    supervisor.start()
    run_for(supervisor, clock, 30.0)
    assert values(events, RESTART_PLANNED) == [1, 2, 3]
    assert values(events, GIVEN_UP) == ["RuntimeError: broken"]
    assert supervisor.states == {"weak": State.STOPPED, "other": State.READY}
    assert "failed -> stopped: given up" in supervisor.story("weak")
    assert GIVEN_UP in [event.topic for event in other.heard]


def test_failures_far_apart_are_never_given_up() -> None:
    weak = Part("weak")
    supervisor, clock, events = make(weak)
    supervisor.start()
    for _ in range(10):
        weak.now = State.FAILED
        supervisor.poll()
        weak.now = State.READY
        run_for(supervisor, clock, 61.0)
    assert values(events, RESTART_PLANNED) == [1] * 10
    assert state_of(supervisor, "weak") is State.READY


def test_a_component_that_cannot_start_is_a_failed_one() -> None:
    weak = Part("weak")
    weak.error["start"] = OSError("port taken")
    supervisor, clock, events = make(weak)
    supervisor.start()
    assert values(events, STATE_CHANGED)[-1].reason == "OSError: port taken"
    del weak.error["start"]
    run_for(supervisor, clock, 2.0)
    assert state_of(supervisor, "weak") is State.READY


def test_a_component_that_never_gets_ready_is_a_failed_one() -> None:
    weak = Part("weak")
    weak.now = State.STARTING
    supervisor, clock, _events = make(weak)
    supervisor.start()
    run_for(supervisor, clock, 19.9)
    assert state_of(supervisor, "weak") is State.STARTING
    run_for(supervisor, clock, 0.2)
    assert "not ready within 20 s" in supervisor.story("weak")


def test_a_component_that_contradicts_the_table_is_a_failed_one() -> None:
    weak = Part("weak")
    supervisor, _clock, events = make(weak)
    supervisor.start()
    weak.now = State.STARTING
    supervisor.poll()
    assert state_of(supervisor, "weak") is State.FAILED
    assert "was ready and says it is starting" in values(events, STATE_CHANGED)[-1].reason


def test_degraded_and_back() -> None:
    part = Part("part")
    supervisor, _clock, events = make(part)
    supervisor.start()
    for state in (State.DEGRADED, State.READY):
        part.now = state
        assert supervisor.poll() == CHECK_INTERVAL
        assert state_of(supervisor, "part") is state
    assert values(events, RESTART_PLANNED) == []


def test_what_a_component_publishes_reaches_the_others_in_order() -> None:
    one, two, three = Part("one"), Part("two"), Part("three")
    supervisor, _clock, events = make(one, two, three)
    supervisor.start()

    def answer(event: ComponentEvent) -> None:
        if event.topic == "question":
            two.publish("answer", 42)

    two.on_event = answer
    one.publish("question", None)
    heard = [(event.source, event.topic) for event in three.heard[-2:]]
    assert heard == [("one", "question"), ("two", "answer")]
    assert [event.topic for event in events[-2:]] == ["question", "answer"]
    assert "question" not in [event.topic for event in one.heard]
    assert one.heard[-1].value == 42


def test_a_listener_that_fails_does_not_silence_the_others() -> None:
    bad, good = Part("bad"), Part("good")
    supervisor, _clock, events = make(bad, good)
    supervisor.start()

    def refuse(_event: ComponentEvent) -> None:
        raise RuntimeError("deaf")

    bad.on_event = refuse
    good.publish("topic", 1)
    assert events[-1].topic == "topic"
    assert state_of(supervisor, "bad") is State.READY


def test_nobody_is_told_before_the_start_or_after_the_end() -> None:
    first, last = Part("first"), Part("last")
    supervisor, _clock, _events = make(first, last)
    with supervisor:
        assert not any(
            event.source == "first" and event.topic == STATE_CHANGED for event in last.heard
        )
        count = len(last.heard)
    # `last` stops first: it hears nothing of the end of `first`.
    assert len(last.heard) == count


def test_a_subscription_ends() -> None:
    part = Part("part")
    supervisor, _clock, _events = make(part)
    heard: list[ComponentEvent] = []
    end = supervisor.subscribe(heard.append)
    end()
    supervisor.start()
    assert heard == []


def test_stopping_goes_on_past_a_component_that_refuses() -> None:
    good, bad = Part("good"), Part("bad")
    bad.error["stop"] = RuntimeError("no")
    supervisor, _clock, _events = make(good, bad)
    supervisor.start()
    assert supervisor.stop() == ("bad",)
    assert set(supervisor.states.values()) == {State.STOPPED}
    assert good.journal[-1] == "stop good"
    assert supervisor.stop() == ()


def test_stopping_before_starting() -> None:
    supervisor, _clock, _events = make(Part("part"))
    assert supervisor.stop() == ()
    assert supervisor.states == {"part": State.STOPPED}


def test_a_planned_restart_does_not_outlive_the_stop() -> None:
    weak = Part("weak")
    weak.error["check"] = RuntimeError("broken")
    supervisor, clock, _events = make(weak)
    supervisor.start()
    supervisor.stop()
    clock.advance(100)
    assert supervisor.poll() is None
    assert supervisor.states == {"weak": State.STOPPED}


def test_names_are_unique() -> None:
    with pytest.raises(InputError, match="same name"):
        make(Part("a"), Part("a"))


def test_a_user_stops_and_starts_a_component() -> None:
    journal: list[str] = []
    part, other = Part("part", journal), Part("other")
    supervisor, clock, events = make(part, other)
    supervisor.start()
    view = supervisor.act("part", ComponentAction.STOP)
    assert (view.state, view.reason, view.works) == ("stopped", ASKED, False)
    assert supervisor.act("part", ComponentAction.STOP).state == "stopped"
    clock.advance(3.0)
    assert supervisor.poll() == CHECK_INTERVAL
    assert supervisor.act("part", ComponentAction.START).works
    assert supervisor.act("part", ComponentAction.START).works
    assert supervisor.act("part", ComponentAction.RESTART).works
    assert journal == ["start part", "stop part", "start part", "stop part", "start part"]
    told = [step.after for step in values(other.heard, STATE_CHANGED)]
    assert told.count(State.STOPPED) == 2
    assert values(events, ALL_READY) == [0.0, 3.0, 0.0]
    assert values(events, RESTART_PLANNED) == []


def test_one_that_was_given_up_gets_its_whole_budget_again() -> None:
    weak = Part("weak")
    weak.error["check"] = RuntimeError("broken")
    supervisor, clock, events = make(weak)
    supervisor.start()
    run_for(supervisor, clock, 30.0)
    view = supervisor.view("weak")
    assert (view.state, view.reason) == ("stopped", "given up: RuntimeError: broken")
    assert view.restarts == 3
    assert supervisor.act("weak", ComponentAction.START).state == "failed"
    del weak.error["check"]
    run_for(supervisor, clock, 2.0)
    assert state_of(supervisor, "weak") is State.READY
    assert values(events, RESTART_PLANNED) == [1, 2, 3, 1]


def test_stopping_one_that_is_dead_ends_its_restarts() -> None:
    weak = Part("weak")
    weak.error["check"] = RuntimeError("broken")
    supervisor, clock, _events = make(weak)
    supervisor.start()
    assert supervisor.act("weak", ComponentAction.STOP).state == "stopped"
    run_for(supervisor, clock, 30.0)
    assert state_of(supervisor, "weak") is State.STOPPED


def test_one_that_does_not_stop_says_so_and_can_be_started() -> None:
    part = Part("part")
    part.error["stop"] = OSError("busy")
    supervisor, _clock, _events = make(part)
    supervisor.start()
    view = supervisor.act("part", ComponentAction.STOP)
    assert (view.state, view.reason) == ("stopped", "OSError: busy")
    assert supervisor.act("part", ComponentAction.START).works


def test_what_may_not_be_done_says_what_to_do_instead() -> None:
    refusals = {"part": {ComponentAction.STOP: "turn it off and on"}}
    supervisor = Supervisor([Part("part")], SETTINGS, VirtualClock(), refusals)
    supervisor.start()
    with pytest.raises(ConfigurationError, match="'part' cannot be stopped") as refused:
        supervisor.act("part", ComponentAction.STOP)
    assert refused.value.hint == "turn it off and on"
    assert supervisor.act("part", ComponentAction.RESTART).works
    with pytest.raises(InputError, match="unknown component 'prat'") as unknown:
        supervisor.act("prat", ComponentAction.START)
    assert unknown.value.hint == "did you mean 'part'?"


def test_who_waits_for_a_start_is_told_once_how_it_ended() -> None:
    slow = Part("slow")
    slow.now = State.STARTING
    supervisor, clock, _events = make(slow)
    supervisor.start()
    told: list[str] = []
    supervisor.when_settled("slow", lambda view: told.append(view.state))
    run_for(supervisor, clock, 1.0)
    assert told == []
    slow.now = State.READY
    run_for(supervisor, clock, 1.0)
    slow.now = State.DEGRADED
    run_for(supervisor, clock, 1.0)
    assert told == ["ready"]
    supervisor.when_settled("slow", lambda view: told.append(view.state))
    assert told == ["ready", "degraded"]


def test_readiness_is_told_again_with_the_time_since_it_was_lost() -> None:
    part = Part("part")
    supervisor, clock, events = make(part)
    supervisor.start(clock.now() - 2.0)
    part.now = State.DEGRADED
    run_for(supervisor, clock, 4.0)
    part.now = State.READY
    run_for(supervisor, clock, 1.0)
    first, second = values(events, ALL_READY)
    assert first == 2.0
    assert second == pytest.approx(4.0, abs=CHECK_INTERVAL)


def test_the_processes_of_a_component_are_its_own_until_it_stops() -> None:
    one, two = Part("one"), Part("two")
    supervisor, _clock, _events = make(one, two)
    supervisor.start()
    for part, pid in ((one, 11), (one, 12), (two, 21)):
        assert part.context is not None
        part.context.own(pid)
    assert supervisor.processes == {11, 12, 21}
    supervisor.act("one", ComponentAction.STOP)
    assert supervisor.processes == {21}


def test_on_a_loop_it_looks_by_itself() -> None:
    loop = Reactor()
    slow = Part("slow")
    slow.now = State.STARTING
    supervisor = Supervisor([slow], SETTINGS)
    supervisor.subscribe(lambda event: loop.stop() if event.topic == ALL_READY else None)
    supervisor.start()
    supervisor.attend(loop)
    loop.call_later(0.05, setattr, slow, "now", State.READY)
    watchdog = loop.call_later(20.0, loop.stop)
    loop.run()
    watchdog.cancel()
    assert state_of(supervisor, "slow") is State.READY
    supervisor.stop()
    loop.call_later(0.0, loop.stop)
    loop.run()
    assert state_of(supervisor, "slow") is State.STOPPED
    loop.close()
