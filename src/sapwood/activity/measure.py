"""Measures calls as they happen, for the statistics of a run."""

import msgspec

from sapwood.activity.agent_metrics import AgentMetrics
from sapwood.activity.durations import Durations
from sapwood.activity.statistics import FunctionStatistics, summed_up
from sapwood.code.transfers import DeviceTransfers


class PassedCall(msgspec.Struct, frozen=True, gc=False):
    """A call that passed: when it was asked for and answered, what the runner took, its bytes."""

    asked: float
    answered: float
    seconds: float
    bytes_in: int
    bytes_out: int


class FunctionMeter:
    """Counts and times the calls of one function.

    Args:
        name: The function.
        all_calls: Counts the calls of all functions.
    """

    def __init__(self, name: str, all_calls: AgentMetrics | None = None) -> None:
        self.name = name
        self._all = all_calls or AgentMetrics()
        self.calls = 0
        self.errors = 0
        self.total = 0.0
        self.maximum = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.device_seconds = 0.0
        self._durations = Durations()

    def succeeded(
        self,
        seconds: float,
        bytes_in: int,
        bytes_out: int,
        transfers: DeviceTransfers | None = None,
    ) -> None:
        """Note a call that returned."""
        self.calls += 1
        self.total += seconds
        self.maximum = max(self.maximum, seconds)
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self._durations.add(seconds)
        self._all.succeeded(seconds, bytes_in, bytes_out)
        if transfers is not None:
            self.device_seconds += transfers.seconds

    def failed(self) -> None:
        """Note a call that did not."""
        self.calls += 1
        self.errors += 1
        self._all.failed()

    def statistics(self) -> FunctionStatistics:
        """Return the metrics so far."""
        return summed_up(
            FunctionStatistics(
                name=self.name,
                calls=self.calls,
                errors=self.errors,
                total=self.total,
                maximum=self.maximum,
                bytes_in=self.bytes_in,
                bytes_out=self.bytes_out,
                device_seconds=self.device_seconds,
                durations=self._durations.buckets,
            )
        )
