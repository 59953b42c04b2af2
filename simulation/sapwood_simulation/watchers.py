"""Who is told that a process has ended, as the kernel tells it in production."""

from __future__ import annotations

from collections.abc import Callable, Container

Told = Callable[[], None]


class Watchers:
    """The places that watch the processes of others."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[int, Told]]] = {}
        self._unheard: dict[int, list[Told]] = {}

    def add(self, rank: int, pid: int, ended: Told) -> Told:
        """Have a place told of the end of a process; return what takes that back."""
        entry = (rank, ended)
        watchers = self._of.setdefault(pid, [])
        watchers.append(entry)
        return lambda: watchers.remove(entry) if entry in watchers else None

    def forget(self, rank: int) -> None:
        """A place ends, and hears of nothing more."""
        self._unheard.pop(rank, None)

    def ended(self, pid: int, living: Container[int], paused: Container[int]) -> None:
        """Tell those who live; who is stopped hears of it later."""
        for watcher, told in self._of.pop(pid, []):
            if watcher in paused:
                self._unheard.setdefault(watcher, []).append(told)
            elif watcher in living:
                told()

    def resumed(self, rank: int) -> None:
        """A place goes on: tell it what it has missed."""
        for told in self._unheard.pop(rank, []):
            told()
