"""What every language must do: a suite that any implementation can be put through.

::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_language(check: Check, tmp_path: Path) -> None:
        check(Sample(language=MyLanguage(), source="a.my", text=TEXT, …), tmp_path)

The sample's source defines three functions, in whatever way the language declares them::

    twice(i) -> 2 * i                          i a whole number of 64 bits
    total(x[n]) -> sum of x                    x an array of doubles
    scale(x[n], factor) -> y[n]                y an output: factor * x

A language without declared types (Python) returns ``{"y": …}`` from ``scale``.
"""

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from sapwood.code.interface import Interface
from sapwood.code.languages.base import Artefact, BuildRequest, Language, LoadedCode
from sapwood.code.target import host_target
from sapwood.core import typed
from sapwood.core.errors import BuildError, SapwoodError


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What a check works with.

    Attributes:
        language: The language.
        source: Name of the source.
        text: A source as described above.
        changed: The same, with ``twice`` giving three times its argument.
        broken: A source that does not compile.
        broken_line: The line of its first error.
        environment: Variables of the builds.
        typed: Whether the language knows the types of arguments and refuses wrong ones.
        mapped: Whether what is loaded is a file mapped into the process.
    """

    language: Language
    source: str
    text: str
    changed: str
    broken: str
    broken_line: int
    environment: dict[str, str] = {}
    typed: bool = True
    mapped: bool = True


class Product(msgspec.Struct, frozen=True):
    """What a build made."""

    path: Path
    artefact: Artefact
    interface: Interface


def request_for(sample: Sample, folder: Path, text: str, source: str = "") -> BuildRequest:
    """Return a request to build a text as the only source in a folder."""
    name = source or sample.source
    sources, output = folder / "sources", folder / "output"
    output.mkdir(parents=True)
    (sources / name).parent.mkdir(parents=True)
    (sources / name).write_text(text)
    return BuildRequest(
        folder=sources,
        sources=(name,),
        output=output,
        target=host_target(),
        environment=sample.environment or dict(os.environ),
        origin=str(folder),
    )


def make(sample: Sample, folder: Path, text: str = "", source: str = "") -> Product:
    """Build and discover."""
    request = request_for(sample, folder, text or sample.text, source)
    artefact = sample.language.build(request)
    interface = sample.language.discover(request, artefact)
    return Product(request.output / artefact.library, artefact, interface)


@contextlib.contextmanager
def loaded(sample: Sample, product: Product) -> Iterator[LoadedCode]:
    """Load what was built, and unload it at the end."""
    code = sample.language.load(product.path, product.interface)
    try:
        yield code
    finally:
        sample.language.unload(code)


def twice_of(code: LoadedCode, number: int) -> int:
    """Call ``twice``."""
    return int(code.function("twice", {})(number))


def refuses(
    function: Callable[[], object], kind: type[SapwoodError] = SapwoodError
) -> SapwoodError:
    """Return the error that a call is refused with."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError("it is not refused")


# --- the checks --------------------------------------------------------------------------------


def says_what_decides_a_build(sample: Sample, folder: Path) -> None:
    """The identity is the same each time, is text, and needs no source to be there."""
    request = request_for(sample, folder, sample.text)
    absent = msgspec.structs.replace(request, folder=Path("nowhere"), output=Path("nowhere"))
    first, second = sample.language.identity(request), sample.language.identity(absent)
    assert dict(first) == dict(second)
    assert first, "nothing but the sources would decide a build"
    assert all(isinstance(item, str) for pair in first.items() for item in pair)


def builds_into_the_output_folder(sample: Sample, folder: Path) -> None:
    """The output is at the requested path, and the source is unchanged."""
    product = make(sample, folder)
    assert product.path.is_file()
    if product.artefact.debug:
        assert (product.path.parent / product.artefact.debug).is_file()
    assert sorted(path.name for path in folder.iterdir()) == ["output", "sources"]
    assert (folder / "sources" / sample.source).read_text() == sample.text


def discovers_functions(sample: Sample, folder: Path) -> None:
    """Every function is found, with the names of its parameters, in the order of the source."""
    interface = make(sample, folder).interface
    found = {each.name: [p.name for p in each.parameters] for each in interface.functions}
    assert {"twice", "total", "scale"} <= set(found)
    assert found["twice"] == ["i"]
    assert found["total"][0] == "x"
    assert "factor" in found["scale"]
    twice = interface.function("twice")
    assert twice is not None
    assert twice.file == sample.source
    assert 0 < twice.line <= len(sample.text.splitlines())


def describes_them_as_plain_data(sample: Sample, folder: Path) -> None:
    """A discovery survives encoding and decoding unchanged."""
    interface = make(sample, folder).interface
    again = typed.unpacker(Interface)(msgspec.msgpack.encode(interface))
    assert again == interface


