"""Which transport an address is for: ``unix:/path``, ``tls://NODEID@host:port``, or a plug-in.

A plug-in registers a factory of no arguments under the entry-point group
``sapwood.transports``; its name is the scheme.
"""

import difflib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from sapwood.comm.transport.base import Transport
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown

GROUP = "sapwood.transports"

NewTransport = Callable[[], Transport]


class Transports:
    """Transports by scheme.

    Args:
        known: Those that need more than a name, for example TCP with its certificates.

    Example:
        >>> Transports().find("unix:/tmp/x.sock")[1]
        '/tmp/x.sock'
    """

    def __init__(self, known: Mapping[str, NewTransport] | None = None) -> None:
        self._known: dict[str, NewTransport] = {"unix": UnixTransport, **(known or {})}
        self._plugins = {entry.name: entry for entry in entry_points(group=GROUP)}

    @property
    def schemes(self) -> list[str]:
        """What addresses may begin with."""
        return sorted({*self._known, *self._plugins})

    def find(self, address: str) -> tuple[Transport, str]:
        """Return the transport of an address, and the address without its scheme.

        Raises:
            ConfigurationError: No transport has this scheme, or it cannot be loaded.
        """
        scheme, separator, rest = address.partition(":")
        factory = self._known.get(scheme)
        if factory is None and scheme in self._plugins:
            factory = self._known[scheme] = self._load(scheme)
        if not separator or factory is None:
            near = difflib.get_close_matches(scheme, self.schemes, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(self.schemes)}"
            raise ConfigurationError(f"no transport {shown(scheme)}", where=address, hint=hint)
        return factory(), rest.removeprefix("//")

    def _load(self, scheme: str) -> NewTransport:
        entry = self._plugins[scheme]
        try:
            loaded: NewTransport = entry.load()
        except Exception as error:
            raise ConfigurationError(
                f"the transport {shown(scheme)} cannot be loaded: {error}",
                where=entry.value,
                hint="install it again, or choose another one",
            ) from error
        return loaded


def transport_of_machine(scheme: str) -> Transport:
    """Return what links the places of a machine.

    Args:
        scheme: Its name; empty for Unix sockets.

    Raises:
        ConfigurationError: There is no such transport, or it cannot be loaded.
    """
    return Transports().find(f"{scheme or 'unix'}:")[0]
