"""What the launcher for Ray refuses before it asks Ray, and how it reads what Ray says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood.client.hosts import start
from sapwood.contexts.launchers import ray_holder
from sapwood.contexts.launchers.allocation import AllocationState
from sapwood.contexts.launchers.ray import RayLauncher
from sapwood.contexts.launchers.ray_holder import SapwoodCommand, connection_refused
from sapwood.core.errors import ConfigurationError, ResourceError


@pytest.fixture
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else name)


@pytest.fixture
def _some_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", str)


@pytest.mark.usefixtures("_no_ray")
def test_a_python_without_ray_is_named() -> None:
    with pytest.raises(ConfigurationError, match="this Python has no Ray") as caught:
        RayLauncher(2)
    assert "pip install ray==VERSION" in caught.value.hint
    assert caught.value.where == sys.executable


@pytest.mark.usefixtures("_some_ray")
def test_a_client_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="not of a client server"):
        RayLauncher(2, address="ray://10.0.0.1:10001")
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.1:10001")
    with pytest.raises(ConfigurationError, match="not of a client server"):
        RayLauncher(2)


@pytest.mark.usefixtures("_some_ray")
def test_nothing_starts_before_the_machines_are_there() -> None:
    launcher = RayLauncher(2)
    assert launcher.state is AllocationState.DELAYED
    with pytest.raises(ResourceError, match="given back"):
        launcher.start("n1", "true")
    launcher.close()


@pytest.mark.parametrize("spec", ["ray", "ray:", "ray:0", "ray:-1", "ray:n1", "ray:2,3"])
def test_a_number_of_machines_is_needed(spec: str) -> None:
    with pytest.raises(ConfigurationError, match="names no machines"):
        start(spec)


@pytest.mark.slow
def test_a_python_without_ray_is_named_by_what_holds_the_machines(tmp_path: Path) -> None:
    """Ray can be found and yet not imported."""
    (tmp_path / "ray.py").write_text("raise ImportError('libray.so: no such file')")
    code = (
        "import sys; from sapwood.contexts.launchers.ray import RayLauncher\n"
        "try: RayLauncher(2).request()\n"
        "except Exception as error: print(error.what)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "this Python has no Ray: libray.so: no such file\n"


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("Version mismatch: The cluster was started with:\n Ray: 1", "configuration", "versions"),
        ("Could not find any running Ray instance", "configuration", "no Ray cluster runs"),
        ("InvalidAuthToken: authentication failed", "configuration", "does not let us in"),
        ("Failed to connect to GCS", "resource", "cannot be reached"),
    ],
)
def test_what_ray_says_has_a_meaning(said: str, kind: str, told: str) -> None:
    refusal = connection_refused(said)
    assert refusal.told["kind"] == kind
    assert told in refusal.told["refused"]
    assert refusal.told["hint"]


def test_a_command_has_the_variables_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    other = subprocess.Popen(
        ["sh", "-c", "echo began; read x"],
        env={"WHOSE": "machine", "PATH": "/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"began\n"  # the kernel shows its variables by then
        monkeypatch.setenv("RAY_RAYLET_PID", str(other.pid))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        found = SapwoodCommand.environment()
    finally:
        other.communicate()
    assert found["WHOSE"] == "machine"
    assert found["CUDA_VISIBLE_DEVICES"] == "3"
    assert "OMP_NUM_THREADS" not in found
    monkeypatch.delenv("RAY_RAYLET_PID")
    assert SapwoodCommand.environment()["OMP_NUM_THREADS"] == "1"


def test_a_command_that_ignores_the_end_of_its_input_is_killed() -> None:
    command = SapwoodCommand("sleep 600", ray_holder.CHUNK)
    command.end(0.01)
    assert command.wait() == -9
    assert command.read(1) == b""
    assert not command.write(b"x")
    for stream in (command._process.stdout, command._process.stderr):
        assert stream is not None
        stream.close()
