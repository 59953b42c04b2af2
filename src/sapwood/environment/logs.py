"""Structured logging: an event and its fields, to the console and to a file, by component.

A component logs through :func:`logger` whether or not logging is configured: messages
go into the standard library's ``logging`` under ``sapwood.<component>``, so an application that
embeds Sapwood sees them in its own handlers. :func:`configure_logging` adds Sapwood's own: the
console for people, a file of JSON lines for programs. structlog renders both, and is imported
with the first message, because agents start faster without it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Self

from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood.core.failures import LOG
from sapwood.environment.folders import expand_user
from sapwood.environment.settings import LogSettings
from sapwood.environment.standard_error import stderr_writer

ROOT = "sapwood"

FIELDS = "sapwood_fields"
"""Attribute of a log record that holds the fields of the event."""

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": logging.CRITICAL + 1,
}


class ComponentLogger:
    """Logs the events of one component; made by :func:`logger`.

    Example:
        >>> log = logger("comm").bind(rank=3)
        >>> log.debug("link opened", peer=0)
    """

    __slots__ = ("_fields", "_logger")

    def __init__(self, target: logging.Logger, fields: dict[str, Any]) -> None:
        self._logger = target
        self._fields = fields

    def bind(self, **fields: Any) -> ComponentLogger:
        """Return a logger whose events all have these fields too."""
        return ComponentLogger(self._logger, {**self._fields, **fields})

    def debug(self, event: str, **fields: Any) -> None:
        """Log a detail that is useful only for debugging."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log what happens in normal operation."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what went wrong but was handled."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log what went wrong and was not handled."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error with the traceback of the exception being handled."""
        self._log(logging.ERROR, event, fields, exception=True)

    def _log(
        self, level: int, event: str, fields: dict[str, Any], *, exception: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(
                level,
                event,
                exc_info=exception,
                extra={FIELDS: {**self._fields, **fields}},
                stacklevel=3,
            )


def logger(component: str) -> ComponentLogger:
    """Return the logger of a component.

    Args:
        component: Its name; ``"comm.link"`` takes the levels of ``comm`` unless it has own ones.
    """
    return ComponentLogger(logging.getLogger(f"{ROOT}.{component}"), {})


class LogOutput:
    """Sapwood's own log handlers, until closed; made by :func:`configure_logging`."""

    __slots__ = ("_handlers", "_levels", "_propagate")

    def __init__(self, handlers: list[logging.Handler], levels: dict[str, int]) -> None:
        root = logging.getLogger(ROOT)
        self._handlers = handlers
        self._propagate = root.propagate
        self._levels = {name: logging.getLogger(name).level for name in levels}
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for handler in handlers:
            _open.setdefault(_target(handler), []).append(handler)
            handler.addFilter(_is_newest(handler))
            root.addHandler(handler)
        root.propagate = False

    def close(self) -> None:
        """Take the handlers away and put the levels back as they were."""
        root = logging.getLogger(ROOT)
        for handler in self._handlers:
            root.removeHandler(handler)
            _open[_target(handler)].remove(handler)
            handler.close()
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        if self._handlers:
            root.propagate = self._propagate
        self._handlers = []
        self._levels = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: object
    ) -> None:
        if isinstance(error, SapwoodError | OSError):
            self._keep_error(error)
        self.close()

    def _keep_error(self, error: SapwoodError | OSError) -> None:
        """Write the error that ends the block to the file: standard error may be closed or full.

        Not to the console, where the command line or Python shows it.
        """
        fields: dict[str, Any] = {"reason": str(error)}
        if isinstance(error, SapwoodError):
            more = {"where": error.where, "hint": error.hint, "details": error.details}
            fields = {"code": error.code, "reason": error.what}
            fields |= {name: value for name, value in more.items() if value}
        record = logging.getLogger(LOG).makeRecord(
            LOG, logging.ERROR, "", 0, "failed", (), None, extra={FIELDS: fields}
        )
        for handler in self._handlers:
            if isinstance(handler, _FileHandler):
                handler.handle(record)


_open: dict[str, list[logging.Handler]] = {}
"""The handlers that are open, by where they write; of several only the newest writes."""


