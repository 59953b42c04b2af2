"""The check of the project's prose finds what it is for, and the budget only falls."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "prose.py"


@pytest.fixture
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Who asks waits for the answer.", "clause as subject"),
        ("Runs until somebody ends it.", "somebody"),
        ("The head is told of it.", "is told"),
        ("The file is no program.", "is no X"),
        ("The session goes on without it.", "goes on"),
        ("The run begins again.", "begins again"),
        ("It ends by itself.", "by itself"),
        ("Its folder is that of the head.", "that of"),
        ("It looks now and then.", "now and then"),
        ("Returns what became of it.", "what becomes of"),
        ("A thread of its own.", "of its own"),
        ("The session is starting still.", "still last"),
        ("The content lies in the cache.", "lies"),
    ],
)
def test_phrases_are_found(prose: Any, text: str, rule: str) -> None:
    assert [found.rule.name for found in prose.findings("page.md", text)] == [rule]
    program = f'"""{text}"""\n\nx = 1  # {text}\n'
    assert [(found.line, found.rule.name) for found in prose.findings("a.py", program)] == [
        (1, rule),
        (3, rule),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Return the state of the node.",
        "The session is still starting.",
        "There is no longer a limit, so no retry is needed.",
        "What happens next depends on the head.",
    ],
)
def test_plain_sentences_pass(prose: Any, text: str) -> None:
    assert not list(prose.findings("page.md", text))


def test_code_is_not_prose(prose: Any) -> None:
    document = "Run `who asks waits`:\n\n```python\nwho = goes_on  # it goes on\n```\n"
    assert not list(prose.findings("page.md", document))
    assert not list(prose.findings("a.py", "goes = on\n"))


def test_a_file_has_no_more_findings_than_its_budget(
    prose: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = tmp_path / "budget.toml"
    monkeypatch.setattr(prose, "BUDGET", budget)
    found = {"a.md": list(prose.findings("a.md", "It goes on.\nIt went on.\n"))}
    monkeypatch.setattr(prose, "project_findings", lambda: (found, 2))
    monkeypatch.setattr("sys.argv", ["prose.py", "--lower"])
    budget.write_text('"a.md" = 1\n"b.md" = 2\n')
    assert prose.main() == 1
    assert "a.md:1: [goes on]" in capsys.readouterr().out
    assert budget.read_text().splitlines()[1:] == ['"a.md" = 1']
    budget.write_text('"a.md" = 5\n')
    assert prose.main() == 0
    assert budget.read_text().splitlines()[1:] == ['"a.md" = 2']
