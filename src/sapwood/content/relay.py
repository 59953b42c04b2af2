"""Passes content on to machines below: a junction fetches it once, for its node and for them.

Chunks are passed on while the rest still arrives, whichever process of the node fetches it: the
partial file says how much of it is there. A place below that gets no answer asks further up, from
the byte at which it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.loop import Timer
from sapwood.comm.payload import Payload
from sapwood.content.cache import PAUSE, ContentCache, ContentFetch, HeldContent
from sapwood.content.refs import CHUNK, ContentChunk, ContentRef, checked_sha256
from sapwood.core import typed
from sapwood.core.errors import ProtocolError, SapwoodError

MAX_PASSED: Final = 16 * 2**20
"""Bytes of chunks that a junction has sent and that were not taken yet."""

IDLE: Final = 10.0
"""Seconds for which unused content is held."""

MAX_WAITING: Final = 4096
"""Requests that wait at one junction."""


class _Passed:
    """One piece of content, and who waits for parts of it."""

    def __init__(self, ref: ContentRef) -> None:
        self.ref = ref
        self.fetch: ContentFetch | None = None
        self.held: HeldContent | None = None
        self.waiting: list[tuple[ev.Asked, int, int]] = []
        self.fd = -1
        self.used = 0.0

    def close(self) -> None:
        if self.fetch is not None:
            self.fetch.cancel()
        if self.held is not None:
            self.held.close()
        self.let_go()

    def let_go(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class ContentRelay:
    """What a junction does for machines below it.

    Args:
        cache: The content folder of its node.
        answer: Answers a request with bytes.
        fail: Answers a request with an error.

    Attributes:
        passed: Bytes that were passed on.
    """

    def __init__(
        self,
        cache: ContentCache,
        answer: Callable[[ev.Asked, Payload], None],
        fail: Callable[[ev.Asked, SapwoodError], None],
    ) -> None:
        self._cache = cache
        self._answer = answer
        self._fail = fail
        self._content: dict[str, _Passed] = {}
        self._under_way = 0
        self._timer: Timer | None = None
        self.passed = 0
        cache.on_written = self._serve

    def asked(self, asked: ev.Asked) -> None:
        """Pass a chunk on, when it is here.

        Raises:
            ProtocolError: The request is malformed, or there are too many.
        """
        try:
            sha256, nbytes, offset, count = typed.convert(
                plain.decode(asked.body), tuple[str, int, int, int]
            )
        except msgspec.ValidationError as error:
            raise ProtocolError(f"malformed request for content: {error}") from error
        checked_sha256(sha256)
        if not (0 < count <= CHUNK and 0 <= offset <= nbytes - count):
            raise ProtocolError(f"bytes {offset} to {offset + count} of content of {nbytes} bytes")
        if sum(len(one.waiting) for one in self._content.values()) >= MAX_WAITING:
            raise ProtocolError(f"more than {MAX_WAITING} requests for content wait here")
        one = self._content.get(sha256)
        if one is not None and one.ref.nbytes != nbytes:
            raise ProtocolError(f"content of {one.ref.nbytes} bytes, not {nbytes}")
        begins = one is None
        if one is None:
            one = self._content[sha256] = _Passed(ContentRef(sha256, nbytes))
        one.waiting.append((asked, offset, count))
        one.used = self._cache.loop.time()
        if begins:
            self._begin(one)
        self._serve()

    def close(self) -> None:
        """Pass nothing on any more."""
        if self._timer is not None:
            self._timer.cancel()
        for one in self._content.values():
            one.close()
        self._content.clear()

    def _begin(self, one: _Passed) -> None:
        """Have content fetched; it is passed on meanwhile."""
        ended = False

        def done(held: HeldContent) -> None:
            nonlocal ended
            ended = True
            one.fetch, one.held = None, held
            if self._content.get(one.ref.sha256) is not one:
                held.close()
            self._serve()

        def failed(error: SapwoodError) -> None:
            nonlocal ended
            ended = True
            one.fetch = None
            self._forget(one)
            for asked, _, _ in one.waiting:
                self._fail(asked, error)

        fetch = self._cache.fetch([one.ref], done, failed)
        if not ended:
            one.fetch = fetch

    def _forget(self, one: _Passed) -> None:
        if self._content.get(one.ref.sha256) is one:
            del self._content[one.ref.sha256]
        one.close()

    def _serve(self) -> None:
        """Answer what can be answered; look again soon if something is left."""
        now = self._cache.loop.time()
        for one in list(self._content.values()):
            self._serve_one(one)
            if not one.waiting and now - one.used > IDLE:
                self._forget(one)
        if self._content and self._timer is None:
            waits = any(one.waiting for one in self._content.values())
            self._timer = self._cache.loop.call_later(PAUSE if waits else IDLE, self._look)

    def _look(self) -> None:
        self._timer = None
        self._serve()

    def _serve_one(self, one: _Passed) -> None:
        if not one.waiting or self._under_way >= MAX_PASSED:
            return
        here = self._bytes_here(one)
        left: list[tuple[ev.Asked, int, int]] = []
        waiting, one.waiting = one.waiting, left
        for asked, offset, count in waiting:
            full = self._under_way + count > MAX_PASSED
            data = b"" if full or offset + count > here else os.pread(one.fd, count, offset)
            if len(data) != count:
                left.append((asked, offset, count))
                continue
            self._under_way += count
            self.passed += count
            one.used = self._cache.loop.time()
            self._answer(asked, Payload(data, owner=ContentChunk(partial(self._taken, count))))

    def _taken(self, count: int) -> None:
        self._under_way -= count
        if self._timer is None:
            self._timer = self._cache.loop.call_later(0.0, self._look)

    def _bytes_here(self, one: _Passed) -> int:
        """Return how many bytes of content are in the folder, from its beginning."""
        if one.fd >= 0 and not os.fstat(one.fd).st_nlink:
            one.let_go()  # whoever fetched it gave up
        if one.fd < 0:
            for name in (one.ref.sha256, self._cache.part_of(one.ref.sha256).name):
                with contextlib.suppress(OSError):
                    one.fd = os.open(self._cache.folder / name, os.O_RDONLY | os.O_CLOEXEC)
                    break
        return 0 if one.fd < 0 else self._cache.progress(one.fd, one.ref.nbytes)
