"""A native function with all its arguments: what it takes to call it again without Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Output:
    """An array that the function writes, zero before each call.

    Attributes:
        name: Its field of the result.
        address: Where it lies.
        nbytes: Its size.
        around: Address and size of the memory around it that holds the pattern of guards.
    """

    name: str
    address: int
    nbytes: int
    around: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A call that was made, and can be made again while this exists.

    Attributes:
        function: The function's address.
        numbers: Integers and addresses of arrays, in the order of the C parameters, and the name
            of an array in the state where its address is not known before the call.
        floats: Floating-point numbers as they are in registers, in the order of the C parameters.
        state: The names that it takes of the state.
        outputs: What it writes, in the order of the result.
        record: What the record of calls is to hold, the address of its text first, and the name of
            an array in the state in the place of an address.
        held: The object whose memory these addresses point to.
    """

    function: int
    numbers: tuple[int | str, ...]
    floats: tuple[bytes, ...]
    state: frozenset[str]
    outputs: tuple[Output, ...]
    record: tuple[int | str, ...]
    held: object
