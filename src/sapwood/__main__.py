"""``python -m sapwood`` is the command ``sapwood`` of this interpreter."""

from sapwood.cli.entry import main

main()
