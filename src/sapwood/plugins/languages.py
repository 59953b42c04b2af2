"""Languages that are compiled: what a package registers as ``sapwood.languages``.

``sapwood.testing.languages`` has the suite that a language must pass.
"""

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

__all__ = [
    "LIBRARY",
    "Artefact",
    "BuildRequest",
    "C",
    "CompiledLanguage",
    "Cpp",
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
    "host_target",
    "run_compiler",
]
