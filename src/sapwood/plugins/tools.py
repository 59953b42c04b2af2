"""What plug-ins do as Sapwood does: log, threads, folders, addresses, texts of errors."""

from sapwood.core import typed
from sapwood.core.failures import new_thread, start_thread
from sapwood.core.futures import CallerFuture
from sapwood.core.shown import shown
from sapwood.core.states import StateTable
from sapwood.core.suggest import suggest
from sapwood.environment.folders import cache_folder, data_folder, expand_user, make_private
from sapwood.environment.logs import logger
from sapwood.server.peers import Address, is_loopback, user_of

__all__ = [
    "Address",
    "CallerFuture",
    "StateTable",
    "cache_folder",
    "data_folder",
    "expand_user",
    "is_loopback",
    "logger",
    "make_private",
    "new_thread",
    "shown",
    "start_thread",
    "suggest",
    "typed",
    "user_of",
]
