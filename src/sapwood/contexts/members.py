"""What a zygote knows of the processes that it forked, and of the trees that they belong to."""

import contextlib
import socket

from sapwood.contexts import orders
from sapwood.contexts.plan import Assembled

FIRST_FD = 3
"""First descriptor that is not stdin, stdout or stderr."""

LAST_FD = 2**31 - 1
"""No descriptor is above this one; one system call closes a range of any length."""


class Tree:
    """A tree whose processes this zygote forks: who orders them, and what they get."""

    __slots__ = ("configuration", "control", "folder", "over")

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.configuration = b""
        self.folder = ""
        self.over = False

    def report(self, report: orders.Report) -> None:
        """Tell the front end, if it is still there."""
        with contextlib.suppress(OSError):
            self.control.send(orders.encode(report))

    def remove_folder(self) -> None:
        """Remove its folder, if it is still there."""
        if self.folder:
            import shutil  # noqa: PLC0415 - it imports all compressors, and is needed at the end

            shutil.rmtree(self.folder, ignore_errors=True)


class Draft:
    """A process before its fork: what it will run is assembled, on pages that all children share.

    Attributes:
        ours: The zygote's end of the connection with it.
        theirs: Its own end.
        assembled: What it will do, and what it has open.
        strange: Ranges of descriptors, each from the first to before the last, that it closes.
    """

    __slots__ = ("assembled", "ours", "spec", "strange", "theirs", "tree")

    def __init__(
        self,
        tree: Tree,
        spec: orders.ProcessSpec,
        ours: socket.socket,
        theirs: socket.socket,
        assembled: Assembled,
    ) -> None:
        self.tree = tree
        self.spec = spec
        self.ours = ours
        self.theirs = theirs
        self.assembled = assembled
        kept = sorted([theirs.fileno(), *(one.fileno() for one in assembled.opened)])
        edges = zip([FIRST_FD, *(fd + 1 for fd in kept)], [*kept, LAST_FD], strict=True)
        self.strange = [(first, last) for first, last in edges if first < last]

    def close(self) -> None:
        """Close, in the zygote, what the process has."""
        self.theirs.close()
        for one in self.assembled.opened:
            one.abort()


class Member:
    """A process of a tree that this zygote forked."""

    __slots__ = ("channel", "runners", "spec", "tree")

    def __init__(self, tree: Tree, spec: orders.ProcessSpec, channel: socket.socket) -> None:
        self.tree = tree
        self.spec = spec
        self.channel = channel
        self.runners: set[int] = set()
