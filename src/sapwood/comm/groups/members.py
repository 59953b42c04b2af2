"""What one place does as a member of groups: its calls under way, and who waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.loop import Timer
from sapwood.comm.messages.groups import (
    LEAVE,
    MAX_NAME,
    MAX_ROUNDS,
    NO_GROUP,
    GroupNumber,
    Key,
)
from sapwood.comm.payload import Payload
from sapwood.core.errors import ClosedError, ConfigurationError, GroupError, SapwoodError
from sapwood.core.failures import fail, failing
from sapwood.core.topology import ROOT

Failed = Callable[[SapwoodError], None]


class Waiter:
    """A member that waits for the end of something, and its deadline."""

    __slots__ = ("done", "failed", "timer")

    def __init__(self, done: Callable[..., None], failed: Failed) -> None:
        self.done = done
        self.failed = failed
        self.timer: Timer | None = None

    def stop(self) -> None:
        """The end is here: no time-out any more."""
        if self.timer is not None:
            self.timer.cancel()

    def end(self, doing: str, *result: Any) -> None:
        """Pass the result on; an unexpected exception of ``done`` is the waiter's error."""
        self.stop()
        with failing(doing, self.failed):
            self.done(*result)

    def fail(self, error: SapwoodError) -> None:
        """Pass an error on; never raises, so that others are failed, too."""
        self.stop()
        fail("a member of a group", self.failed, error)


class JoinedGroup:
    """A group that this place has entered and not left.

    Attributes:
        key: Its members and its name.
        last: The last round that this place has called.
        waiting: Waiting members by round.
        error: Why the group has ended, if it has.
    """

    __slots__ = ("error", "key", "last", "waiting")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.last = 0
        self.waiting: dict[int, Waiter] = {}
        self.error: SapwoodError | None = None


