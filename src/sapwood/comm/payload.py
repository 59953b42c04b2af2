"""The bulk bytes of a message: a view, and where it lies if others can map it."""

from typing import Any, Protocol

from sapwood.comm.shared_memory import AdoptedBlock, SharedRef, private_view
from sapwood.core.errors import ProtocolError

_NOTHING = memoryview(b"")


class Blocks(Protocol):
    """Maps shared memory."""

    def view(self, ref: SharedRef) -> memoryview:
        """Return the bytes that a reference names."""


class _PrivateBlocks:
    """Maps blocks that are read once, without keeping the mapping for others."""

    def view(self, ref: SharedRef) -> memoryview:
        return private_view(ref)


class Payload:
    """Bytes that travel beside a message.

    Args:
        data: The bytes; not copied.
        ref: Where they are in shared memory; None elsewhere.
        owner: What keeps the bytes alive; it gets them back when they are no longer needed.
    """

    __slots__ = ("_blocks", "_view", "nbytes", "owner", "ref")

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        ref: SharedRef | None = None,
        owner: Any = None,
    ) -> None:
        view = memoryview(data)
        self._view: memoryview | None = (
            view if view.format == "B" and view.ndim == 1 else view.cast("B")
        )
        self._blocks: Blocks | None = None
        self.nbytes = view.nbytes
        self.ref = ref
        self.owner = owner

    @classmethod
    def mapped(cls, ref: SharedRef, blocks: Blocks, owner: Any = None) -> "Payload":
        """Return a payload in shared memory that is mapped when it is first read."""
        payload = cls(_NOTHING, ref, owner)
        payload._view = None
        payload._blocks = blocks
        payload.nbytes = ref.nbytes
        return payload

    @classmethod
    def elsewhere(cls, nbytes: int) -> "Payload":
        """Return a payload whose bytes are stored elsewhere and are fetched on demand."""
        payload = cls(_NOTHING)
        payload._view = None
        payload.nbytes = nbytes
        return payload

    @property
    def is_here(self) -> bool:
        """Whether the bytes can be looked at here."""
        return self._view is not None or self._blocks is not None

    @classmethod
    def adopted(cls, ref: SharedRef) -> "Payload":
        """Return a payload in shared memory that this process holds from now on, too.

        Its owner is to be closed when it is needed no more.

        Raises:
            ProtocolError: The memory is gone.
        """
        block = AdoptedBlock(ref)
        return cls.mapped(block.ref, _PrivateBlocks(), block)

    def keep(self) -> None:
        """Hold the shared memory in which the bytes lie, until :attr:`owner` is closed.

        Raises:
            ProtocolError: The memory is gone.
        """
        if self.ref is not None:
            self.owner = AdoptedBlock(self.ref)
            self.ref = self.owner.ref
            self._blocks = _PrivateBlocks()

    def lent(self) -> "Payload":
        """Return the same bytes for a reader that does not own them."""
        if self.ref is None or self._blocks is None or self._view is not None:
            return Payload(self.view, self.ref)
        return Payload.mapped(self.ref, self._blocks)

    @property
    def view(self) -> memoryview:
        """The bytes.

        Raises:
            ProtocolError: Their shared memory is gone.
        """
        if self._view is None:
            blocks, ref = self._blocks, self.ref
            assert blocks is not None  # noqa: S101 - mapped() sets both
            assert ref is not None  # noqa: S101 - mapped() sets both
            self._view = blocks.view(ref)
        return self._view

    def part(self, start: int, stop: int) -> "Payload | None":
        """Return some of the bytes, not copied; None for none.

        Raises:
            ProtocolError: They are not all there.

        Example:
            >>> bytes(Payload(b"abcdef").part(2, 4).view)
            b'cd'
        """
        if not 0 <= start <= stop <= self.nbytes:
            raise ProtocolError(f"bytes {start} to {stop} of a payload of {self.nbytes}")
        if start == stop:
            return None
        ref = self.ref
        if ref is not None:
            nbytes = stop - start
            ref = SharedRef(ref.pid, ref.fd, ref.inode, ref.capacity, ref.offset + start, nbytes)
            if self._view is None and self._blocks is not None:
                return Payload.mapped(ref, self._blocks)
        return Payload(self.view[start:stop], ref)

    def __repr__(self) -> str:
        return f"Payload({self.nbytes} bytes{', shared' if self.ref else ''})"
