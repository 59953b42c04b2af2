"""Numbers of nodes that stay what they are for a client when another head counts anew."""

from __future__ import annotations

import msgspec

from sapwood.head.calls import NodeRecord


class NodeNumbers:
    """What a client and its head call nodes: the same, until another head takes over.

    A node is known by its id in certificates, which it keeps from head to head.

    Example:
        >>> numbers = NodeNumbers()
        >>> one = NodeRecord(host=1, name="a", node="n1.lab", state="ready")
        >>> numbers.taken(one).host
        1
        >>> numbers.begin()
        >>> again = NodeRecord(host=7, name="a", node="n1.lab", state="ready")
        >>> numbers.taken(again).host, numbers.at_head(1), numbers.here(7)
        (1, 7, 1)
    """

    def __init__(self) -> None:
        self._here: dict[int, int] = {}
        self._at_head: dict[int, int] = {}
        self._of_node: dict[str, int] = {}
        self._last = 0

    def begin(self) -> None:
        """Forget what the former head called them."""
        self._here.clear()
        self._at_head.clear()

    def taken(self, record: NodeRecord) -> NodeRecord:
        """Return what the head tells of a node, with the number that it has here."""
        number = self._of_node.get(record.node) if record.node else None
        if number is None:
            number = self._here.get(record.host)
        if number is None:
            taken = {*self._at_head, *self._of_node.values()}
            number = record.host if record.host not in taken else max(self._last, *taken) + 1
        self._last = max(self._last, number)
        self._here[record.host], self._at_head[number] = number, record.host
        if record.node:
            self._of_node[record.node] = number
        return msgspec.structs.replace(record, host=number)

    def here(self, number: int) -> int:
        """Return what is called so at the head; 0 if it did not tell of it."""
        return self._here.get(number, 0)

    def at_head(self, number: int) -> int:
        """Return what the head calls a node; 0 if it does not know it."""
        return self._at_head.get(number, 0)