class GroupMemberships:
    """The memberships of one place.

    Args:
        rank: The place.
        post: Gives its node an event.
        later: Calls a function after some seconds.
    """

    def __init__(
        self,
        rank: int,
        post: Callable[[ev.Event], None],
        later: Callable[..., Timer],
    ) -> None:
        self._rank = rank
        self._post = post
        self._later = later
        self._entering: dict[Key, Waiter] = {}
        self._groups: dict[GroupNumber, JoinedGroup] = {}
        self.handlers: dict[type[ev.Effect], Callable[[Any], None]] = {
            gev.GroupEntered: self._entered,
            gev.GroupFinished: self._finished,
            gev.GroupBroken: self._broken,
            gev.Discarded: _discarded,
        }
        self.failure_handlers: dict[type[ev.Effect], Callable[[Any, SapwoodError], None]] = {
            gev.GroupEntered: self._not_entered,
            gev.GroupFinished: self._not_finished,
            gev.GroupBroken: self._fail_members,
        }

    def enter(
        self,
        key: Key,
        timeout: float | None,
        done: Callable[[GroupNumber], None],
        failed: Failed,
    ) -> None:
        """Enter a group; ``done`` gets its number when all members have."""
        size = len(key[1].encode(errors="surrogatepass"))
        if size > MAX_NAME:
            failed(ConfigurationError(f"the name of a group has {size} bytes, over {MAX_NAME}"))
            return
        if key in self._entering:
            failed(
                GroupError(
                    f"rank {self._rank} is entering this group already",
                    hint="give groups of the same members different names",
                )
            )
            return
        seconds = "" if timeout is None else f"{timeout:g} s"  # first: it may be no number
        waiter = self._entering[key] = Waiter(done, failed)
        if timeout is not None:
            what = f"member {self._rank} waited {seconds} for all to enter the group"
            waiter.timer = self._later(timeout, self._give_up, key, what)
        self._post(gev.EnterGroup(*key))

    def call(
        self,
        event: gev.CallGroup,
        timeout: float | None,
        done: Callable[[bytes, Payload | None], None],
        failed: Failed,
    ) -> None:
        """Take part in a round; ``done`` gets this member's result."""
        group = self._groups.get(event.group)
        error: SapwoodError | None = None
        if group is None:
            error = GroupError("the group was left before")
        elif group.error is not None:
            error = group.error
        elif event.round != group.last + 1 or len(group.waiting) >= MAX_ROUNDS - 1:
            error = GroupError(
                f"round {event.round} of a group was called after round {group.last}, "
                f"with {len(group.waiting)} rounds under way"
            )
        if group is None or error is not None:
            _discarded(event)
            failed(error or GroupError("the group is gone"))
            return
        seconds = "" if timeout is None else f"{timeout:g} s"  # first: it may be no number
        group.last = event.round
        waiter = group.waiting[event.round] = Waiter(done, failed)
        if timeout is not None:
            what = (
                f"member {self._rank} waited {seconds} in {event.call} "
                f"(round {event.round} of the group)"
            )
            waiter.timer = self._later(timeout, self._time_out, event.group, event.round, what)
        self._post(event)

    def leave(self, number: GroupNumber) -> None:
        """Take part in no further round; the others hear of it if they call one."""
        group = self._groups.pop(number, None)
        if group is None:
            return
        waiters, group.waiting = list(group.waiting.values()), {}
        if group.error is None:
            call = gev.CallGroup(number, group.last + 1, LEAVE, group.last, b"", None)
            self._post(call)
        for waiter in waiters:
            waiter.fail(ClosedError("the group was left"))

    def give_up(self, key: Key) -> None:
        """Wait no more for others to enter a group."""
        self._give_up(key, f"member {self._rank} gave up before all had entered the group")

    def abandon(self, reason: SapwoodError) -> None:
        """Fail all that is under way: this place is ending."""
        waiters = [*self._entering.values()]
        self._entering.clear()
        for group in self._groups.values():
            group.error = reason
            waiters += group.waiting.values()
            group.waiting.clear()
        for waiter in waiters:
            waiter.fail(reason)

    def _give_up(self, key: Key, what: str) -> None:
        if key in self._entering:
            self._post(gev.BreakGroup(NO_GROUP, *key, GroupError(what).to_record(), 1))

    def _time_out(self, number: GroupNumber, round_number: int, what: str) -> None:
        group = self._groups.get(number)
        if group is not None and round_number in group.waiting:
            error = GroupError(what, hint="give it more time with timeout=…").to_record()
            self._post(gev.BreakGroup(number, *group.key, error, round_number))

    def _entered(self, effect: gev.GroupEntered) -> None:
        key = (effect.members, effect.name)
        waiter = self._entering.pop(key, None)
        self._groups[effect.group] = JoinedGroup(key)
        if waiter is None:
            self.leave(effect.group)
            return
        waiter.end("entering a group", effect.group)

    def _finished(self, effect: gev.GroupFinished) -> None:
        group = self._groups.get(effect.group)
        payload = effect.payload
        if payload is not None and payload.ref is not None and self._rank != ROOT:
            try:
                payload.keep()  # whoever made it may go before it is read, or wanted by others
            except SapwoodError:
                self._post(gev.MissResult(effect.group, effect.round))
                return
            payload = payload.lent()
        waiter = group.waiting.pop(effect.round, None) if group is not None else None
        if waiter is not None:
            waiter.end("a round of a group", effect.body, payload)

    def _not_entered(self, effect: gev.GroupEntered, error: SapwoodError) -> None:
        """Fail what waited for a group whose effect raised an unexpected exception."""
        waiter = self._entering.pop((effect.members, effect.name), None)
        if waiter is not None:
            waiter.fail(error)

    def _not_finished(self, effect: gev.GroupFinished, error: SapwoodError) -> None:
        """Fail the round whose effect raised an unexpected exception."""
        group = self._groups.get(effect.group)
        waiter = group.waiting.pop(effect.round, None) if group is not None else None
        if waiter is not None:
            waiter.fail(error)

    def _broken(self, effect: gev.GroupBroken) -> None:
        self._fail_members(effect, SapwoodError.from_record(effect.error))

    def _fail_members(self, effect: gev.GroupBroken, error: SapwoodError) -> None:
        if effect.group == NO_GROUP:
            waiter = self._entering.pop((effect.members, effect.name), None)
            waiters = [waiter] if waiter is not None else []
        else:
            group = self._groups.get(effect.group)
            if group is None:
                return
            group.error = error
            waiters = list(group.waiting.values())
            group.waiting.clear()
        for waiter in waiters:
            waiter.fail(error)


def _discarded(effect: gev.Discarded | gev.CallGroup) -> None:
    payload = effect.payload
    if payload is not None and payload.owner is not None:
        payload.owner.close()
        payload.owner = None
