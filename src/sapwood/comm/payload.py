"""The bulk bytes of a message: a view, and where it lies if others can map it."""

from typing import Any

from sapwood.comm.shared_memory import MappedBlocks, SharedRef

_NOTHING = memoryview(b"")


class Payload:
    """Bytes that travel beside a message.

    Args:
        data: The bytes; not copied.
        ref: Where they lie in shared memory, when they do.
        owner: What keeps the bytes alive; it gets them back when nobody needs them any more.
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
        self._blocks: MappedBlocks | None = None
        self.nbytes = view.nbytes
        self.ref = ref
        self.owner = owner

    @classmethod
    def mapped(cls, ref: SharedRef, blocks: MappedBlocks, owner: Any = None) -> "Payload":
        """Return a payload in shared memory that is mapped when somebody looks at it."""
        payload = cls(_NOTHING, ref, owner)
        payload._view = None
        payload._blocks = blocks
        payload.nbytes = ref.nbytes
        return payload

    @property
    def view(self) -> memoryview:
        """The bytes.

        Raises:
            ProtocolError: They lie in shared memory that is gone.
        """
        if self._view is None:
            blocks, ref = self._blocks, self.ref
            assert blocks is not None  # noqa: S101 - mapped() sets both
            assert ref is not None  # noqa: S101 - mapped() sets both
            self._view = blocks.view(ref)
        return self._view

    def __repr__(self) -> str:
        return f"Payload({self.nbytes} bytes{', shared' if self.ref else ''})"
