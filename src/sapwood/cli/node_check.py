"""``sapwood node check``: what this machine offers and lacks, and what it can build."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug, Json, Set, assignments
from sapwood.cli.platform_check import PlatformItem, PlatformReport, check_platform
from sapwood.cli.present import print_json, table, write
from sapwood.code.target import host_target
from sapwood.code.toolchain_list import (
    LanguageStatus,
    Toolchain,
    list_languages,
    list_toolchains,
)
from sapwood.core.errors import ResourceError
from sapwood.environment.configuration import load_configuration
from sapwood.gpu.devices.registry import discover_devices
from sapwood.gpu.discovery import device_items

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "missing": ("✗", "red")}
"""Mark and colour of each status."""


@reporting
def check(
    *,
    compilers: Annotated[
        bool,
        typer.Option(
            "--compilers",
            help="List the compilers and their targets, and the languages that can be built.",
        ),
    ] = False,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what this machine offers and lacks, and how to get what is missing.

    The exit code is 5 if something is missing; warnings do not change it. With --compilers, a star
    marks the compiler that builds a language for this machine.
    """
    if compilers:
        _show_compilers(as_json=as_json)
        return
    configuration = load_configuration(assignments(settings or (), "--set"))
    devices = discover_devices()
    report = check_platform(configuration.settings, lambda: device_items(devices))
    if as_json:
        print_json({"ok": report.ok, "items": report.items, "devices": devices})
    else:
        write(report_table(report), Text(_verdict(report)))
    if not report.ok:
        raise typer.Exit(ResourceError.exit_code)


def report_table(report: PlatformReport) -> Table:
    """Return one row for each thing looked at, and one below it for what to do about it."""
    made = table("", ("", "group", "what", "found"), (), wrap="found")
    group = ""
    for item in report.items:
        mark, colour = MARKS[item.status]
        shown = "" if item.group == group else item.group
        made.add_row(Text(mark, style=colour), shown, Text(item.name), Text(item.value))
        if item.hint:
            made.add_row("", "", "", Text(f"→ {item.hint}", style="italic"))
        group = item.group
    return made


def _verdict(report: PlatformReport) -> str:
    missing = [item for item in report.items if item.status == "missing"]
    warnings = [item for item in report.items if item.status == "warning"]
    if not missing and not warnings:
        return "nothing is missing"
    return f"missing: {_names(missing)}; warnings: {_names(warnings)}"


def _names(items: list[PlatformItem]) -> str:
    return ", ".join(item.name for item in items) or "none"


def _show_compilers(*, as_json: bool) -> None:
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
