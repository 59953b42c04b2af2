"""The HTTP server; it needs the extra ``sapwood[server]``."""

from sapwood.server.connections import HttpServer
from sapwood.server.limits import HttpLimits

__all__ = [
    "HttpLimits",
    "HttpServer",
]
