"""What the work of one place needs of content: fetched before it begins, held until it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from sapwood.core.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.activity.agent_requests import AgentSettings
    from sapwood.comm.loop import Loop
    from sapwood.content.fetch import AskPlace, ContentCache, ContentFetch, HeldContent
    from sapwood.content.refs import ContentRef


class AskingPlace(Protocol):
    """A place that can ask the client."""

    @property
    def loop(self) -> Loop:
        """Its event loop."""

    @property
    def ask(self) -> AskPlace:
        """Sends a request."""

    def content_sources(self) -> tuple[int, ...]:
        """Return the places that may have content for this machine, nearest first."""


class NeededContent:
    """Content by the name of the work that needs it.

    Args:
        place: The place whose work it is.
        settings: Where content is kept, and how much.
    """

    __slots__ = ("_cache", "_fetches", "_held", "_place", "_settings")

    def __init__(self, place: AskingPlace, settings: AgentSettings) -> None:
        self._place = place
        self._settings = settings
        self._cache: ContentCache | None = None
        self._fetches: dict[str, ContentFetch] = {}
        self._held: dict[str, HeldContent] = {}

    def fetch(
        self,
        name: str,
        refs: Sequence[ContentRef],
        on_done: Callable[[HeldContent], None],
        on_error: Callable[[SapwoodError], None],
    ) -> None:
        """Have here what some work needs; it is held until :meth:`drop`.

        Args:
            name: The work.
            refs: What it needs.
            on_done: Told when it is here, perhaps before this returns.
            on_error: Told why it cannot be had.
        """
        self.drop(name)
        ended = False

        def done(held: HeldContent) -> None:
            nonlocal ended
            ended = True
            self._fetches.pop(name, None)
            self._held[name] = held
            on_done(held)

        def failed(error: SapwoodError) -> None:
            nonlocal ended
            ended = True
            self._fetches.pop(name, None)
            on_error(error)

        fetch = self.opened_cache().fetch(refs, done, failed)
        if not ended:
            self._fetches[name] = fetch

    def drop(self, name: str) -> None:
        """Some work has ended, or is not wanted any more."""
        fetch = self._fetches.pop(name, None)
        if fetch is not None:
            fetch.cancel()
        held = self._held.pop(name, None)
        if held is not None:
            held.close()

    def close(self) -> None:
        """Drop what all work needs."""
        for name in [*self._fetches, *self._held]:
            self.drop(name)

    def opened_cache(self) -> ContentCache:
        """Return the content folder of the node."""
        if self._cache is None:
            # Only places that do not share the machine of the root need it.
            from sapwood.content.fetch import ContentCache  # noqa: PLC0415 - see above

            settings, place = self._settings, self._place
            folder = content_folder(settings)
            limit = settings.content_cache
            sources = place.content_sources()
            self._cache = ContentCache(folder, limit, place.ask, place.loop, sources)
        return self._cache


def content_folder(settings: AgentSettings) -> str:
    """Return where this node keeps content."""
    # Imported here: an agent that shares the machine of the root loads no pathlib.
    from sapwood.environment.folders import cache_folder, expand_user  # noqa: PLC0415

    chosen = settings.content_folder
    return str(expand_user(chosen).absolute() if chosen else cache_folder() / "content")
