"""The command ``sapwood``, one file a noun: ``node.py`` holds ``sapwood node``, and so on.

``sapwood run`` and ``sapwood lizard run`` have a second file each, ``run_command.py`` and
``lizard_command.py``: what these do imports numpy, which ``--help`` must not wait for. Shared by
several nouns: ``options.py``, ``present.py`` (tables, figures, JSON), ``progress.py`` (follows a
run), ``failures.py`` (exit codes) and ``interrupts.py`` (Ctrl-C).

Typer reads the options of a command from the parameters of its function, so such a function has as
many; it hands them on as few frozen objects (``RunRequest``, ``SimulationOptions``, ``Faults``).
"""
