"""Where the dashboard of a head shows a session or a run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sapwood.core.hints import command_line
from sapwood.core.html_table import escaped


class DashboardPage(msgspec.Struct, frozen=True):
    """A page of a dashboard, as a link without any credential.

    A browser that is signed in opens it; others need a credential, or the link that
    ``sapwood dashboard`` shows.

    Attributes:
        url: Its address; empty if no head serves it.
        cluster: What the user calls the head's cluster.
    """

    url: str = ""
    cluster: str = "default"

    @classmethod
    def at(cls, urls: Sequence[str], page: str, cluster: str) -> DashboardPage:
        """Return a page of a head.

        Args:
            urls: Where the head serves HTTP, the best first; none if it does not.
            page: For example ``runs/3f2a91c0``.
            cluster: What the user calls its cluster.

        Example:
            >>> DashboardPage.at(["http://127.0.0.1:8787"], "tree", "lab").url
            'http://127.0.0.1:8787/#/tree'
        """
        return cls(f"{urls[0]}/#/{page}" if urls else "", cluster)

    def html(self) -> str:
        """Return a link with the command that signs a browser in; empty without a page."""
        if not self.url:
            return ""
        link = f'<a href="{escaped(self.url)}" target="_blank" rel="noopener">dashboard</a>'
        shown = escaped(command_line("dashboard", cluster=self.cluster))
        return f"<div>{link} <small>(<code>{shown}</code> lets a browser in)</small></div>"
