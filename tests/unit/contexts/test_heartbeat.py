from sapwood.contexts.heartbeat import HeartbeatMonitor


def test_who_answers_each_time_misses_nothing() -> None:
    pulse = HeartbeatMonitor()
    for _ in range(5):
        assert pulse.look()
        assert pulse.missed == 0
        pulse.heard()


def test_who_does_not_answer_is_asked_once_and_misses_more_and_more() -> None:
    pulse = HeartbeatMonitor()
    asked = [pulse.look() for _ in range(4)]
    assert asked == [True, False, False, False]
    assert pulse.missed == 3


def test_who_answers_late_begins_anew() -> None:
    pulse = HeartbeatMonitor()
    for _ in range(4):
        pulse.look()
    pulse.heard()
    assert pulse.missed == 0
    assert pulse.look()
    assert pulse.missed == 0
