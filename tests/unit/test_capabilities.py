"""The page *Capabilities*: each one has a test, and each mark of a test is one of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "docs/reference/capabilities.toml").read_text(encoding="utf-8"))


def test_each_capability_has_a_test_and_each_mark_is_one() -> None:
    marks = {
        one
        for folder in ("tests", "extras", "simulation")
        for path in (ROOT / folder).rglob("test_*.py")
        for ids in re.findall(r"mark\.row\(([^)]*)\)", path.read_text(encoding="utf-8"))
        for one in re.findall(r'"([^"]+)"', ids)
    }
    listed = [name for section in DECLARED.values() for name in section]
    assert len(listed) == len(set(listed))
    assert set(listed) == marks
