"""Programs of lizard-slayer: the examples, and copies of them that differ."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood_lizard.directory import read_directory
from sapwood_lizard.execution import RunOutcome, run_with_runner
from sapwood_lizard.launch import Checked, check
from sapwood_lizard.runner_module import RunnerModule

collect_ignore = ["programs"]
"""They are programs, not tests."""

EXAMPLES = Path(__file__).parents[3] / "examples" / "lizard"


@pytest.fixture(autouse=True, scope="module")
def on_the_cpu(own_surroundings: None) -> Iterator[None]:
    """These tests say what happens where there is no GPU; results need no optimiser to be right."""
    del own_surroundings  # it takes these variables out
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAPWOOD_CUDA", "cpu")
        patch.setenv("CXXFLAGS", "-O0")
        yield


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[..., Path]:
    """Copy an example and replace texts in its files: ``copy_of("kmeans", file=[(old, new)])``."""

    def copy(name: str, changes: Mapping[str, list[tuple[str, str]]] | None = None) -> Path:
        folder = tmp_path / name
        shutil.copytree(EXAMPLES / name, folder)
        for file, pairs in (changes or {}).items():
            text = (folder / file).read_text()
            for old, new in pairs:
                assert old in text, (file, old)
                text = text.replace(old, new)
            (folder / file).write_text(text)
        return folder

    return copy


@pytest.fixture
def checked() -> Callable[[Path], Checked]:
    """Read, build and check a program."""
    return lambda folder: check(read_directory(folder), origin=str(folder))


@pytest.fixture
def outcome(checked: Callable[[Path], Checked]) -> Callable[..., RunOutcome]:
    """Run a program with its runner module."""

    def run(
        cluster: sapwood.Cluster, folder: Path, settings: Mapping[str, Any], **more: Any
    ) -> RunOutcome:
        program = checked(folder)
        runner = RunnerModule(
            folder / "runner.py", python=folder / program.program.definition.python.name
        )
        return run_with_runner(cluster, program, runner, settings, **more)

    return run
