"""The files of the pictures, and a report: a page that has them and its data in one file."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Final

import msgspec

from sapwood.code.profiles import ProfileResult
from sapwood.views.run_page import RunPage

STATIC: Final = Path(__file__).parent / "static"
"""The folder of the files that a dashboard serves as they are."""

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)

_EXPORT: Final = re.compile(r"^export (?=function|class|const|async)", re.MULTILINE)

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title} · Sapwood</title>
<style>{style}</style>
</head>
<body>
<main class="report"></main>
<noscript>This page draws with JavaScript.</noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def bundled(entry: str) -> str:
    """Return a module and all that it imports as one script.

    Names at the top of modules are therefore unique among them; a test looks.

    Args:
        entry: The file in :data:`STATIC`.
    """
    parts: dict[str, str] = {}
    _collect(entry, parts)
    return "\n".join(parts.values())


def _collect(name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = (STATIC / name).read_text("utf-8")
    for other in _IMPORT.findall(text):
        _collect(other, parts)
    parts[name] = _EXPORT.sub("", _IMPORT.sub("", text))


def report(run: RunPage) -> str:
    """Return a run as one HTML file that needs no network."""
    return _page(run.program, run, "report.js")


def profile(found: ProfileResult) -> str:
    """Return a profile as one HTML file that needs no network."""
    return _page("Profile", found, "profile.js")


def _page(title: str, data: msgspec.Struct, entry: str) -> str:
    """Return a page whose policy forbids it to load anything, and other scripts than its own."""
    script = bundled(entry)
    style = (STATIC / "style.css").read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=_text(title),
        style=style,
        data=inside_script(msgspec.json.encode(data).decode()),
        script=script,
    )


def digest(text: str) -> str:
    """Return the hash of a script or a style, as policies name it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def inside_script(json: str) -> str:
    r"""Return JSON that cannot end the element that it stands in.

    Example:
        >>> inside_script('"</script>"')
        '"\\u003c/script>"'
    """
    return json.replace("<", "\\u003c")


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
