"""The command ``sapwood``, one file a noun: ``node.py`` holds ``sapwood node``, and so on.

``main.py`` has a table of all commands; their modules are imported when they are called. Shared by
several nouns: ``options.py``, ``declared.py`` (options that follow from a struct), ``present.py``
(tables, figures, JSON), ``progress.py`` (follows a run), ``failures.py`` (exit codes) and
``interrupts.py`` (Ctrl-C).
"""
