from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.activity.progress import Progress, RunState
from sapwood.activity.statistics import RunStatistics
from sapwood.cli.answer import Answer, show_answer


def answer(result: object, output: str | None = None) -> Answer:
    return Answer(
        program="quantize",
        parameters={"colours": 16},
        data="china.jpg",
        items=273_280,
        progress=Progress(state=RunState.DONE, metrics={"inertia": 95700536.789}),
        statistics=RunStatistics(program="quantize", iterations=83, seconds=0.5),
        result=result,
        output=output,
    )


def test_numbers_of_the_result_and_metrics_are_shown_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_answer(answer({"inertia": 1.0, "converged": True, "centres": "float64 16 x 3"}))
    out = capsys.readouterr().out
    assert out.count("inertia") == 1
    assert "  inertia 9.570054e+07\n" in out
    assert "  converged True\n" in out
    assert "  centres float64 16 x 3\n" in out
    assert "wrote" not in out


def test_a_bare_result_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(answer(3.14159265358979))
    assert "  result 3.141593\n" in capsys.readouterr().out


def test_a_few_numbers_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(answer({"mean": [1.0, 2.5], "many": [0] * 9, "table": [[1]], "none": []}))
    out = capsys.readouterr().out
    assert "  mean 1, 2.5\n" in out
    assert not any(f"  {name} " in out for name in ("many", "table", "none"))


def test_the_file_that_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"x" * 2048)
    show_answer(answer({}, str(file)))
    assert capsys.readouterr().out.endswith(f"wrote {file} (2 KiB)\n")
