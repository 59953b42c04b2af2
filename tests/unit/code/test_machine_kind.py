"""What a machine is called."""

from pathlib import Path

import pytest

from sapwood.code.machine_kind import MAX_KIND, machine_kind, processor_model


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor : 0\nmodel name\t: AMD EPYC 9B14\n", "AMD EPYC 9B14"),
        ("processor : 0\nModel : Raspberry Pi 5\n", "Raspberry Pi 5"),
        ("processor : 0\n", "unknown"),
    ],
)
def test_names_of_processors(tmp_path: Path, text: str, model: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text)
    assert processor_model(tmp_path) == model


def test_a_system_without_the_list_of_processors(tmp_path: Path) -> None:
    assert processor_model(tmp_path) == "unknown"


def test_the_kind_of_this_machine_names_its_cores() -> None:
    assert " cores" in machine_kind()
    assert "unknown" not in machine_kind()
    assert len(machine_kind()) <= MAX_KIND
