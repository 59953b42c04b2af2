"""What calls moved between this process and its device, for the statistics of runs."""

from typing import Any, Final

import msgspec


class DeviceTransfers(msgspec.Struct, frozen=True):
    """Copies and launches on devices, in a call or in many; times in seconds.

    Attributes:
        copies_in: Copies from the host to the device.
        bytes_in: Their bytes.
        seconds_in: Their time.
        copies_out: Copies from the device to the host.
        bytes_out: Their bytes.
        seconds_out: Their time.
        reused: Arrays that were on the device already.
        launches: Kernels that were launched.
        launch_seconds: Their time.
    """

    copies_in: int = 0
    bytes_in: int = 0
    seconds_in: float = 0.0
    copies_out: int = 0
    bytes_out: int = 0
    seconds_out: float = 0.0
    reused: int = 0
    launches: int = 0
    launch_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Time of copies and launches."""
        return self.seconds_in + self.seconds_out + self.launch_seconds

    def __add__(self, other: "DeviceTransfers") -> "DeviceTransfers":
        return DeviceTransfers(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))

    def __sub__(self, other: "DeviceTransfers") -> "DeviceTransfers":
        return DeviceTransfers(*(a - b for a, b in zip(_values(self), _values(other), strict=True)))

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = DeviceTransfers()
"""No copies."""

any_watched: Final = [False]
"""Whether there was ever a device, so that there may be something to ask for."""

_devices: list[Any] = []
_reported = NOTHING
_past = NOTHING


def watch(statistics: Any) -> None:
    """Have the copies of a device counted from now on.

    Args:
        statistics: An object with the attributes of :class:`DeviceTransfers`, which change.
    """
    any_watched[0] = True
    _devices.append(statistics)


def since_last_call() -> DeviceTransfers | None:
    """Return what the devices of this process did since this was asked last; None for nothing."""
    global _reported  # noqa: PLW0603 - one process, one runner
    if not _devices and (_past is _reported or _past == _reported):
        return None
    total = _past
    for each in _devices:
        total += _now(each)
    fresh = total - _reported
    _reported = total
    return fresh or None


def forget(statistics: Any) -> None:
    """Count a device no more: what it did so far stays counted, and it is not looked at again."""
    global _past  # noqa: PLW0603 - as above
    _devices.remove(statistics)
    _past += _now(statistics)


def _now(statistics: Any) -> DeviceTransfers:
    return DeviceTransfers(
        *(getattr(statistics, name) for name in DeviceTransfers.__struct_fields__)
    )


def _values(transfers: DeviceTransfers) -> tuple[Any, ...]:
    return msgspec.structs.astuple(transfers)
