"""Libraries for another Python: fetched once, for that Python, and told where there are none."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.wheels import make_wheel

from sapwood.code.interruption import interrupt
from sapwood.contexts.process import children
from sapwood.contexts.runtime import PythonBuild
from sapwood.core.errors import CancelledError, ResourceError
from sapwood.environment.settings import CacheSettings
from sapwood.nodes import fetched_libraries
from sapwood.nodes.fetched_libraries import FetchedLibraries

OTHER = PythonBuild("cpython-399-x86_64-linux-gnu", "3.99.1", "glibc 2.31")
FITTING = "cp399-cp399-manylinux_2_28_x86_64"
PATIENCE = 60.0
OFFLINE = {"PIP": "PIP_NO_INDEX", "UV": "UV_OFFLINE"}
INDEX = {"PIP": "PIP_INDEX_URL", "UV": "UV_DEFAULT_INDEX"}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, in place of any index; Sapwood needs `sapling` only."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setattr(fetched_libraries, "LIBRARIES", ("sapling",))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(folder))
        monkeypatch.setenv(OFFLINE[tool], "1")
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    return folder


@pytest.fixture
def libraries(tmp_path: Path) -> FetchedLibraries:
    return FetchedLibraries(CacheSettings(folder=str(tmp_path / "cache")))


@pytest.fixture(params=["uv"])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fetches: uv, which is faster, where a test does not ask for pip as well."""
    if request.param == "uv":
        known = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name == "pip" else known(name)
        )


both = pytest.mark.parametrize("installer", ["pip", "uv"], indirect=True)


@both
@pytest.mark.usefixtures("installer")
@pytest.mark.slow
def test_what_fits_the_other_python_is_fetched_once_and_kept(
    wheels: Path, libraries: FetchedLibraries, tmp_path: Path
) -> None:
    make_wheel(wheels, "sapling", {"sapling/__init__.py": "here"}, tag="cp311-cp311-linux_x86_64")
    make_wheel(wheels, "sapling", {"sapling/__init__.py": "there"}, tag=FITTING)
    folder = libraries.folder(OTHER, "n1")
    assert (folder / "sapling" / "__init__.py").read_text() == "there"
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert libraries.folder(OTHER, "n2") == folder
    again = FetchedLibraries(CacheSettings(folder=str(tmp_path / "cache")))
    assert again.folder(OTHER, "n1") == folder


@pytest.mark.usefixtures("installer")
@pytest.mark.slow
def test_wheels_for_a_newer_c_library_are_not_taken(
    wheels: Path, libraries: FetchedLibraries
) -> None:
    make_wheel(
        wheels, "sapling", {"sapling/__init__.py": ""}, tag="cp399-cp399-manylinux_2_34_x86_64"
    )
    with pytest.raises(
        ResourceError, match=r"sapling==1\.0 has no wheels with a matching"
    ) as caught:
        libraries.folder(OTHER, "n1")
    assert "its Python 3.99.1 (cpython-399-x86_64-linux-gnu)" in caught.value.what
    assert "--python-version 3.99 " in caught.value.what
    make_wheel(wheels, "sapling", {"sapling/__init__.py": ""}, tag=FITTING)
    assert (libraries.folder(OTHER, "n1") / "sapling").is_dir()  # a failure is not remembered


@pytest.mark.usefixtures("installer")
def test_the_versions_that_are_here_are_wanted_first(
    wheels: Path, libraries: FetchedLibraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel is version 1.0: what Sapwood requires decides where there is none like here."""
    make_wheel(wheels, "msgspec", {"msgspec/__init__.py": ""}, tag=FITTING)
    make_wheel(wheels, "sapling", {"sapling/__init__.py": ""}, tag=FITTING)
    asked: list[str] = []
    install = fetched_libraries._install

    def noted(wanted: tuple[str, ...], *rest: object) -> None:
        asked.extend(wanted)
        install(wanted, *rest)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(fetched_libraries, "LIBRARIES", ("msgspec", "sapling"))
    monkeypatch.setattr(fetched_libraries, "_install", noted)
    assert (libraries.folder(OTHER, "n1") / "msgspec").is_dir()
    first, second = asked[0], asked[2]
    assert first.startswith("msgspec==")
    assert second.startswith("msgspec>=")
    assert asked[1] == asked[3] == "sapling"


@both
@pytest.mark.usefixtures("installer")
@pytest.mark.slow
def test_an_index_that_is_not_reached_is_told_with_what_to_do(
    wheels: Path, libraries: FetchedLibraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    del wheels
    for tool in ("PIP", "UV"):
        monkeypatch.delenv(OFFLINE[tool])
        monkeypatch.setenv(INDEX[tool], "http://127.0.0.1:1/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setattr(fetched_libraries, "FETCH_RETRIES", 1)
    with pytest.raises(ResourceError, match="the package index is not reached: name a") as caught:
        libraries.folder(OTHER, "n1")
    assert "`pip install --target FOLDER" in caught.value.what
    assert "nodes.packages" in caught.value.what


def test_a_machine_for_which_there_are_no_wheels_at_all_is_told_so(
    libraries: FetchedLibraries,
) -> None:
    other = PythonBuild("cpython-312-riscv64-linux-gnu", "3.12.1", "glibc 2.36")
    with pytest.raises(ResourceError, match=r"riscv64 with glibc 2\.36"):
        libraries.folder(other, "n1")


@pytest.fixture
def silent(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """An index that takes connections and never answers."""
    del wheels  # whose variables change here
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.delenv(OFFLINE["UV"])
        monkeypatch.setenv(INDEX["UV"], f"http://127.0.0.1:{port}/simple")
        listening.settimeout(PATIENCE)
        yield listening


@pytest.mark.usefixtures("installer")
def test_who_is_interrupted_ends_the_installer_and_others_go_on(
    wheels: Path,
    silent: socket.socket,
    libraries: FetchedLibraries,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[object] = []

    def fetch() -> None:
        try:
            found.append(libraries.folder(OTHER, "n1"))
        except CancelledError as error:
            found.append(error)

    first = threading.Thread(target=fetch)
    first.start()
    connection, _ = silent.accept()  # uv waits for an answer now
    with connection:
        second = threading.Thread(target=fetch)
        second.start()
        make_wheel(wheels, "sapling", {"sapling/__init__.py": ""}, tag=FITTING)
        monkeypatch.setenv(OFFLINE["UV"], "1")
        interrupt(first)
        first.join(PATIENCE)
        second.join(PATIENCE)
    assert isinstance(found[0], CancelledError)
    assert isinstance(found[1], Path)
    assert not children(threading.get_native_id())
