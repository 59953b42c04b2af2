"""Compare a step of the heat equation with the same in mpi4py, in turns.

    python benchmarks/stencil.py --mpi-python VENV/bin/python

Both call the same C function on the same rows. It prints medians over the rounds as JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import sapwood

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "stencil"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mpi-python", default="", help="a Python that has mpi4py; default: no peer"
    )
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("heat", EXAMPLE / "heat.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["heat"] = module  # its folder has the source in C
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as folder, sapwood.local(agents=options.agents) as cluster:
        library = f"{folder}/heat.so"
        build = ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library]
        subprocess.run([*build, str(EXAMPLE / "heat.c")], check=True)
        for size in options.sizes:
            grid = np.random.default_rng(0).random((size, size))
            ours, peer = [], []
            for _ in range(options.rounds):
                program = module.HeatInC(steps=options.steps, gather_every=options.steps)
                run = cluster.run(program, data=grid)
                found = run.result()
                seconds = run.statistics.seconds - run.statistics.prepare_seconds
                ours.append(seconds / options.steps)
                if not options.mpi_python:
                    continue
                task = {"library": library, "rows": size, "columns": size, "steps": options.steps}
                command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]
                script = [str(HERE / "peers" / "stencil_mpi.py"), json.dumps(task)]
                answer = subprocess.run(
                    [*command, str(options.agents), options.mpi_python, *script],
                    check=True,
                    capture_output=True,
                )
                peer.append(json.loads(answer.stdout))
                assert np.isclose(found.sum(), peer[-1]["sum"], rtol=1e-12)
            median = statistics.median(ours)
            figures = {"grid": size, "sapwood_us": round(median * 1e6, 1)}
            if peer:
                mpi = statistics.median(one["seconds"] for one in peer)
                floor = statistics.median(one["floor"] for one in peer)
                figures |= {
                    "mpi_us": round(mpi * 1e6, 1),
                    "ratio": round(median / mpi, 2),
                    "floor_us": round(floor * 1e6, 2),
                }
            print(json.dumps(figures | {"load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main()
