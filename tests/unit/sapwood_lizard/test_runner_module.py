import sys
from pathlib import Path

import pytest

from sapwood.core.errors import BuildError, FunctionMissingError, ProgramError, UserCodeError
from sapwood_lizard.runner_module import RunnerModule, find_runner

RUNNER = """
import os
import sys
try:
    import python_funcs
except ImportError:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import python_funcs

def init_global_params(run_settings):
    return [python_funcs.NAME, run_settings]

def init_dataset(global_params, run_settings):
    import python_funcs
    return python_funcs.NAME + run_settings["more"]

def print_result(global_params, state, quiet_print=False):
    print(global_params[0], state, quiet_print)
"""


def folder(parent: Path, name: str) -> Path:
    place = parent / name
    place.mkdir()
    (place / "python_funcs.py").write_text(f"NAME = {name!r}\n")
    (place / "runner.py").write_text(RUNNER)
    return place


@pytest.mark.row("B-RUN-2")
def test_each_runner_has_a_python_funcs_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, modules = list(sys.path), set(sys.modules)
    runners = [RunnerModule(folder(tmp_path, name) / "runner.py") for name in ("one", "two")]
    for runner, name in zip(runners, ("one", "two"), strict=True):
        params, dataset = runner.inputs({"more": "!"}, extension=True)
        assert (params[0], dataset) == (name, f"{name}!")
        runner.print_result("state", quiet=True)
    assert capsys.readouterr().out == "one state True\ntwo state True\n"
    assert sys.path == path
    assert {"python_funcs", "runner"}.isdisjoint(set(sys.modules) - modules)
    assert not list(tmp_path.rglob("__pycache__"))


def test_an_edit_is_seen_by_the_next_load(tmp_path: Path) -> None:
    place = folder(tmp_path, "one")
    RunnerModule(place / "runner.py")
    (place / "python_funcs.py").write_text("NAME = 'new'\n")
    params, _ = RunnerModule(place / "runner.py").inputs({"more": ""}, extension=True)
    assert params[0] == "new"


def test_mistakes_of_a_runner(tmp_path: Path) -> None:
    runner = folder(tmp_path, "one") / "runner.py"
    with pytest.raises(UserCodeError, match=r"KeyError: 'more'.*init_dataset"):
        RunnerModule(runner).inputs({}, extension=True)
    with pytest.raises(ProgramError, match="init_global_params returned list"):
        RunnerModule(runner).inputs({"more": ""}, extension=False)
    runner.write_text(RUNNER.replace("def init_dataset", "def init_data_set"))
    with pytest.raises(FunctionMissingError, match=r"init_dataset.*did you mean init_data_set"):
        RunnerModule(runner)
    runner.write_text("def f(:\n")
    with pytest.raises(BuildError, match=r"not valid Python.*runner.py:1"):
        RunnerModule(runner)
    runner.write_text("1 / 0\n")
    with pytest.raises(ProgramError, match="ZeroDivisionError"):
        RunnerModule(runner)


def test_runners_are_found_by_name_and_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path, "one")
    monkeypatch.chdir(tmp_path)
    for text in ("one.runner", "one/runner.py", str(place / "runner.py"), "one/"):
        assert find_runner(text)[0] == place / "runner.py"
    for text in ("one.missing", "two/runner.py"):
        with pytest.raises(ProgramError, match="not found"):
            find_runner(text)


def test_a_name_is_looked_up_where_imports_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, "elsewhere")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_runner("elsewhere.runner") == (
        tmp_path / "elsewhere" / "runner.py",
        "elsewhere.runner",
    )


@pytest.mark.row("B-RUN-2")
def test_a_setting_that_is_missing_is_named(tmp_path: Path) -> None:
    runner = RunnerModule(folder(tmp_path, "one") / "runner.py")
    with pytest.raises(UserCodeError) as caught:
        runner.inputs({"dims": "3"}, extension=True)
    assert "the setting more is missing: --set more=VALUE; given: dims" in caught.value.hint
