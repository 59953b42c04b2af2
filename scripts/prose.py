"""Find phrases that a reader has to decode: in documents, docstrings, comments and messages.

``python scripts/prose.py`` checks every Markdown and Python file of the project. A file may have
as many findings as ``scripts/prose_budget.toml`` says; a file that is not named there may have
none. ``--lower`` writes smaller numbers into that file. ``--all`` prints every finding.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BUDGET = ROOT / "scripts" / "prose_budget.toml"

NOT_READ = (
    "scripts/prose.py",
    "tests/unit/test_prose.py",
    "tests/integration/client/cpython/",
)
"""Files that quote what is searched for, and tests copied from CPython."""

VERB = (
    "is|are|was|has|have|had|may|can|must|asks?|wants?|knows?|holds?|gives?|reads?|comes?|came|"
    "leaves?|does|did|waits?|ends?|uses?|sends?|takes?|says?|joins?|lives?|cannot|needs?"
)


class Rule(NamedTuple):
    """A phrase to avoid.

    Attributes:
        name: What it is called in a report.
        pattern: Finds it.
        advice: What to write instead.
    """

    name: str
    pattern: re.Pattern[str]
    advice: str


def rule(name: str, pattern: str, advice: str) -> Rule:
    """Return a rule."""
    return Rule(name, re.compile(pattern), advice)


RULES = (
    rule(
        "clause as subject",
        r"(?:^|[.;:!?(] ?)\b(?:[Ww]ho|[Ww]hoever|[Ww]hat) (?!happens|next|now|kind|else|version|"
        rf"is (?:new|missing|the|a|an)\b)(?:{VERB})\b[^?]*$",
        "name the subject: client, caller, user, node, message",
    ),
    rule("somebody", r"\b(?:[Ss]ome|[Aa]ny|[Nn]o)body\b", "name the subject: a client, no process"),
    rule("is told", r"\b(?:is|are|was|were|be|been|being|gets?) told\b", "is notified, receives"),
    rule(
        "is no X",
        r"\b(?:is|are|was|were) no "
        r"(?!longer|more|less|way|need|reason|such|other|room|guarantee|error)[a-z]+",
        "is not a X",
    ),
    rule("goes on", r"\b(?:goes|go|went|gone|going) on\b", "continues"),
    rule("begins again", r"\b(?:begins?|began|begun|beginning) (?:again|anew)\b", "restarts"),
    rule("by itself", r"\bby (?:itself|themselves|himself)\b", "automatically, alone"),
    rule(
        "that of",
        r"\b(?:that|those) (?:of|that) "
        r"(?:the|a|an|its|their|this|all|each|another|other|us|them|it)\b",
        "repeat the noun",
    ),
    rule("now and then", r"\bnow and then\b", "periodically; say how often"),
    rule(
        "what becomes of", r"\bwhat (?:comes?|came|becomes?|became) of\b", "the outcome, the result"
    ),
    rule("other than in", r"\bother than in\b", "unlike in"),
    rule("of its own", r"\bof (?:its|their|our|his) own\b", "its own X, a separate X"),
    rule(
        "takes for",
        r"\b(?:takes?|took|taken) (?:it|them|this|that|one) for\b",
        "treats as, mistakes for",
    ),
    rule(
        "is there",
        r"\b(?:is|are|was|were) (?:not )?there (?:still|already|yet|any more|before|by then)\b"
        r"|\b(?:is|are) still there\b",
        "is available, exists, is still running",
    ),
    rule(
        "still last",
        r"\b(?:is|are|was|were|has|have|had) [a-z]+ still\b",
        "put 'still' before the verb: is still starting",
    ),
    rule(
        "let be",
        r"(?:^|[.;] )(?:Let|Have) [a-z ]{2,40} (?:be|have|stand|go|come|wait|know|take)\b",
        "use the imperative of the real action",
    ),
    rule(
        "trailing as",
        r", as (?:it|they|he|she|there|nobody|nothing|no) "
        r"(?:is|are|was|were|has|have|had|may|can|could|would)\b",
        "because",
    ),
    rule("lies", r"\b(?:lies?|lay|lain) (?:in|at|on|there)\b", "is stored in, is located in"),
    rule("a word", r"\b(?:a|last|first|no) word (?:from|of|about)\b", "message, answer, notice"),
)


class Finding(NamedTuple):
    """A phrase that was found, and where."""

    path: str
    line: int
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule.name}] {self.text} -> {self.rule.advice}"


def document_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a Markdown document outside of its code, with their numbers."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def program_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a program's comments and of its texts, with their numbers."""
    kinds = {tokenize.COMMENT, tokenize.STRING}
    kinds |= {kind for kind, name in tokenize.tok_name.items() if name == "FSTRING_MIDDLE"}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in kinds:
            for shift, line in enumerate(token.string.splitlines()):
                yield token.start[0] + shift, line.strip().lstrip("#rbf\"' ")


def findings(path: str, source: str) -> Iterator[Finding]:
    """Yield what a file has that a reader has to decode.

    Args:
        path: Its name, which says what it is: Markdown or Python.
        source: Its text.

    Example:
        >>> [found.rule.name for found in findings("a.md", "The run goes on.")]
        ['goes on']
    """
    lines = document_lines(source) if path.endswith(".md") else program_lines(source)
    for number, line in lines:
        text = re.sub(r"`[^`]*`", "`x`", line)
        if " " not in text.strip():
            continue
        for each in RULES:
            if match := each.pattern.search(text):
                around = text[max(0, match.start() - 25) : match.end() + 35].strip()
                yield Finding(path, number, each, around)


def project_findings() -> tuple[dict[str, list[Finding]], int]:
    """Return the findings of each file of the project, and how many lines were read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found: dict[str, list[Finding]] = {}
    count = 0
    for path in sorted(listed):
        if path.startswith(NOT_READ) or not (ROOT / path).is_file():
            continue
        source = (ROOT / path).read_text(encoding="utf-8")
        count += source.count("\n")
        if each := list(findings(path, source)):
            found[path] = each
    return found, count


def main() -> int:
    """Check the project's prose."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lower", action="store_true", help="lower the budget to what was found")
    parser.add_argument("--all", action="store_true", help="print findings within the budget, too")
    parser.add_argument("paths", nargs="*", help="print only findings below these paths")
    given = parser.parse_args()
    budget: dict[str, int] = tomllib.loads(BUDGET.read_text()) if BUDGET.is_file() else {}
    found, count = project_findings()
    too_many = {path: each for path, each in found.items() if len(each) > budget.get(path, 0)}
    for path, each in (found if given.all else too_many).items():
        if not given.paths or path.startswith(tuple(given.paths)):
            print("\n".join(map(str, each)))
    if given.lower:
        lowered = {path: min(len(found.get(path, ())), most) for path, most in budget.items()}
        write_budget({path: most for path, most in lowered.items() if most})
    total = sum(map(len, found.values()))
    print(f"prose: {total} findings in {count} lines, {1000 * total / count:.1f} per 1,000 lines")
    for path, each in too_many.items():
        print(f"{path}: {len(each)} findings, {budget.get(path, 0)} are allowed")
    return bool(too_many)


def write_budget(budget: dict[str, int]) -> None:
    """Write how many findings each file may have."""
    lines = [f'"{path}" = {most}\n' for path, most in sorted(budget.items())]
    BUDGET.write_text(
        "# Findings of scripts/prose.py that each file may have; these numbers only fall.\n"
        + "".join(lines)
    )


if __name__ == "__main__":
    sys.exit(main())
