"""Without the package ``sapwood.merging`` everything else imports, and sessions work."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import importlib, pkgutil, sys
import sapwood

PACKAGE = "sapwood.merging"


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] == PACKAGE.split("."):
            raise ModuleNotFoundError(f"no {name}", name=name)


def main():
    sys.meta_path.insert(0, Absent())
    walk = pkgutil.walk_packages(sapwood.__path__, "sapwood.", lambda _name: None)
    names = [one.name for one in walk if one.name.split(".")[-1] != "__main__"]
    names = [one for one in names if not one.startswith(("sapwood.fastpath.native.", PACKAGE))]
    for name in names:
        importlib.import_module(name)
    assert len(names) > 500 and PACKAGE not in sys.modules

    from sapwood.environment.settings import Settings
    from sapwood.session_server.rights import ClientRole
    from sapwood_simulation.local_session_server import attach_here, local_session_server

    with local_session_server(Settings(), 2) as address:
        with attach_here(address, Settings()) as cluster:
            with cluster.stream(abs, reduce="sum") as stream:
                print("total", stream.broadcast(-3).result(60).total)
            for what in (
                lambda: cluster.merge("other"),
                lambda: cluster.merged,
                lambda: cluster.split("other"),
                lambda: cluster.session.link.ask("merge", {}).result(60),
                lambda: attach_here(address, Settings(), ClientRole.MERGER),
            ):
                try:
                    what()
                except sapwood.errors.ConfigurationError as error:
                    print("refused:", error.what)
    try:
        sapwood.types.Merged
    except AttributeError as error:
        print("no type:", error)
    print("others:", sapwood.types.Dataset.__name__, "Merged" in dir(sapwood.types))
    everything = {}
    exec("from sapwood.types import *", everything)
    print("star:", everything["Dataset"].__name__, "Merged" in everything)


if __name__ == "__main__":
    main()
"""


def test_everything_else_imports_and_a_session_works_without_merging() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    refused = "refused: this installation cannot merge sessions: it lacks the package"
    lines = done.stdout.splitlines()
    assert lines[0] == "total 6"
    assert [line.startswith(refused) for line in lines[1:6]] == [True] * 5
    no_type = "no type: this installation has no sapwood.types.Merged: it lacks the package"
    assert lines[6:] == [
        f"{no_type} sapwood.merging",
        "others: Dataset False",
        "star: Dataset False",
    ]
