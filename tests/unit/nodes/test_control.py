"""The reasons for missing machines are reported although a peer knocks again and again."""

from __future__ import annotations

from sapwood.nodes.refusals import RefusedMachine, RefusedMachines


def test_who_comes_again_and_again_pushes_out_nobody() -> None:
    found = RefusedMachines(limit=3)
    found.add(RefusedMachine(time=1.0, name="n7", address="10.0.0.7:40000", reason="used before"))
    for number in range(1000):
        found.add(RefusedMachine(time=2.0 + number, address=f"10.0.0.9:{number}", reason="no TLS"))
    first, second = found
    assert (first.name, first.times) == ("n7", 1)
    assert (second.times, second.time, second.address) == (1000, 1001.0, "10.0.0.9:999")


def test_the_last_ones_are_kept() -> None:
    found = RefusedMachines(limit=3)
    for number in range(10):
        found.add(RefusedMachine(time=number, address=f"10.0.0.{number}:1", reason="no TLS"))
    assert [one.time for one in found] == [7, 8, 9]
