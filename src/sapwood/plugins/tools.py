"""What plug-ins do as Sapwood does: log, threads, folders, texts of errors."""

from sapwood.core import typed
from sapwood.core.failures import new_thread, start_thread
from sapwood.core.futures import CallerFuture
from sapwood.core.shown import shown
from sapwood.core.states import StateTable
from sapwood.core.suggest import suggest
from sapwood.environment.folders import cache_folder, data_folder, expand_user, make_private
from sapwood.environment.logs import logger

__all__ = [
    "CallerFuture",
    "StateTable",
    "cache_folder",
    "data_folder",
    "expand_user",
    "logger",
    "make_private",
    "new_thread",
    "shown",
    "start_thread",
    "suggest",
    "typed",
]
