"""Programs that are not made by a class of the user: their sources, as they travel to nodes.

Runners import this module, so it imports nothing of a client.
"""

from sapwood.code import floating_point
from sapwood.code.bundle import Bundle, with_sources
from sapwood.code.python_module import import_main, python_files, syntax_tree

__all__ = [
    "Bundle",
    "floating_point",
    "import_main",
    "python_files",
    "syntax_tree",
    "with_sources",
]
