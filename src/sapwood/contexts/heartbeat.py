"""Whether a process that is asked for signs of life still gives any."""


class HeartbeatMonitor:
    """Counts how often a sign of life was waited for in vain.

    It counts looks and not seconds: who was stopped itself looks once when it goes on, and does not
    blame the other for the time in between.

    Example:
        >>> pulse = HeartbeatMonitor()
        >>> pulse.look(), pulse.look(), pulse.missed
        (True, False, 1)
        >>> pulse.heard()
        >>> pulse.look(), pulse.missed
        (True, 0)
    """

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks = 0

    @property
    def missed(self) -> int:
        """How many looks in a row found that the request before them was not answered."""
        return max(0, self._looks - 1)

    def look(self) -> bool:
        """Note a look; return whether a sign of life is to be asked for."""
        self._looks += 1
        return self._looks == 1

    def heard(self) -> None:
        """Note a sign of life."""
        self._looks = 0
