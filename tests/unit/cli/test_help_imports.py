"""``sapwood --help`` imports no more than it shows."""

from __future__ import annotations

import subprocess
import sys

import pytest


def said(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_help_text_needs_neither_markdown_nor_tracebacks() -> None:
    code = (
        "import contextlib, sys\n"
        "sys.argv = ['sapwood', '--help']\n"
        "from sapwood.cli.entry import main\n"
        "with contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "print([name in sys.modules for name in ('typer.rich_utils', 'rich.markdown',\n"
        "    'markdown_it', 'rich.traceback', 'pygments.lexers')])\n"
    )
    *text, loaded = said(code)
    assert loaded == "[True, False, False, False, False]"
    assert any(line.startswith("╭─ Clusters ") for line in text)


@pytest.mark.slow
def test_who_needs_them_gets_them() -> None:
    code = (
        "import sys\n"
        "from sapwood.cli.help_imports import import_help\n"
        "import_help()\n"
        "from typer import rich_utils\n"
        "assert 'rich.markdown' not in sys.modules\n"
        "made = rich_utils.Markdown('*text*')\n"
        "print(type(made).__module__, made.markup)\n"
        "error = ValueError('no')\n"
        "print(type(rich_utils.Traceback.from_exception(ValueError, error, None)).__module__)\n"
    )
    assert said(code) == ["rich.markdown *text*", "rich.traceback"]
