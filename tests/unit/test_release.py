"""Version, changelog and the page *Stability* agree."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import tomllib
from pathlib import Path

import pytest

import sapwood

ROOT = Path(__file__).parents[2]
EXTRAS = sorted((ROOT / "extras").glob("*/pyproject.toml"))
VERSION = sapwood.__version__
PROMISE = re.compile(r"until version (\d+\.\d+)")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@pytest.mark.parametrize(
    "file", [ROOT / "pyproject.toml", *EXTRAS], ids=lambda one: one.parent.name
)
def test_each_package_has_the_version_and_needs_the_others_in_it(file: Path) -> None:
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION
    optional = project.get("optional-dependencies", {})
    needed = [*project["dependencies"], *itertools.chain.from_iterable(optional.values())]
    pins = [one for one in needed if re.match(r"sapwood[-\w]*(\[[\w,]+\])?==", one)]
    assert {one.partition("==")[2] for one in pins} <= {VERSION}
    assert len(pins) == (len(EXTRAS) if file.parent == ROOT else 1)


def test_the_changelog_begins_with_the_version_and_its_day() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, _, releases = text.partition("<!-- releases -->\n")
    latest = re.match(r"\n## \[([\d.]+)\] - (\S+)\n", releases)
    assert latest is not None
    assert latest[1] == VERSION
    assert dt.date.fromisoformat(latest[2]) >= dt.date(2026, 11, 27)


def test_what_is_deprecated_is_promised_until_the_next_minor_version() -> None:
    major, minor, _ = numbers(VERSION)
    sources = [*(ROOT / "src").rglob("*.py"), ROOT / "docs/reference/stability.md"]
    promised = {
        (path.relative_to(ROOT), version)
        for path in sources
        for version in PROMISE.findall(path.read_text(encoding="utf-8"))
    }
    assert {version for _, version in promised} == {f"{major}.{minor + 1}"}, sorted(promised)
