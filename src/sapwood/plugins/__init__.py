"""What authors of plug-ins import; one module for each kind of plug-in.

Packages that extend Sapwood, those in ``extras/`` among them, import these modules and the names of
``sapwood`` itself, and nothing else of Sapwood. Each module imports only what it exports, so that a
runner that loads a language stays small.
"""
