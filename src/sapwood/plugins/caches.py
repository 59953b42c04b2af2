"""The cache of built things, in which a plug-in keeps its own, too."""

from sapwood.code.cache import BuildCache, CacheEntry

__all__ = [
    "BuildCache",
    "CacheEntry",
]
