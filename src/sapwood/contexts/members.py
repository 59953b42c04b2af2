"""What a zygote knows of the processes that it forked, and of the trees that they belong to."""

import contextlib
import socket

from sapwood.contexts import orders


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


class Member:
    """A process of a tree that this zygote forked."""

    __slots__ = ("channel", "runners", "spec", "tree")

    def __init__(self, tree: Tree, spec: orders.ProcessSpec, channel: socket.socket) -> None:
        self.tree = tree
        self.spec = spec
        self.channel = channel
        self.runners: set[int] = set()