def _target(handler: logging.Handler) -> str:
    return handler.baseFilename if isinstance(handler, logging.FileHandler) else ""


def _is_newest(handler: logging.Handler) -> Callable[[logging.LogRecord], bool]:
    """Return a filter that keeps a line from being written once for each cluster."""
    target = _target(handler)
    return lambda _record: _open[target][-1:] == [handler]


def configure_logging(settings: LogSettings) -> LogOutput:
    """Log to the console and, if the settings name one, to a file, in this process.

    Args:
        settings: Levels and file.

    Returns:
        The handle of the configuration; close it to undo it.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    console = _levels(settings, "console", LEVELS[settings.console])
    least = dict(console)
    handlers: list[logging.Handler] = [_ConsoleHandler()]
    handlers[0].addFilter(_by_component(console))
    if settings.file:
        file = _levels(settings, "file", LEVELS[settings.file_level])
        least = {name: min(file[name], level) for name, level in console.items()}
        handlers.append(_file_handler(expand_user(settings.file)))
        handlers[1].addFilter(_by_component(file))
    return LogOutput(handlers, least)


def _levels(settings: LogSettings, target: str, general: int) -> dict[str, int]:
    """Return the level of each logger by name for one target."""
    levels = {ROOT: general}
    # Shorter names first, so that a part of a component starts from the component's level.
    for component in sorted(settings.components):
        name = f"{ROOT}.{component}"
        own = getattr(settings.components[component], target)
        levels[name] = LEVELS[own] if own is not None else _level_of(name, levels)
    return levels


def _level_of(name: str, levels: dict[str, int]) -> int:
    while name not in levels:
        name = name.rpartition(".")[0]
    return levels[name]


def _by_component(levels: dict[str, int]) -> Callable[[logging.LogRecord], bool]:
    return lambda record: record.levelno >= _level_of(record.name, levels)


def _file_handler(path: Path) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _FileHandler(path, mode="a", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the log file cannot be written: {error.strerror}",
            where=str(path),
            hint="check log.file and the permissions of its folder",
        ) from error
    handler.setFormatter(_StructuredFormatter(_json_renderer))
    return handler


class _FileHandler(logging.FileHandler):
    """Reports once on standard error that the file is full; work continues without the log."""

    _told = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name in logging
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        if not self._told:
            self._told = True
            what = f"sapwood: the log file cannot be written: {error.strerror}"
            _show(f"{what}\n  where: {self.baseFilename}\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written cannot be flushed either
            super().close()


class _ConsoleHandler(logging.Handler):
    """Writes to whatever standard error is at the moment of the message."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_StructuredFormatter(_console_renderer))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - reported as logging is configured to
            self.handleError(record)
            return
        _show(f"{text}\n")


def _show(text: str) -> None:
    """Write to standard error without waiting for it, except for a moment on the main thread.

    There, a message must be shown before what the thread writes next.
    """
    stderr_writer.write(text)
    if threading.current_thread() is threading.main_thread():
        stderr_writer.flush()


class _StructuredFormatter(logging.Formatter):
    """Renders with structlog, which is imported with the first message."""

    def __init__(self, renderer: Callable[[], list[Any]]) -> None:
        super().__init__()
        self._renderer = renderer
        self._inner: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._inner is None:
            import structlog  # noqa: PLC0415 - agents start faster without it

            self._inner = structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[structlog.stdlib.add_log_level, _add_fields],
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *self._renderer(),
                ],
            )
        return self._inner.format(record)


def _add_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    record: logging.LogRecord = event["_record"]
    event["component"] = record.name.removeprefix(f"{ROOT}.")
    return {**getattr(record, FIELDS, {}), **event}


def _console_renderer() -> list[Any]:
    import structlog  # noqa: PLC0415 - agents start faster without it

    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return [
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(
            colors=colours, exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        ),
    ]


def _json_renderer() -> list[Any]:
    import structlog  # noqa: PLC0415 - agents start faster without it

    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_process,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=repr, ensure_ascii=False),
    ]


def _add_process(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    return {**event, "pid": os.getpid(), "node": os.uname().nodename}
