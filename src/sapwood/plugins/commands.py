"""What commands are made of that other packages add to ``sapwood``.

A package registers a function, or a :class:`typer.Typer` for a group, under the entry point group
``sapwood.commands``. The name of the entry point is the name of the command, and the summary of the
package is its line in ``sapwood --help``.
"""

from sapwood.cli.failures import EXIT_INTERRUPTED, reporting
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.options import Debug, Json, assignments, run_settings
from sapwood.cli.present import print_json, table, write
from sapwood.cli.progress import follow, open_display
from sapwood.contexts import background
from sapwood.contexts.process import die_with_parent
from sapwood.core.hints import command_line
from sapwood.environment.configuration import load_configuration
from sapwood.environment.cores import usable_cores
from sapwood.environment.logs import configure_logging
from sapwood.environment.units import describe_size, parse_duration

__all__ = [
    "EXIT_INTERRUPTED",
    "Debug",
    "Json",
    "assignments",
    "background",
    "command_line",
    "configure_logging",
    "describe_size",
    "die_with_parent",
    "follow",
    "load_configuration",
    "open_display",
    "parse_duration",
    "print_json",
    "reporting",
    "run_settings",
    "table",
    "termination_interrupts",
    "usable_cores",
    "write",
]
