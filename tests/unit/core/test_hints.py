from __future__ import annotations

import pytest

from sapwood.core.hints import command, command_line, naming


def test_values_are_quoted() -> None:
    assert command("run", "follow", "it's; rm -r", cluster="nw") == (
        """`sapwood run follow 'it'"'"'s; rm -r' --cluster nw`"""
    )


def test_a_command_of_another_program_stays_after_the_option() -> None:
    line = command_line("exec", "--", "uname", "-r", cluster="nw")
    assert line == "sapwood exec --cluster nw -- uname -r"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("`sapwood up` starts it", "`sapwood up --cluster nw` starts it"),
        ("`sapwood run DIR --on head:x`", "`sapwood run DIR --on head:x`"),
        ("see `sapwood config show`", "see `sapwood config show`"),
        ("`ls`, or `sapwood down`", "`ls`, or `sapwood down --cluster nw`"),
    ],
)
def test_hints_get_the_name_of_their_cluster(text: str, named: str) -> None:
    assert naming(text, "nw") == named
    assert naming(text, "default") == text
