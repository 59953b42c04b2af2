from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sapwood", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("sapwood ")
