"""From an error to what the user sees of it: a text on stderr and an exit code."""

from __future__ import annotations

import contextlib
import errno
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import typer

from sapwood.cli import starting
from sapwood.cli.present import answers_alone, print_json
from sapwood.core.errors import (
    EXCEPTION_TYPE,
    DrainedError,
    InputError,
    ResourceError,
    SapwoodError,
)
from sapwood.core.hints import DEFAULT_CLUSTER, naming
from sapwood.core.terminal_text import printable
