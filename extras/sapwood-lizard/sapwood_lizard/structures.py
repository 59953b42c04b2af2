"""What programs import as ``lizard.user_prog_resources``: C structures that travel as text.

The format is that of lizard-slayer: a structure is JSON in base64, in which what its pointers
point to is again JSON in base64, under ``dynamic``.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

__all__ = ["EncodableStructure", "b64_json_dec", "b64_json_enc"]

DYNAMIC = "dynamic"
"""Key of what pointers point to."""


def b64_json_enc(value: Any) -> str:
    """Return a value as JSON in base64.

    Example:
        >>> b64_json_enc([1, 2.5])
        'WzEsIDIuNV0='
    """
    return base64.b64encode(json.dumps(value).encode()).decode()


def b64_json_dec(text: str | bytes) -> Any:
    """Return the value that :func:`b64_json_enc` made text of.

    Raises:
        ValueError: The text is not JSON in base64.

    Example:
        >>> b64_json_dec("WzEsIDIuNV0=")
        [1, 2.5]
    """
    try:
        data = base64.b64decode(text)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error
    try:
        return msgspec.json.decode(data)  # several times faster than json.loads
    except msgspec.DecodeError:
        return json.loads(data)  # NaN and infinities, which JSON does not have


class EncodableStructure(ctypes.Structure):
    """Base of the four structures of a program.

    A subclass has ``_fields_`` as ctypes wants them, and names those that are pointers in
    ``aux_field_names``. What a pointer points to lives in C memory where the pointer is set,
    and in a Python list ``<field>_aux`` where it is not.

    Example:
        >>> class Point(EncodableStructure):
        ...     _fields_ = [("x", ctypes.c_float), ("n", ctypes.c_int)]
        >>> other = Point()
        >>> other.decode(Point(1.5, 2).encode(None), None)
        >>> other.x, other.n
        (1.5, 2)
    """

    _fields_: ClassVar[Any] = []
    aux_field_names: ClassVar[Any] = []

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} does not define __len__, so it has no length")

    def encode(self, global_params: Any) -> str:
        """Return the structure as text, with what its pointers point to."""
        data = {name: _plain(getattr(self, name)) for name in scalar_fields(type(self))}
        if self.aux_field_names:
            data[DYNAMIC] = _text(self.encode_dynamic(global_params))
        return b64_json_enc(data)

    def decode(self, encoded: str, global_params: Any, decode_aux: bool = True) -> None:  # noqa: FBT001, FBT002 - the signature that programs know
        """Decode a text into the fields; without ``decode_aux``, skip pointers."""
        data = b64_json_dec(encoded)
        for name in scalar_fields(type(self)):
            _assign(self, name, data[name])
        if decode_aux and self.aux_field_names:
            self.decode_dynamic(data[DYNAMIC], global_params)

    def get_ref(self, field: str) -> Any:
        """Return the C memory of a pointer where it is set, otherwise its Python list."""
        pointer = getattr(self, field)
        return pointer or getattr(self, f"{field}_aux")

    def init_aux_structures(self, global_params: Any) -> None:
        """Make a Python list for each pointer; to be defined by structures with pointers."""
        raise NotImplementedError

    def encode_dynamic(self, global_params: Any) -> str:
        """Return what pointers point to, as text; to be defined by structures with pointers."""
        raise NotImplementedError

    def decode_dynamic(self, encoded: str, global_params: Any) -> None:
        """Take over what pointers point to; to be defined by structures with pointers."""
        raise NotImplementedError


def field_types(kind: type[ctypes.Structure]) -> Iterator[tuple[str, Any]]:
    """Yield name and type of the fields of a structure, inherited ones first."""
    for base in reversed(kind.__mro__):
        for field in vars(base).get("_fields_", ()):
            yield field[0], field[1]


def shape_of(declared: Any) -> Any:
    """Return what of a type decides how it is encoded: equal for equal classes of two modules.

    Example:
        >>> class Point(ctypes.Structure):
        ...     _fields_ = [("x", ctypes.c_float), ("n", ctypes.c_int * 3)]
        >>> shape_of(Point)
        (('x', 'f'), ('n', (3, 'i')))
    """
    if issubclass(declared, (ctypes.Structure, ctypes.Union)):
        return tuple((name, shape_of(kind)) for name, kind in field_types(declared))
    inner = getattr(declared, "_type_", declared.__name__)
    if issubclass(declared, ctypes.Array):
        return declared._length_, shape_of(inner)
    return inner if isinstance(inner, str) else f"{inner.__name__} *"


def pointer_fields(kind: type[ctypes.Structure]) -> tuple[str, ...]:
    """Return the names that a structure gives as its pointers."""
    names = getattr(kind, "aux_field_names", ())
    return (names,) if isinstance(names, str) else tuple(names)


def scalar_fields(kind: type[ctypes.Structure]) -> list[str]:
    """Return the names of the fields that are not pointers."""
    pointers = pointer_fields(kind)
    return [name for name, _ in field_types(kind) if name not in pointers]


def _plain(value: Any) -> Any:
    """Return the value of a field as JSON has it."""
    if isinstance(value, ctypes.Array):
        return [_plain(item) for item in value]
    if isinstance(value, ctypes.Structure):
        return {name: _plain(getattr(value, name)) for name, _ in field_types(type(value))}
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _assign(owner: Any, name: str, value: Any) -> None:
    """Set a field to what :func:`_plain` made of it."""
    held = getattr(owner, name)
    if isinstance(held, ctypes.Array):
        for index, item in enumerate(value):
            _assign_item(held, index, item)
    elif isinstance(held, ctypes.Structure):
        for inner, _ in field_types(type(held)):
            _assign(held, inner, value[inner])
    else:
        setattr(owner, name, value.encode("latin-1") if isinstance(held, bytes) else value)


def _assign_item(array: Any, index: int, value: Any) -> None:
    held = array[index]
    if isinstance(held, ctypes.Array):
        for inner, item in enumerate(value):
            _assign_item(held, inner, item)
    elif isinstance(held, ctypes.Structure):
        for field, _ in field_types(type(held)):
            _assign(held, field, value[field])
    else:
        array[index] = value.encode("latin-1") if isinstance(held, bytes) else value


def _text(encoded: Any) -> str:
    return encoded.decode() if isinstance(encoded, bytes) else encoded
