"""What ``sapwood runs`` and ``sapwood run --detach`` do."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import typer

from sapwood.activity.progress import RunState
from sapwood.cli.failures import show_error
from sapwood.cli.head_connection import asked_head
from sapwood.cli.options import RunRequest
from sapwood.cli.present import begun_again, print_json, table, write
from sapwood.cli.progress import progress_line
from sapwood.cli.run_report import RunAnswer, show_answer
from sapwood.cli.work_tables import show_work
from sapwood.client.detached_runs import DetachedRun, DetachedRuns
from sapwood.core import typed
from sapwood.core.hints import command
from sapwood.core.terminal_text import printable
