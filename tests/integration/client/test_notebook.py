"""Runs in a real kernel of IPython, which a client of Jupyter asks as a notebook does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_event_loop

PATIENCE = 120.0

PROGRAM = """
import os, numpy, sapwood

class Waits(sapwood.Program):
    reduce = {"x": "sum"}
    folder: str = sapwood.parameter("")

    def init(self, data): return {"step": 0, "x": 0.0}
    def map(self, slice, state): return {"x": float(slice.data.sum())}
    def update(self, state, total): return {"step": state["step"] + 1, "x": total["x"]}
    def done(self, state): return os.path.exists(self.folder + "/end")
    def metrics(self, state): return {"<x>": state["x"]}
    def result(self, state): return state["x"]

cluster = sapwood.local(agents=1)
"""

Message = dict[str, Any]


class Notebook:
    """A kernel, and the messages that it sends."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client

    def run(self, cell: str) -> list[Message]:
        """Run a cell; return what belongs to it and came before it was over."""
        number = self._client.execute(cell)
        said = self.until(lambda one: _ends(one, number))
        found = [one for one in said if one["parent_header"].get("msg_id") == number]
        errors = [one["content"] for one in found if one["msg_type"] == "error"]
        assert not errors, "\n".join(errors[0]["traceback"])
        return found

    def until(self, is_it: Callable[[Message], bool]) -> list[Message]:
        """Return the messages up to one."""
        end = time.monotonic() + PATIENCE
        found: list[Message] = []
        while not (found and is_it(found[-1])):
            found.append(self._client.get_iopub_msg(timeout=max(0.0, end - time.monotonic())))
        return found


def _ends(message: Message, number: str) -> bool:
    idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
    return bool(idle and message["parent_header"].get("msg_id") == number)


def pictures(messages: list[Message], kind: str) -> list[tuple[str, str]]:
    """Return of each picture its id and its HTML."""
    found = [one["content"] for one in messages if one["msg_type"] == kind]
    return [(one["transient"]["display_id"], one["data"]["text/html"]) for one in found]


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield Notebook(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        manager.context.destroy()
        ensure_event_loop().close()


def test_a_run_is_followed_in_place_below_its_cell(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run(PROGRAM)
    began = notebook.run(f"run = cluster.run(Waits(folder={str(tmp_path)!r}), numpy.ones(3))\nrun")
    ((display, first),) = pictures(began, "display_data")  # and not once more at its end
    assert "done" not in first

    def iterates(message: Message) -> bool:
        found = pictures([message], "update_display_data")
        return bool(found) and "&lt;x&gt;" in found[0][1]

    later = notebook.until(iterates)
    assert {one for one, _ in pictures(later, "update_display_data")} == {display}

    (tmp_path / "end").touch()
    over = notebook.run("run.result()")
    (result,) = [one["content"] for one in over if one["msg_type"] == "execute_result"]
    assert result["data"]["text/plain"] == "3.0"
    *_, (same, last) = pictures(over, "update_display_data")
    assert same == display
    assert "<td>done</td>" in last
    assert "<script" not in last

    (again,) = pictures(notebook.run("run"), "display_data")
    assert again == (again[0], last)
    assert again[0] != display
    (cluster,) = [
        one["content"]["data"]["text/html"]
        for one in notebook.run("cluster")
        if one["msg_type"] == "execute_result"
    ]
    assert "1 of 1 agents ready" in cluster
    notebook.run("cluster.close()")


PRINTS = """
import os, time

def prints(folder):
    while not os.path.exists(folder + "/begin"):
        time.sleep(0.01)
    print("from the first cell", flush=True)
    return 7
"""


@pytest.mark.parametrize("later", ["task.result()", "import time\nwhile not task.done(): pass"])
def test_lines_of_work_from_an_earlier_cell_appear_below_the_one_that_runs(
    notebook: Notebook, tmp_path: Path, later: str
) -> None:
    notebook.run("import sapwood\ncluster = sapwood.local(agents=2)" + PRINTS)
    notebook.run(f"task = cluster.submit(prints, {str(tmp_path)!r})")
    notebook.run("1")
    said = notebook.run(f"open({str(tmp_path / 'begin')!r}, 'w').close()\n{later}")
    lines = [one["content"]["text"] for one in said if one["msg_type"] == "stream"]
    assert [line.partition(": ")[2] for line in lines] == ["from the first cell\n"]
    notebook.run("cluster.close()")
