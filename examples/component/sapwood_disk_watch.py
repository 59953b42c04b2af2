"""Watches the free space of a node's disk: degraded while there is little of it.

Any object with a name and these four methods is a component. The daemon of the node calls them one
after the other on its event loop, so none of them may take long.
"""

from __future__ import annotations

import os
import shutil

from sapwood.plugins.components import ComponentContext, ComponentEvent, State


class DiskWatch:
    """Looks at the folder ``DISK_WATCH_FOLDER``, where ``DISK_WATCH_FREE`` bytes are to be free."""

    name = "disk-watch"

    def start(self, context: ComponentContext) -> None:
        """Begin: what this raises is why the component could not start."""
        self.context = context
        self.folder = os.environ.get("DISK_WATCH_FOLDER", "/tmp")  # noqa: S108 - it only looks
        self.wanted = int(os.environ.get("DISK_WATCH_FREE") or 2**30)
        self.enough = True

    def check(self) -> State:
        """Return how it is; an exception, such as of a folder that is gone, is a failure."""
        free = shutil.disk_usage(self.folder).free
        enough = free >= self.wanted
        if enough != self.enough:
            self.context.publish("disk.low", not enough)
            self.context.logger.warning("disk", folder=self.folder, free=free, enough=enough)
        self.enough = enough
        return State.READY if enough else State.DEGRADED

    def receive(self, event: ComponentEvent) -> None:
        """Hear what happens to the other components, and what they publish."""
        if event.topic == "node.cluster-ready":
            self.context.logger.info("all nodes are ready", seconds=event.value)

    def stop(self) -> None:
        """Give back what it holds: nothing here."""
