"""Options of ``sapwood run`` for settings and for the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from sapwood.cli import head_process, run
from sapwood.cli.declared import fields_on_command_line, words_of
from sapwood.cli.head_process import UpRequest
from sapwood.cli.main import app
from sapwood.cli.options import EXCLUSIONS
from sapwood.cli.run import RunMachines, RunOutput
from sapwood.code.run_spec import RunSpec
from sapwood.core.errors import InputError
from sapwood.core.options import PATH, OptionField, checked, option_fields
from sapwood.environment.configuration import load_configuration
from sapwood.environment.schema import find_setting

NOT_DETACHED = {other for one in EXCLUSIONS if one.option == "--detach" for other in one.others}

TEXTS = {"on": "nodes:2", "topology": "flat", "memory_limit": "3GiB", "packages": "staged"}
"""Values of options that are texts."""

Asked = Callable[..., list[Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Call ``sapwood run``; return what it would run or begin: spec, settings, and output."""

    def call(*words: str, status: int = 0) -> list[Any]:
        found: list[Any] = []

        def noted(*what: Any) -> int:
            found.extend(what[:3])
            return 0

        with monkeypatch.context() as patched:
            for name in ("execute", "execute_watching", "begin"):
                patched.setattr(run, name, noted)
            done = CliRunner().invoke(app, ["run", "count.py", *words], prog_name="sapwood")
        assert done.exit_code == status, done.output
        return found

    return call


FILES = {"profile": "file.html"}
"""Names of files that must have a suffix."""


def sample(option: OptionField, folder: Path) -> tuple[Any, list[str]]:
    """Return a value of an option that is not its default, and its words on the command line."""
    word = option.words[0]
    if option.unit == PATH:
        file = folder / FILES.get(option.name, "file")
        return file, [word, str(file)]
    if option.kind is bool:
        return not option.default, [word]
    value = (option.least or 0) + 1 if option.kind is int else TEXTS[option.name]
    return value, [word, str(value)]


@pytest.mark.parametrize(
    "option", fields_on_command_line(RunMachines), ids=lambda option: option.name
)
@pytest.mark.slow
def test_an_option_is_a_setting_of_the_cluster(
    asked: Asked, option: OptionField, tmp_path: Path
) -> None:
    value, words = sample(option, tmp_path)
    _, flags, _ = asked(*words)
    assert flags == {option.setting: value}
    assert asked(*words, "--detach")[1] == flags
    assert load_configuration(flags).origin(option.setting) == "flag"


@pytest.mark.parametrize(
    "option", fields_on_command_line(RunOutput), ids=lambda option: option.name
)
@pytest.mark.slow
def test_an_option_says_what_becomes_of_the_answer(
    asked: Asked, option: OptionField, tmp_path: Path
) -> None:
    value, words = sample(option, tmp_path)
    assert getattr(asked(*words)[2], option.name) == value
    if option.words[0] in NOT_DETACHED:
        asked(*words, "--detach", status=2)
    else:
        assert getattr(asked(*words, "--detach")[2], option.name) == value


def test_options_name_settings_that_exist() -> None:
    named = [one for kind in (RunSpec, RunMachines) for one in option_fields(kind) if one.setting]
    assert {find_setting(tuple(one.setting.split(".")), "").key for one in named}


def test_each_option_has_its_own_words_and_a_text() -> None:
    every = [one for kind in (RunSpec, RunMachines, RunOutput) for one in option_fields(kind)]
    words = [word for one in every for word in one.words]
    assert len(words) == len(set(words))
    assert all(one.about.endswith(".") for one in every)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"chunk": 0}, "chunk is 0"),
        ({"max_iterations": -1}, "max_iterations is -1"),
        ({"time_limit": -1.0}, "time_limit is -1"),
        ({"delegate": "never"}, "delegate is 'never'"),
        ({"checkpoint": 3}, "checkpoint is 3"),
    ],
)
def test_a_wrong_value_is_refused_at_the_call(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        checked(RunSpec("count.py", **given))


def test_a_duration_that_is_none_is_refused(asked: Asked) -> None:
    assert asked("--time-limit", "soon", status=2) == []
    assert asked("--time-limit", "500 ms")[0].time_limit == 0.5


def test_a_spec_is_the_same_at_its_head() -> None:
    spec = RunSpec("count.py", "data.csv", parameters={"n": "3"}, columns=("x",), chunk=2)
    plain = msgspec.to_builtins(spec)
    assert plain == {
        "program": "count.py",
        "data": "data.csv",
        "parameters": {"n": "3"},
        "columns": ("x",),
        "chunk": 2,
    }
    kept = msgspec.msgpack.encode(spec)
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(kept, type=RunSpec)) == kept


@pytest.mark.parametrize(
    "option", fields_on_command_line(UpRequest), ids=lambda option: option.name
)
def test_a_head_in_the_background_gets_each_option(
    monkeypatch: pytest.MonkeyPatch, option: OptionField
) -> None:
    value: Any = not option.default if option.kind is bool else "127.0.0.1:8787"
    wanted = UpRequest(name="lab", **{option.name: value})
    found: list[UpRequest] = []
    monkeypatch.setattr(head_process, "run_here", lambda one, *_, **__: found.append(one))
    words = ["up", "--foreground", "--cluster", "lab", *words_of(wanted)]
    assert CliRunner().invoke(app, words, prog_name="sapwood").exit_code == 0
    assert found == [wanted]
