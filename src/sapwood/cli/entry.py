"""The console script: an interrupt is an answer of its own, even while modules are imported."""

import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Run the command line."""
    try:
        from sapwood.cli.main import main as run  # noqa: PLC0415 - the import may be interrupted

        run()
    except KeyboardInterrupt:
        sys.stderr.write("sapwood: interrupted\n")
        sys.exit(INTERRUPTED)
