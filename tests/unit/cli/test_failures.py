from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
import typer

from sapwood.cli.failures import EXIT_CODES, as_sapwood_error, explain, reported
from sapwood.core.errors import (
    BuildError,
    ParameterError,
    RunnerCrashError,
    SapwoodError,
    error_classes,
)


def exit_code_of(error: BaseException, *, debug: bool = False, as_json: bool = False) -> int:
    with pytest.raises(typer.Exit) as caught, reported(debug=debug, as_json=as_json):
        raise error
    return caught.value.exit_code


def test_a_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        Path.cwd()
    except OSError as error:
        known = as_sapwood_error(error)
    assert known is not None
    assert known.what == "the current folder has been removed"


def test_an_error_says_what_where_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    error = ParameterError(
        "no parameter 'colour'", where="quantize", hint="did you mean 'colours'?"
    )
    assert exit_code_of(error) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "sapwood: error SW121: no parameter 'colour'",
        "  where: quantize",
        "  hint:  did you mean 'colours'?",
    ]


def test_compiler_output_is_whole_and_stderr_is_cut() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    assert "line 0\n" in explain(BuildError("no", details={"compiler output": text}))
    cut = explain(RunnerCrashError("no", details={"stderr": text}))
    assert "line 0\n" not in cut
    assert "… 80 lines before" in cut
    assert cut.endswith("line 99")
    assert "line 0\n" in explain(RunnerCrashError("no", details={"stderr": text}), debug=True)


def test_json_errors_are_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(BuildError("no", where="a.c:3"), as_json=True) == 3
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": {"code": "SW122", "what": "no", "where": "a.c:3"}}
    assert err.startswith("sapwood: error SW122")


def test_every_error_class_has_a_documented_exit_code() -> None:
    assert {kind.exit_code for kind in error_classes().values()} <= set(EXIT_CODES)


def test_a_full_disk_is_a_resource_error(capsys: pytest.CaptureFixture[str]) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/full/x")
    assert exit_code_of(full) == 5
    assert "where: /full/x" in capsys.readouterr().err


def test_an_unforeseen_error_is_ours_and_has_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of(ZeroDivisionError("division by zero")) == 70
    err = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero" in err
    assert "Traceback" not in err


def test_an_unforeseen_error_is_json_where_that_is_wanted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of(ZeroDivisionError("division by zero"), as_json=True) == 70
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "SW000"
    assert error["what"] == "internal error: ZeroDivisionError: division by zero"
    assert "--debug" in error["hint"]


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(SapwoodError("no"), debug=True) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "sapwood: interrupted\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_error_that_cannot_be_told_keeps_its_exit_code(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 - closing it would fail
    monkeypatch.setattr(f"sys.{stream}", full)
    assert exit_code_of(ParameterError("no parameter"), as_json=True) == 2
    with pytest.raises(OSError, match="No space"):
        full.close()
