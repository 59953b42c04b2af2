import sys

import pytest

from sapwood.cli.answers import answers_alone
from sapwood.cli.output import print_json


def test_only_answers_are_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with answers_alone():
        sys.stdout.write("said\n")
        print_json({"a": 1}, one_line=True)
    print_json([2], one_line=True)
    sys.stdout.write("told\n")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ('{"a":1}\n[2]\ntold\n', "said\n")
