"""Once waves of a session flow, its client and its agents begin to use the shortcuts.

No call waits for that: short work never needs them, and their import would make agents larger.
"""

from __future__ import annotations

from sapwood.activity import agent_requests
from sapwood.core.errors import SapwoodError
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.interface import StreamInterface
from sapwood.session.options import PlacesChanged
from sapwood.session.streams import StreamOptions


class Activation:
    """Tells the client and the agents of a session when to begin.

    Args:
        session: The session.
    """

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session
        self._stream: StreamInterface | None = None
        session.shortcut.on_flowing = self._begin
        session.subscribe(self._places_changed)

    def _begin(self) -> None:
        """Begin; on the loop's thread."""
        session = self._session
        if not session.shortcut.start(session.host.driver):
            return
        try:
            self._stream = session.open_stream(
                agent_requests.FASTPATH, {}, options=StreamOptions(follows=True)
            )
        except SapwoodError:
            return  # the session is closed
        self._tell()

    def _tell(self) -> None:
        if self._stream is not None and not self._session.closed:
            self._stream.broadcast({})

    def _places_changed(self, change: PlacesChanged) -> None:
        if change.back and change.agents:
            self._tell()
