"""Every option of a run reaches it: from the command line, detached, and from Python.

The cases follow from the declaration: a new option is tested here without a new line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.declared import fields_on_command_line
from sapwood.cli.main import app
from sapwood.cli.options import EXCLUSIONS
from sapwood.code.run_spec import RunInputs
from sapwood.core.options import PATH, SECONDS, OptionField
from sapwood.environment.configuration import load_configuration
from sapwood.head.head import Head

from .conftest import PATIENCE

PROGRAM = """
import sapwood


class Count(sapwood.Program):
    reduce = {"n": "sum"}
    inputs = ("x",)
    rounds: int = sapwood.parameter(2)

    def init(self, data):
        return {"round": 0}

    def map(self, data, state):
        return {"n": len(data["x"])}

    def update(self, state, total):
        return {"round": state["round"] + 1, "n": total["n"]}

    def done(self, state):
        return state["round"] >= self.rounds
"""

PARAMETERS, COLUMNS = {"rounds": "3"}, ("x",)
"""Values for options whose values depend on the program and its data."""

NEEDED = {"auto_resume": "checkpoint"}
"""Options that need another one."""

NOT_DETACHED = {other for one in EXCLUSIONS if one.option == "--detach" for other in one.others}
"""Options that a detached run does not have."""


def sapwood_cli(*words: str, status: int = 0) -> str:
    """Call the command line; return what it writes."""
    done = CliRunner().invoke(app, list(words), prog_name="sapwood")
    assert done.exit_code == status, (words, done.output, done.exception)
    return done.stdout if status == 0 else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, and its data."""
    made = tmp_path_factory.mktemp("options")
    (made / "count.py").write_text(PROGRAM)
    (made / "data.csv").write_text("x,y\n" + "1,2\n" * 10)
    return made


@pytest.fixture(scope="module")
def session(head: Head, folder: Path) -> Iterator[str]:
    """A session of two agents; there is a checkpoint of the program."""
    settings = load_configuration({"limits.checkpoints": "1"}).settings
    with sapwood.connect().create_session(
        2, name="options", on="local", settings=settings
    ) as cluster:
        words = (folder / "count.py", folder / "data.csv")
        cluster.run(*words, checkpoint=folder / "former").result(PATIENCE)
        cluster.detach()
    yield "options"
    head.sessions.end("options").result(PATIENCE)


def sample(option: OptionField, folder: Path) -> tuple[Any, list[str]]:
    """Return a value of an option that is not its default, and its words on the command line."""
    word = option.words[0]
    if option.unit == PATH:  # there must be a checkpoint if one is read
        file = folder / option.name
        shutil.copy(folder / "former", file)
        return str(file), [word, str(file)]
    if option.unit == SECONDS:
        return 90.0, [word, "90s"]
    if option.kind is bool:
        return not option.default, [word]
    if option.kind is int:
        number = (option.least or 0) + 1
        return number, [word, str(number)]
    if get_origin(option.kind) is Literal:
        value = next(one for one in get_args(option.kind) if one != option.default)
        return value, [word, value]
    if get_origin(option.kind) is Mapping:
        return PARAMETERS, [word, *(f"{name}={text}" for name, text in PARAMETERS.items())]
    assert get_origin(option.kind) is Sequence, f"add a sample of {option.kind}"
    return COLUMNS, [word, ",".join(COLUMNS)]


@pytest.mark.parametrize(
    "option", fields_on_command_line(RunInputs), ids=lambda option: option.name
)
def test_an_option_reaches_the_run(session: str, folder: Path, option: OptionField) -> None:
    program, data = str(folder / "count.py"), str(folder / "data.csv")
    value, given = sample(option, folder)
    needed: dict[str, Any] = {}
    if other := NEEDED.get(option.name):
        needed = {other: str(shutil.copy(folder / "former", folder / other))}
    with sapwood.attach(session) as cluster:
        run = cluster.run(program, data, **{option.name: value}, **needed)
        run.result(PATIENCE)
        asked = msgspec.to_builtins(getattr(run.spec, option.name))
        parameters = dict(run.program.parameters)
        cluster.detach()
    assert asked == msgspec.to_builtins(value)
    words = ("run", program, "--data", data, "--session", session, *given)
    others = [word for name, text in needed.items() for word in (f"--{name}", text)]
    answers = [json.loads(sapwood_cli(*words, *others, "--json"))]
    if option.words[0] in NOT_DETACHED:
        assert "detached" in sapwood_cli(*words, *others, "--detach", status=2)
    else:
        begun = json.loads(sapwood_cli(*words, "--detach", "--json"))
        answers.append(json.loads(sapwood_cli("run", "follow", begun["id"], "--json")))
    for answer in answers:
        assert answer["parameters"] == parameters
        assert answer["options"][option.name] == json.loads(msgspec.json.encode(asked))
