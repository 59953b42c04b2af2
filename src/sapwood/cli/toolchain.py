"""``sapwood toolchain``: what this machine can build, and for which targets."""

from __future__ import annotations

import os

import typer

from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.code.target import host_target
from sapwood.code.toolchain_list import (
    LanguageStatus,
    Toolchain,
    list_languages,
    list_toolchains,
)

app = typer.Typer(help="Look at compilers and their targets.", no_args_is_help=True)


@app.callback()
def _noun() -> None:
    """Keep the noun: without this a single command would take its place."""


@app.command("list")
@reporting
def list_all(*, as_json: Json = False, debug: Debug = False) -> None:
    """List the compilers, their targets, and which languages can be built.

    A star marks the compiler that builds a language for this machine.
    """
    environment = dict(os.environ)
    toolchains, known = list_toolchains(environment), list_languages(environment)
    if as_json:
        host = host_target()
        print_json(
            {
                "host": {"name": str(host), "triple": host.triple, "target": host},
                "toolchains": toolchains,
                "languages": known,
            }
        )
        return
    write(f"this machine: {host_target()}", "")
    tools = ("tool", "version", "compiles", "for")
    write(table("Tool chains", tools, map(_toolchain_row, toolchains), wrap="version"), "")
    kinds = ("language", "sources", "can be built here")
    write(table("Languages", kinds, map(_language_row, known), wrap="can be built here"))


def _toolchain_row(each: Toolchain) -> tuple[str, ...]:
    names = [f"{name}*" if name in each.chosen else name for name in each.languages]
    architectures = dict.fromkeys(text.partition("-")[0] for text in each.targets)
    return (each.name, each.version, ", ".join(names), "\n".join(architectures))


def _language_row(each: LanguageStatus) -> tuple[str, ...]:
    return (each.name, " ".join(each.suffixes), each.missing or "yes")