def calls_with_numbers(sample: Sample, folder: Path) -> None:
    """A number goes in and comes out."""
    with loaded(sample, make(sample, folder)) as code:
        assert twice_of(code, 21) == 42
        assert twice_of(code, -(2**40)) == -(2**41)


def calls_with_arrays(sample: Sample, folder: Path) -> None:
    """Arrays of any length go in uncopied and come out, none of them changed."""
    with loaded(sample, make(sample, folder)) as code:
        total, scale = code.function("total", {}), code.function("scale", {})
        for count in (1, 2, 1000):
            x = np.arange(count, dtype=np.float64)
            assert float(total(x)) == x.sum()
            np.testing.assert_array_equal(scale(x, factor=3.0)["y"], 3 * x)
            np.testing.assert_array_equal(x, np.arange(count))


def refuses_wrong_arguments(sample: Sample, folder: Path) -> None:
    """Arguments that do not fit are refused before the function is called."""
    with loaded(sample, make(sample, folder)) as code:
        refuses(lambda: code.function("thrice", {}))
        if not sample.typed:
            return
        refuses(lambda: code.function("total", {})(np.zeros(3, np.float32)))
        refuses(lambda: code.function("total", {})(np.zeros((3, 2))))
        refuses(lambda: code.function("total", {})(np.zeros(6)[::2]))
        refuses(lambda: code.function("twice", {})(0.5))
        refuses(lambda: code.function("twice", {})(2**63))
        refuses(lambda: code.function("scale", {})(np.zeros(3)))


def reports_errors_with_file_and_line(sample: Sample, folder: Path) -> None:
    """A source that does not compile is an error with its place and the compiler's words."""
    error = refuses(lambda: make(sample, folder, sample.broken), BuildError)
    assert error.where == f"{sample.source}:{sample.broken_line}"
    assert error.details.get("compiler output", "").strip()


def builds_sources_in_folders(sample: Sample, folder: Path) -> None:
    """A source may be in a separate folder."""
    product = make(sample, folder, source=f"deep/er/{sample.source}")
    with loaded(sample, product) as code:
        assert twice_of(code, 4) == 8


def keeps_versions_apart(sample: Sample, folder: Path) -> None:
    """Two versions that are loaded at once do not meet."""
    old = make(sample, folder / "old")
    new = make(sample, folder / "new", sample.changed)
    with loaded(sample, old) as first, loaded(sample, new) as second:
        assert (twice_of(first, 5), twice_of(second, 5)) == (10, 15)
        assert (twice_of(first, 6), twice_of(second, 6)) == (12, 18)


def unloads(sample: Sample, folder: Path) -> None:
    """After unloading nothing of it is left, and another version takes its place."""
    old = make(sample, folder / "old")
    with loaded(sample, old) as code:
        assert twice_of(code, 5) == 10
        assert (str(old.path) in _mapped()) == sample.mapped
    assert str(old.path) not in _mapped()
    new = make(sample, folder / "new", sample.changed)
    old.path.unlink()
    new.path.rename(old.path)  # the same path: what the loader remembers of it must be gone
    with loaded(sample, Product(old.path, new.artefact, new.interface)) as code:
        assert twice_of(code, 5) == 15


def can_be_loaded_again_and_again(sample: Sample, folder: Path) -> None:
    """Loading and unloading leaves no file open."""
    product = make(sample, folder)
    with loaded(sample, product) as code:
        twice_of(code, 1)
    gc.collect()  # what others have left may have files open
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number
    for number in range(20):
        with loaded(sample, product) as code:
            assert twice_of(code, number) == 2 * number
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208 - as above


def refuses_a_damaged_file(sample: Sample, folder: Path) -> None:
    """A file that is missing or was damaged is an error, not a crash."""
    product = make(sample, folder)
    product.path.write_bytes(b"\x93damaged")
    refuses(lambda: sample.language.load(product.path, product.interface))
    product.path.unlink()
    refuses(lambda: sample.language.load(product.path, product.interface))


def _mapped() -> str:
    return Path("/proc/self/maps").read_text(encoding="utf-8")


Check = Callable[[Sample, Path], None]

CHECKS: tuple[Check, ...] = (
    says_what_decides_a_build,
    builds_into_the_output_folder,
    discovers_functions,
    describes_them_as_plain_data,
    calls_with_numbers,
    calls_with_arrays,
    refuses_wrong_arguments,
    reports_errors_with_file_and_line,
    builds_sources_in_folders,
    keeps_versions_apart,
    unloads,
    can_be_loaded_again_and_again,
    refuses_a_damaged_file,
)
"""All checks."""
