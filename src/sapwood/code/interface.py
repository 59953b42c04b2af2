"""What a built library offers: functions with exact types, as plain data.

A runner reads these structures from the image; it needs neither the compiler nor the
libraries that found them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

NO_SHAPE: tuple[int, ...] = ()


class ElementType(msgspec.Struct, frozen=True, omit_defaults=True):
    """The type of a value, of an array's elements, or of a struct's member.

    Attributes:
        c: The type as C text, for example ``int64_t`` or ``struct point``.
        dtype: The numpy type, for example ``<f8``; empty for a struct.
        size: Bytes, without ``shape``.
        fields: Members of a struct.
        shape: Extents of an array member, or of the arrays that a pointer points to.
    """

    c: str
    dtype: str = ""
    size: int = 0
    fields: tuple[FieldType, ...] = ()
    shape: tuple[int, ...] = NO_SHAPE

    def numpy(self) -> np.dtype[Any]:
        """Return the numpy type of one element, without ``shape``."""
        if not self.fields:
            return np.dtype(self.dtype)
        return np.dtype(
            {
                "names": [field.name for field in self.fields],
                "formats": [(field.type.numpy(), field.type.shape) for field in self.fields],
                "offsets": [field.offset for field in self.fields],
                "itemsize": self.size,
            }
        )


class FieldType(msgspec.Struct, frozen=True):
    """A member of a struct; the offset is in bytes."""

    name: str
    offset: int
    type: ElementType


class Role(enum.StrEnum):
    """What a parameter is to the caller."""

    SCALAR = "scalar"
    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"


class ParameterSignature(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter of a native function.

    Attributes:
        name: Its name in the source.
        c: Its type as C text.
        element: Its type, or what it points to.
        role: A value, or an array that is read, written or both.
        shape: What its annotation says of each extent: names and whole numbers combined by
            ``+ - * /``; None when nothing is said.
    """

    name: str
    c: str
    element: ElementType
    role: Role = Role.SCALAR
    shape: tuple[str, ...] | None = None

    @property
    def declaration(self) -> str:
        """The parameter as C text."""
        if "(*)" in self.c:
            return self.c.replace("(*)", f"(*{self.name})")
        return f"{self.c}{self.name}" if self.c.endswith("*") else f"{self.c} {self.name}"


class FunctionSignature(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function of a library; ``returns`` is None for void."""

    name: str
    parameters: tuple[ParameterSignature, ...] = ()
    returns: ElementType | None = None
    doc: str = ""
    file: str = ""
    line: int = 0

    @property
    def declaration(self) -> str:
        """The function as C text."""
        inner = ", ".join(parameter.declaration for parameter in self.parameters) or "void"
        return f"{self.returns.c if self.returns else 'void'} {self.name}({inner})"

    @property
    def where(self) -> str:
        """File and line of its definition."""
        return f"{self.file}:{self.line}" if self.file else ""


class UnboundFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that is there but cannot be called from Python, and why."""

    name: str
    reason: str
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """File and line of its definition."""
        return f"{self.file}:{self.line}" if self.file else ""


class Interface(msgspec.Struct, frozen=True, omit_defaults=True):
    """All functions of one library."""

    functions: tuple[FunctionSignature, ...] = ()
    unbound: tuple[UnboundFunction, ...] = ()

    def names(self) -> Iterator[str]:
        """Yield the names of the functions that can be called."""
        return (function.name for function in self.functions)

    def function(self, name: str) -> FunctionSignature | None:
        """Return the signature of a function, or None."""
        return next((function for function in self.functions if function.name == name), None)


def merge_interfaces(interfaces: list[Interface]) -> Interface:
    """Return one interface of several."""
    return Interface(
        functions=tuple(f for interface in interfaces for f in interface.functions),
        unbound=tuple(f for interface in interfaces for f in interface.unbound),
    )
