"""The Dockerfile's steps work, and the public workflows run what a checkout runs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
KNOWN = {"ENV", "RUN", "WORKDIR", "COPY", "USER", "CMD", "ENTRYPOINT"}


class Stage(NamedTuple):
    """A target of the Dockerfile: the image or stage that it starts from, and its steps."""

    base: str
    steps: list[tuple[str, str]]


def stages() -> dict[str, Stage]:
    """Read the Dockerfile."""
    found: dict[str, Stage] = {}
    steps: list[tuple[str, str]] = []
    for line in (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            steps = []
            found[name] = Stage(base, steps)
        elif line and not line.startswith("#"):
            assert word in KNOWN, line
            steps.append((word, rest))
    return found


def all_steps(name: str) -> Iterator[tuple[str, str]]:
    """Yield the steps of a stage; steps of its base stage are first."""
    stage = stages()[name]
    if stage.base in stages():
        yield from all_steps(stage.base)
    yield from stage.steps


def test_the_image_has_the_two_targets() -> None:
    assert {"development", "node"} <= stages().keys()


@pytest.mark.parametrize("name", ["development", "node"])
def test_what_an_image_copies_exists(name: str) -> None:
    for word, rest in all_steps(name):
        if word == "COPY":
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), source


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)", workflow.read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


def test_the_public_workflow_runs_what_a_checkout_runs() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.search(r"SAPWOOD_UNEXPECTED_SKIPS=fail \.ci/run$", workflow, re.MULTILINE)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("node", "/opt/sapwood/bin/sapwood exec --on nodes:2 -- hostname"),
        ("development", "make .venv/with-test && .venv/bin/pytest -q tests/unit/core"),
    ],
)
def test_the_steps_of_an_image_work(name: str, command: str, tmp_path: Path) -> None:
    # The base is this machine's own system below a layer that takes what is written.
    if subprocess.run(["id", "-u"], capture_output=True, check=True).stdout != b"0\n":
        pytest.skip("only root can change the root folder")
    if shutil.which("apt-get") is None:
        pytest.skip("this machine has no apt-get")
    script = tmp_path / "steps.sh"
    script.write_text("set -e\n" + "".join(shell_of(name)) + command + "\n")
    context = tmp_path / "context"
    subprocess.run(["git", "clone", "--quiet", ROOT, context], check=True)
    inner = f"""
        set -e
        mount -t tmpfs none {tmp_path}/layer
        mkdir {tmp_path}/layer/upper {tmp_path}/layer/work
        cd {tmp_path}
        mount -t overlay none -o lowerdir=/,upperdir=layer/upper,workdir=layer/work root
        mkdir -p {tmp_path}/root/context
        mount --bind {context} {tmp_path}/root/context
        cp {script} {tmp_path}/root/steps.sh
        for each in proc dev sys; do mount --rbind /$each {tmp_path}/root/$each; done
        mount -t tmpfs none {tmp_path}/root/tmp
        exec chroot {tmp_path}/root sh /steps.sh
    """
    for folder in ("layer", "root"):
        (tmp_path / folder).mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inner],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def shell_of(name: str) -> Iterator[str]:
    """Yield a stage's steps as lines of a shell script; /context is what an image is built from."""
    for word, rest in all_steps(name):
        if word == "ENV":
            yield f"export {rest}\n"
        elif word == "RUN":
            yield f"({rest})\n"
        elif word == "WORKDIR":
            yield f"mkdir -p {rest}\ncd {rest}\n"
        elif word == "COPY":
            *sources, target = shlex.split(rest)
            whole = [
                f"/context/{source}/." if source == "." else f"/context/{source}"
                for source in sources
            ]
            yield f"mkdir -p {target}\ncp -r {' '.join(whole)} {target}\n"
