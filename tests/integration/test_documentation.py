"""Runs the code of the README and the guides, page by page.

A block after ``<!-- file: NAME -->`` is written to that file. The other Python blocks of a page
run as one script, unless ``<!-- not run -->`` stands above. Every command in a shell block
that begins with ``sapwood`` must exist.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app
from sapwood.cli.new import new

ROOT = Path(__file__).parents[2]
FOLDERS = ("start", "programs", "tasks", "machines", "clusters", "tools")
PAGES = [
    ROOT / "README.md",
    *(page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
    ROOT / "docs" / "explanation" / "faq.md",
    ROOT / "docs" / "reference" / "stores.md",
]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    note: str
    language: str
    text: str

    @property
    def file(self) -> str:
        return self.note.removeprefix("file: ") if self.note.startswith("file: ") else ""


def blocks_of(page: Path) -> Iterator[Block]:
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(match["note"] or "", match["language"], match["text"])


def has_python(page: Path) -> bool:
    return any(
        block.language == "python" and not block.file and block.note != "not run"
        for block in blocks_of(page)
    )


def has_files(page: Path) -> bool:
    return any(block.file for block in blocks_of(page))


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


EVERY_TIME = {"README.md", "first-run.md", "tasks.md", "streams.md", "hosts.md"}
"""The pages whose Python runs in each run of the tests; the other pages' runs each night."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name in EVERY_TIME else pytest.mark.nightly)
        for page in PAGES
        if has_python(page)
    ],
    ids=page_id,
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = []
    for block in blocks_of(page):
        for name in re.findall(r"^sapwood new (\w+)", block.text, re.MULTILINE):
            if block.language == "sh":
                new(tmp_path / name)
        if block.file:
            target = tmp_path / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language == "python" and block.note != "not run":
            script.append(block.text)
    (tmp_path / "page.py").write_text("\n".join(script), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if has_files(page)], ids=page_id)
def test_the_files_of_a_page_are_right(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(page):
        if block.file:
            target = tmp_path / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
    for program in tmp_path.rglob("program.toml"):
        answer = CliRunner().invoke(app, ["program", "show", str(program.parent)])
        assert answer.exit_code == 0, answer.stderr
    for settings in tmp_path.rglob("sapwood.toml"):
        answer = CliRunner().invoke(app, ["config", "validate", str(settings)])
        assert answer.exit_code == 0, answer.stderr


def test_the_commands_of_all_pages_exist() -> None:
    pages: dict[tuple[str, ...], Path] = {}  # each command once, with a page that has it
    for page in PAGES:
        for block in blocks_of(page):
            if block.language != "sh":
                continue
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.startswith("sapwood "):
                    words = shlex.split(line, comments=True)[1:3]
                    pages[tuple(word for word in words if word.isalpha())] = page
    assert len(pages) > 50
    for command, page in pages.items():
        answer = CliRunner().invoke(app, [*command, "--help"])
        assert answer.exit_code == 0, f"{page_id(page)}: {answer.stderr}"
