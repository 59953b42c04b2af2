from sapwood.contexts.heartbeat import HeartbeatMonitor


def test_who_answers_each_time_misses_nothing() -> None:
    monitor = HeartbeatMonitor()
    for _ in range(5):
        assert monitor.look()
        assert monitor.missed == 0
        monitor.heard()


def test_who_does_not_answer_is_asked_once_and_misses_more_and_more() -> None:
    monitor = HeartbeatMonitor()
    asked = [monitor.look() for _ in range(4)]
    assert asked == [True, False, False, False]
    assert monitor.missed == 3


def test_who_answers_late_begins_anew() -> None:
    monitor = HeartbeatMonitor()
    for _ in range(4):
        monitor.look()
    monitor.heard()
    assert monitor.missed == 0
    assert monitor.look()
    assert monitor.missed == 0
