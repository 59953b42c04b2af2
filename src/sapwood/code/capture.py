"""Capturing a program: its files, or its class where Python imported it from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from sapwood.code.bundle import Bundle, with_sources
from sapwood.core.errors import ProgramError


def capture(own: Bundle | None, kind: type, root: type) -> Bundle:
    """Return the bundle of a program class, reading its files now.

    Args:
        own: The files that the class was read from, if it was.
        kind: The class.
        root: The class that all programs derive from.

    Raises:
        ProgramError: A source is missing, or the class cannot be sent to another process.
    """
    bases = kind.__mro__[: kind.__mro__.index(root)]
    folder = _sources_folder(bases)
    bundle = own or Bundle(origin=str(folder), pickled=_pickle_class(kind, bases))
    sources: tuple[str, ...] = tuple(getattr(kind, "sources", ()))
    return with_sources(bundle, sources, folder=folder, named_by=kind.__name__)


def unpickle_class(pickled: bytes) -> type:
    """Return a class from its pickle. This runs code: call it only in a runner."""
    import pickle  # noqa: PLC0415 - code of the user, like a library; only runners load it

    kind = pickle.loads(pickled)  # noqa: S301 - as above
    if not isinstance(kind, type):
        raise ProgramError("the image of a program holds no class")
    return kind


def _sources_folder(bases: tuple[type, ...]) -> Path:
    """Return the folder of the file whose class names the sources, or the working folder."""
    for base in bases:
        if "sources" in vars(base):
            bundle: Bundle | None = vars(base).get("class_bundle")
            if bundle is not None:
                return Path(bundle.origin)
            file = getattr(sys.modules.get(base.__module__), "__file__", None)
            return Path(file).resolve().parent if file else Path.cwd()
    return Path.cwd()


def _pickle_class(kind: type, bases: tuple[type, ...]) -> bytes:
    # Only scripts and notebooks need it.
    import cloudpickle  # noqa: PLC0415

    from sapwood.code.pickling import pickle_of  # noqa: PLC0415

    # By value, with all that it refers to in its module: an edit does not reach a run.
    by_value = [
        module
        for module in _modules(bases)
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    ]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        return pickle_of(kind)
    except Exception as error:
        raise ProgramError(
            f"class {kind.__name__} cannot be sent to an agent: {error}",
            where=kind.__module__,
            hint="it refers to something that cannot be copied (a lock, an open file); make that "
            "in the method that needs it",
        ) from error
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _modules(bases: tuple[type, ...]) -> list[ModuleType]:
    names = {base.__module__ for base in bases} - {"__main__", "sapwood.code.stencil"}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]
