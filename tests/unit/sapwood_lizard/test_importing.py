import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood_lizard.importing import LizardFinder, lizard_first
from sapwood_lizard.structures import EncodableStructure


def test_the_names_are_there_for_a_while() -> None:
    before, finders = set(sys.modules), list(sys.meta_path)
    with lizard_first():
        resources = importlib.import_module("lizard.user_prog_resources")
        assert resources.EncodableStructure is EncodableStructure
    assert not [name for name in set(sys.modules) - before if name.startswith("lizard")]
    assert sys.meta_path == finders


def test_another_package_of_that_name_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lizard.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lizard", raising=False)
    real = importlib.import_module("lizard")
    with lizard_first():
        assert importlib.import_module("lizard") is not real
        importlib.import_module("lizard.user_prog_resources")
    assert sys.modules["lizard"] is real
    del sys.modules["lizard"]


@pytest.mark.slow
def test_an_installed_package_is_not_hidden_by_what_a_process_provides(tmp_path: Path) -> None:
    (tmp_path / "lizard.py").write_text("real = True\n")
    code = (
        "from sapwood_lizard.importing import provide_lizard\n"
        "provide_lizard(); provide_lizard()\n"
        "import lizard; assert lizard.real"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    code = code.replace("import lizard; assert lizard.real", "from lizard import runtime_helper")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_others_are_left_to_others() -> None:
    assert LizardFinder().find_spec("lizard.other") is None
    assert LizardFinder().find_spec("os") is None
