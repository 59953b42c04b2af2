"""The page that a dashboard begins with: all that its first sight needs comes in one answer.

Its style and what the head knows are inside; all modules are one script beside it, which browsers
keep until it changes.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from typing import Final

from sapwood.core.hints import DEFAULT_CLUSTER, command_line
from sapwood.views.page import STATIC, bundled, digest, inside_script

FIRST: Final = "{}"
"""The content without data, or without the right to see them."""

LEVEL: Final = 5
"""Of compression: a page with 1,000 nodes takes 3 ms."""

_COMMAND: Final = re.compile(r"<code>sapwood ([^<]+)</code>")
_CLUSTER: Final = 'data-cluster="default"'
_STYLE: Final = '<link rel="stylesheet" href="static/style.css">'
_ELEMENT: Final = '<script type="application/json" id="first">'
_SCRIPT: Final = '<script type="module" src="static/dashboard.js"></script>'


def page_of(name: str, cluster: str) -> str:
    """Return a page whose commands name the cluster.

    Args:
        name: The file.
        cluster: What the user calls the cluster.
    """

    def named(found: re.Match[str]) -> str:
        return f"<code>{html.escape(command_line(*found[1].split(), cluster=cluster))}</code>"

    return _COMMAND.sub(named, (STATIC / name).read_text("utf-8"))


class FrontPage:
    """The page, made once for a server.

    Args:
        cluster: What the user calls the cluster; commands on the pages name it.

    Attributes:
        script: All modules of the dashboard as one.
        script_name: What the script is called; another one when it changes.
        policy: Which style the page may have, as a directive of its policy.
    """

    def __init__(self, cluster: str = DEFAULT_CLUSTER) -> None:
        script = bundled("dashboard.js").encode()
        style = (STATIC / "style.css").read_text("utf-8")
        self.script = gzip.compress(script, 9, mtime=0)
        self.script_name = f"dashboard-{hashlib.sha256(script).hexdigest()[:16]}.js"
        self.policy = f"style-src 'self' '{digest(style)}'"
        page = page_of("index.html", cluster)
        for old, new in (
            (_CLUSTER, f'data-cluster="{html.escape(cluster)}"'),
            (_STYLE, f"<style>{style}</style>"),
            (_SCRIPT, f'<script type="module" src="static/{self.script_name}"></script>'),
        ):
            before, _, after = page.partition(old)
            page = before + new + after
        before, element, after = page.partition(_ELEMENT)
        self._before, self._after = before + element, after.removeprefix(FIRST)

    def page(self, first: bytes) -> bytes:
        """Return the page, compressed.

        Args:
            first: What the head knows, as JSON: a message of each kind that pages take.
        """
        text = f"{self._before}{inside_script(first.decode())}{self._after}"
        return gzip.compress(text.encode(), LEVEL)
