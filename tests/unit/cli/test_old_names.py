from __future__ import annotations

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import COMMANDS, app
from sapwood.cli.old_names import OLD_COMMANDS, with_new_names


def test_the_old_name_of_an_option_works_and_warns() -> None:
    done = CliRunner().invoke(app, ["token", "list", "--name", "none-such"], prog_name="sapwood")
    assert "no cluster 'none-such' is up here" in done.stderr
    assert done.stderr.startswith("sapwood: warning: `--name` is deprecated")
    assert "use `--cluster`\n" in done.stderr


@pytest.mark.parametrize("old", OLD_COMMANDS)
@pytest.mark.slow
def test_the_old_name_of_a_command_works_and_warns(old: str) -> None:
    new = OLD_COMMANDS[old]
    done = CliRunner().invoke(app, [*old.split(), "--help"], prog_name="sapwood")
    asked = CliRunner().invoke(app, [*new.split(), "--help"], prog_name="sapwood")
    assert (done.exit_code, done.stdout) == (0, asked.stdout)
    assert done.stderr == (
        f"sapwood: warning: `sapwood {old}` is deprecated and will be removed in the next "
        f"release: use `sapwood {new} --help`\n"
    )


def test_words_of_other_programs_are_not_renamed() -> None:
    assert with_new_names(["exec", "etcd", "--name", "m"], COMMANDS) == [
        "exec",
        "etcd",
        "--name",
        "m",
    ]


def test_options_are_renamed_in_their_commands_only() -> None:
    assert with_new_names(["node", "stop", "link", "--node=n1"], COMMANDS)[3:] == ["--nodes=n1"]
    assert with_new_names(["up", "--node"], COMMANDS) == ["up", "--node"]
    run = ["run", "pi", "--environment", "grove"]
    assert with_new_names(run, COMMANDS) == ["run", "pi", "--packages", "grove"]


def test_the_session_of_another_cluster_has_its_cluster_before_the_name() -> None:
    words = ["session", "merge", "mine", "theirs", "--of", "lab", "--cluster", "none-such"]
    done = CliRunner().invoke(app, words, prog_name="sapwood")
    assert "`--of lab` is deprecated" in done.stderr
    assert "use `lab/theirs`" in done.stderr
