"""Sources that are edited while runs use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import BuildError

PATIENCE = 60.0
Edit = Callable[[Path, str], None]
DATA = np.arange(6.0)
PROGRAM = """
import time
from pathlib import Path
from sapwood import Program, native

class Scaled(Program):
    sources = ["scale.c"]
    reduce = {"total": "sum"}
    map = native("scaled")

    def init(self, data):
        return {"totals": []}

    def update(self, state, total):
        (GO / f"reached-{len(state['totals'])}").touch()
        while not (GO / "go").exists():
            time.sleep(0.002)
        return {"totals": [*state["totals"], float(total["total"])]}

    def done(self, state):
        return len(state["totals"]) == 2
"""


def source(factor: int) -> str:
    return f"""#include <stdint.h>
/** @array data[n] */
void scaled(const double *data, int64_t n, double *total) {{
    for (int64_t i = 0; i < n; i++) *total += {factor} * data[i];
}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scale.c").write_text(source(1))
    text = PROGRAM.replace("GO /", f"Path({str(tmp_path)!r}) /")
    (tmp_path / "p.py").write_text(text)
    return tmp_path


@pytest.mark.row("A-CODE-2")
def test_the_next_run_uses_an_edit_and_one_that_has_begun_keeps_its_version(
    cluster: sapwood.Cluster,
    folder: Path,
    until: Callable[[Callable[[], object]], None],
    edit: Edit,
) -> None:
    with cluster.watch(folder / "p.py") as watch:
        watch.wait(1, PATIENCE)
        begun = cluster.run(folder / "p.py", DATA)
        until((folder / "reached-0").exists)
        edit(folder / "scale.c", source(10))
        new = watch.wait(2, PATIENCE)
        assert new.error is None
        library = Path(new.builds[0].libraries[0].image.path)
        built = library.stat().st_mtime_ns
        (folder / "go").touch()
        after = cluster.run(folder / "p.py", DATA)
        assert begun.result(PATIENCE) == {"totals": [15.0, 15.0]}
        assert after.result(PATIENCE) == {"totals": [150.0, 150.0]}
        assert begun.program.hash != after.program.hash == new.hash
        assert library.stat().st_mtime_ns == built  # it was there, and is not built again


@pytest.mark.row("A-CODE-2")
def test_a_run_of_a_version_that_does_not_compile_is_the_compiler_s_error(
    cluster: sapwood.Cluster, folder: Path, edit: Edit
) -> None:
    (folder / "go").touch()
    told: list[Any] = []
    with cluster.watch(folder / "p.py", on_version=told.append) as watch:
        watch.wait(1, PATIENCE)
        edit(folder / "scale.c", "void scaled(double x) { return y; }\n")
        broken = watch.wait(2, PATIENCE)
        with pytest.raises(BuildError) as caught:
            cluster.run(folder / "p.py", DATA).result(PATIENCE)
        assert broken.error is not None
        assert caught.value.where == broken.error.where == "scale.c:1"
        told_by = caught.value.details["compiler output"]
        assert told_by == broken.error.details["compiler output"]
        edit(folder / "scale.c", source(2))
        watch.wait(3, PATIENCE)
        assert cluster.run(folder / "p.py", DATA).result(PATIENCE) == {"totals": [30.0, 30.0]}
    assert [version.number for version in told] == [1, 2, 3]


def test_closing_the_cluster_ends_its_watches(
    make_cluster: Callable[..., sapwood.Cluster], folder: Path
) -> None:
    cluster = make_cluster(1)
    watch = cluster.watch(folder / "p.py")
    watch.wait(1, PATIENCE)
    cluster.close()
    with pytest.raises(TimeoutError):
        watch.wait(2, 0.0)
