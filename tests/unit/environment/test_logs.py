import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.core.errors import ConfigurationError, InputError
from sapwood.environment.logs import ROOT, configure_logging, logger
from sapwood.environment.settings import LevelPair, LogSettings


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that closing an output takes everything back."""
    root = logging.getLogger(ROOT)
    before = (list(root.handlers), root.level, root.propagate)
    yield
    assert (list(root.handlers), root.level, root.propagate) == before


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_console_shows_event_component_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with configure_logging(LogSettings(console="info")):
        logger("comm").bind(rank=3).info("link %s opened", peer="a b")
        logger("comm").debug("not shown")
    text = capsys.readouterr().err
    assert "link %s opened" in text
    assert "component=comm" in text
    assert "peer='a b'" in text
    assert "rank=3" in text
    assert "not shown" not in text
    assert "\x1b" not in text


def test_colours_only_on_a_terminal_that_wants_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with configure_logging(LogSettings()):
        logger("comm").warning("colourful")
    assert "\x1b" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    with configure_logging(LogSettings()):
        logger("comm").warning("plain")
    assert "\x1b" not in capsys.readouterr().err


def test_the_file_holds_one_object_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    with configure_logging(LogSettings(file=str(path))):
        logger("data").debug("loaded", nbytes=5, path=Path("/x"), text="ü\n")
        try:
            raise ValueError("no")  # the traceback is what is looked for
        except ValueError:
            logger("data").exception("failed")
    first, second = lines_of(path)
    assert first["event"] == "loaded"
    assert (first["component"], first["level"], first["nbytes"]) == ("data", "debug", 5)
    assert first["text"] == "ü\n"
    assert first["timestamp"].endswith("Z")
    assert first["pid"] > 0
    assert "ValueError: no" in second["exception"]
    assert "loaded" not in capsys.readouterr().err


def test_several_clusters_write_a_line_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = LogSettings(console="info", file=str(tmp_path / "a.log"))
    first, second = configure_logging(settings), configure_logging(settings)
    try:
        logger("comm").info("both")
        second.close()
        logger("comm").info("alone")
    finally:
        first.close()
    err = capsys.readouterr().err
    assert (err.count("both"), err.count("alone")) == (1, 1)
    assert [line["event"] for line in lines_of(tmp_path / "a.log")] == ["both", "alone"]


def test_every_component_has_its_own_levels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    settings = LogSettings(
        console="warning",
        file=str(path),
        file_level="info",
        components={
            "comm": LevelPair(console="debug", file="error"),
            "comm.link": LevelPair(console="error"),
            "data": LevelPair(file="off"),
        },
    )
    with configure_logging(settings):
        for component in ("comm", "comm.routing", "comm.link", "data", "code"):
            for level in ("debug", "info", "warning", "error"):
                getattr(logger(component), level)(f"<{component} {level}>")
    console = capsys.readouterr().err
    shown = {
        component: [
            level
            for level in ("debug", "info", "warning", "error")
            if f"<{component} {level}>" in console
        ]
        for component in ("comm", "comm.routing", "comm.link", "data", "code")
    }
    everything = ["debug", "info", "warning", "error"]
    assert shown == {
        "comm": everything,
        "comm.routing": everything,
        "comm.link": ["error"],
        "data": ["warning", "error"],
        "code": ["warning", "error"],
    }
    assert [line["event"] for line in lines_of(path)] == [
        *("<comm error>", "<comm.routing error>", "<comm.link error>"),
        *("<code info>", "<code warning>", "<code error>"),
    ]


@pytest.mark.slow
def test_fields_cannot_break_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    with configure_logging(LogSettings()):
        logger("comm").warning("odd", name="n", args=1, msg="m", level="mine")
    text = capsys.readouterr().err
    assert "odd" in text
    assert "msg=m" in text


def test_an_application_sees_the_messages_in_its_own_handlers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger=ROOT):
        logger("comm").info("opened", peer=1)
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("sapwood.comm", "opened")
    assert record.funcName == "test_an_application_sees_the_messages_in_its_own_handlers"


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"log\.file"):
        configure_logging(LogSettings(file=str(tmp_path / "file" / "log.jsonl")))


@pytest.mark.slow
def test_structlog_is_imported_with_the_first_message_only() -> None:
    code = (
        "import sys\n"
        "from sapwood.environment.logs import *\n"
        "with configure_logging(LogSettings()):\n"
        "    logger('comm').info('below the level')\n"
        "    print('structlog' in sys.modules)\n"
        "    logger('comm').warning('shown')\n"
        "    print('structlog' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_full_disk_is_told_once_and_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with configure_logging(LogSettings(file="/dev/full")):
        for number in range(3):
            logger("comm").info("said", number=number)
    assert capsys.readouterr().err.splitlines() == [
        "sapwood: the log file cannot be written: No space left on device",
        "  where: /dev/full",
    ]


def test_the_error_that_ends_the_work_is_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    error = InputError("no such file", where="a.npy", hint="check the path")
    with pytest.raises(InputError), configure_logging(LogSettings(file=str(path))):
        raise error
    (line,) = lines_of(path)
    assert (line["level"], line["event"], line["code"]) == ("error", "failed", error.code)
    assert (line["reason"], line["where"], line["hint"]) == (
        "no such file",
        "a.npy",
        "check the path",
    )
    assert capsys.readouterr().err == ""  # the caller shows it
    with (
        pytest.raises(InputError),
        configure_logging(LogSettings(file=str(path), file_level="off")),
    ):
        raise error
    assert len(lines_of(path)) == 1
