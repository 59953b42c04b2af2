"""The commands of ``sapwood run``; where none is named, it starts a run."""

from __future__ import annotations

from typing import Any, ClassVar

import typer

from sapwood.cli.lazy import LazyEntry, LazyGroup

COMMANDS = {
    "start": LazyEntry(
        "sapwood.cli.run:run", "Run a program over data on agents, of this machine or of others."
    ),
    "list": LazyEntry("sapwood.cli.runs:show_all", "List the active detached runs."),
    "show": LazyEntry(
        "sapwood.cli.runs:show",
        "Show how far a detached run is, its result, or why it failed.",
    ),
    "follow": LazyEntry(
        "sapwood.cli.runs:follow",
        "Show what the agents of a detached run print, until it ends, then its answer.",
    ),
    "stop": LazyEntry("sapwood.cli.runs:stop", "Stop a detached run; its session continues."),
}
"""The commands, with their lines in ``sapwood run --help``."""


class RunGroup(LazyGroup):
    """The commands of ``sapwood run``; ``sapwood run PROGRAM`` is short for its first."""

    entries = COMMANDS
    default: ClassVar[str] = "start"

    def named(self, words: list[str]) -> list[str]:
        """Return words with the name of the command, which they may lack.

        Example:
            >>> RunGroup().named(["pi.py", "--agents", "2"]), RunGroup().named(["list"])
            (['start', 'pi.py', '--agents', '2'], ['list'])
        """
        return words if words and words[0] in self.entries else [self.default, *words]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after ``sapwood run``."""
        completing = ctx.resilient_parsing and not args
        about_all = completing or args[:1] in [[name] for name in ctx.help_option_names]
        return super().parse_args(ctx, args if about_all else self.named(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text: the one of starting a run, and the other commands."""
        self.help = self.commands[self.default].help
        super().format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group; in its help text, those of starting a run."""
        if not self._listing:
            return super().get_params(ctx)
        found: list[Any] = self.commands[self.default].get_params(ctx)
        return found

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what the help text says that follows ``sapwood run``."""
        del ctx
        return ["[OPTIONS] PROGRAM | COMMAND [ARGS]..."]

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the commands and the programs that begin with some letters."""
        parameters = self.commands[self.default].params
        (program,) = (one for one in parameters if one.param_type_name == "argument")
        commands = super().shell_complete(ctx, incomplete)
        return [*commands, *program.shell_complete(ctx, incomplete)]


app = typer.Typer(cls=RunGroup)
