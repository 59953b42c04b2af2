from __future__ import annotations

import pytest

from sapwood.code import transfers
from sapwood.code.transfers import NOTHING, DeviceTransfers


def test_sums_and_differences() -> None:
    one = DeviceTransfers(copies_in=1, bytes_in=10, seconds_in=0.5)
    assert one + one - one == one
    assert one
    assert not NOTHING


def test_each_call_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts:
        def __init__(self) -> None:
            for name in DeviceTransfers.__struct_fields__:
                setattr(self, name, 0)

    monkeypatch.setattr(transfers, "_devices", [])
    monkeypatch.setattr(transfers, "_reported", NOTHING)
    monkeypatch.setattr(transfers, "_past", NOTHING)
    assert transfers.since_last_call() is None
    counts = Counts()
    transfers.watch(counts)
    assert transfers.since_last_call() is None
    counts.launches = 3  # type: ignore[attr-defined]  # set by name above
    assert transfers.since_last_call() == DeviceTransfers(launches=3)
    assert transfers.since_last_call() is None
