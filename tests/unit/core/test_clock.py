import pytest

from sapwood.core.clock import MonotonicClock, VirtualClock


def test_the_machines_clock_does_not_go_backwards() -> None:
    clock = MonotonicClock()
    assert clock.now() <= clock.now()


def test_a_virtual_clock_moves_only_when_told_to() -> None:
    clock = VirtualClock(5.0)
    assert clock.now() == clock.now() == 5.0
    clock.advance(0.5)
    assert clock.now() == 5.5
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
