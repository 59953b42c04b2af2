"""The native part of a program: which files are built, and under which names.

Files keep the names that their author gave them, so that compilers name them. What lizard-slayer
renames on its clients is there under that name too: ``program.h`` includes the header.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from sapwood.errors import CompilerMissingError
from sapwood.plugins.programs import Bundle
from sapwood_lizard.registration import LizardDefinition, SourceFile

HEADER: Final = "program.h"
"""The name by which sources include the header, whatever it is called."""

DEVICE: Final = "sapwood_lizard_device.cu"
"""The name of Sapwood's source file in every program."""

_HOST_SUFFIXES: Final = (".c", ".cc", ".cpp", ".cxx", ".C")
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


def native_bundle(definition: LizardDefinition, *, origin: str, pickled: bytes) -> Bundle:
    """Return what is built of a program.

    Args:
        definition: The program.
        origin: Where it came from, for messages.
        pickled: The class that runs it.
    """
    files: dict[str, bytes] = {}
    sources: list[str] = []
    included = {
        PurePosixPath(name).name
        for file in definition.files
        for name in _INCLUDED.findall(file.text)
    }
    for file in definition.files:
        if file.name.endswith(".py") or file.key == "python":
            continue
        name = _built_name(file)
        files[name] = file.text.encode()
        if _is_built(file, definition, included):
            sources.append(name)
    if definition.extension:
        # Libraries for one Python do not fit another: its name is part of what is built.
        wrapper = _built_name(definition.named("cpp")[0])
        files[wrapper] += f"\n// {sysconfig.get_config_var('SOABI')}\n".encode()
    files |= _headers(definition, sources, files)
    files[DEVICE] = Path(__file__).with_name("device.cu").read_bytes()
    return Bundle(origin=origin, pickled=pickled, sources=(*sources, DEVICE), files=files)


def build_environment(
    definition: LizardDefinition, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that a program is built with: C extensions need Python's headers.

    Raises:
        CompilerMissingError: Python's headers are not installed.
    """
    found = dict(environment)
    if not definition.extension:
        return found
    folders = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    if not any((Path(folder) / "Python.h").is_file() for folder in folders):
        raise CompilerMissingError(
            "Python's headers are not installed, which a C extension needs",
            where=", ".join(sorted(folders)),
            hint="install them: apt-get install python3-dev; or write the program for ctypes",
        )
    flags = " ".join(f"-I{folder}" for folder in sorted(folders))
    for variable, more in (
        ("CXXFLAGS", flags),
        ("CFLAGS", flags),
        ("NVCC_APPEND_FLAGS", flags),
        ("LDFLAGS", "-Wl,-z,undefs"),  # Python itself is there when the extension is loaded
    ):
        found[variable] = f"{found.get(variable, '')} {more}".strip()
    return found


def _built_name(file: SourceFile) -> str:
    if file.key == "cuda" and not file.name.endswith(".cu"):
        return f"{file.name}.cu"
    if file.key == "cpp" and not file.name.endswith(_HOST_SUFFIXES):
        return f"{file.name}.cpp"
    return file.name


def _is_built(file: SourceFile, definition: LizardDefinition, included: set[str]) -> bool:
    """Return whether a file is a separate source: named as one, and not part of another."""
    if file.key == "cuda":
        return True
    if not file.key or PurePosixPath(file.name).name in included:
        return False
    if file.key == "cpp":
        # For ctypes the wrapper has no meaning; one that is not a wrapper is a source like others.
        return definition.extension or "Python.h" not in file.text
    return _built_name(file).endswith((".cu", *_HOST_SUFFIXES))


def _headers(
    definition: LizardDefinition, sources: list[str], files: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return files that include the header, beside each source, under the names it goes by."""
    found: dict[str, bytes] = {}
    headers = definition.named("header")
    if not headers:
        return found
    header = headers[0].name
    for source in sources:
        folder = str(PurePosixPath(source).parent)
        for known in (HEADER, PurePosixPath(header).name):
            name = os.path.normpath(f"{folder}/{known}")
            if name not in files and name not in found:
                target = os.path.relpath(header, folder)
                found[name] = f'#include "{target}"\n'.encode()
    return found
