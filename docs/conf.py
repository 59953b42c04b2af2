"""Sphinx configuration."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Sapwood"
author = "The Sapwood authors"
copyright = "The Sapwood authors, Apache-2.0"
version = release = installed_version("sapwood")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "error_table",
    "http_table",
    "protocol_tables",
    "role_table",
    "capability_table",
    "command_pages",
    "settings_table",
    "stability_table",
    "state_diagrams",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Sapwood {release}"
html_static_path = ["_static"]
html_show_sphinx = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = True
nitpick_ignore_regex = [
    # Annotations name objects of other packages, objects of Sapwood that are not public, and type
    # variables. References to public objects, such as sapwood.Cluster, must exist.
    (r"py:.*", r"(?:collections|concurrent|msgspec|multiprocessing|numpy|os|pathlib)\..*"),
    (r"py:.*", r"sapwood\.[a-z_]+\..*"),
    (r"py:class", r"_?[A-Z]\w*"),
    # Words of the descriptions in the annotations of settings.
    (r"py:class", r".*[ '].*"),
]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
