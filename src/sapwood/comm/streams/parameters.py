"""Parameters of own filters, changed while their stream lives.

Each set has a version, and each wave names the one it began with: all places use the same for
the same wave, however far apart they are. Places learn of a version before any wave names it.
"""

from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.stream import Stream


class Parameters:
    """The parameters of the streams of one place.

    Args:
        near: The neighbours.
        streams: The open streams.
    """

    def __init__(self, near: PeerTable, streams: dict[int, Stream]) -> None:
        self.open = streams
        self._near = near

    def configure(self, _now: float, event: ev.ConfigureStream) -> Effects:
        """Root: give the filters other parameters from the next wave on."""
        stream = self.open.get(event.stream)
        if stream is None:
            return []
        version = stream.version + 1
        _set_parameters(stream, version, event.parameters)
        links = self._near.links_to(stream.children)
        return [ev.Transmit(links, msg.Configure(event.stream, version, event.parameters))]

    def on_configure(self, link: Link, message: msg.Configure, _payload: Any) -> Effects:
        """The filters have other parameters from now on."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        _set_parameters(stream, message.version, message.parameters)
        links = self._near.links_to(stream.children)
        return [ev.Transmit(links, message)] if links else []


def _set_parameters(stream: Stream, version: int, parameters: bytes) -> None:
    stream.version = version
    stream.versions[version] = parameters
    used = [wave.version for wave in stream.waves.values()]
    oldest = min([*used, *stream.wave_versions.values(), version])
    stream.versions = {known: value for known, value in stream.versions.items() if known >= oldest}
    stream.spec = msgspec.structs.replace(stream.spec, parameters=stream.versions)
