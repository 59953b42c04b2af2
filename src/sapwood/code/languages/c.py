"""C by the machine's compiler."""

from __future__ import annotations

from sapwood.code.languages.compiled import CompiledLanguage


class C(CompiledLanguage):
    """C: ``cc``, ``gcc`` or ``clang``, or what ``CC`` names, with ``CFLAGS``."""

    name = "c"
    suffixes: tuple[str, ...] = (".c",)
    variable = "CFLAGS"
