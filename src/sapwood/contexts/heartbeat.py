"""Heartbeat monitoring: does a process that is asked for heartbeats still answer?"""


class HeartbeatMonitor:
    """Counts the heartbeats that a process missed.

    The monitor counts looks instead of seconds: a process that was stopped itself looks only once
    when it continues, so it does not blame the other for the time in between.

    Example:
        >>> monitor = HeartbeatMonitor()
        >>> monitor.look(), monitor.look(), monitor.missed
        (True, False, 1)
        >>> monitor.heard()
        >>> monitor.look(), monitor.missed
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
