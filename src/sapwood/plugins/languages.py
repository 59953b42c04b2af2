"""Languages that are compiled: what a package registers as ``sapwood.languages``.

``sapwood.testing.languages`` has the suite that a language must pass.
"""

from sapwood.code import transfers
from sapwood.code.bundle import digest
from sapwood.code.interface import (
    ElementType,
    FieldType,
    FunctionSignature,
    Interface,
    ParameterSignature,
    Role,
    UnboundFunction,
)
from sapwood.code.languages.base import Artefact, BuildRequest, Language, LoadedCode
from sapwood.code.languages.c import C
from sapwood.code.languages.compiled import LIBRARY, CompiledLanguage, run_compiler
from sapwood.code.languages.cpp import Cpp
from sapwood.code.shared_library import SharedLibrary
from sapwood.code.target import Target, host_target
from sapwood.code.toolchain import Compiler, find_compiler
from sapwood.code.transfers import DeviceTransfers

__all__ = [
    "LIBRARY",
    "Artefact",
    "BuildRequest",
    "C",
    "CompiledLanguage",
    "Compiler",
    "Cpp",
    "DeviceTransfers",
    "ElementType",
    "FieldType",
    "FunctionSignature",
    "Interface",
    "Language",
    "LoadedCode",
    "ParameterSignature",
    "Role",
    "SharedLibrary",
    "Target",
    "UnboundFunction",
    "digest",
    "find_compiler",
    "host_target",
    "run_compiler",
    "transfers",
]
