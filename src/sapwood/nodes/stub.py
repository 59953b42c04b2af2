"""The first program on a node. It has no Sapwood: it gets it, and then becomes the node's daemon.

This file is sent as text and run by the Python that the machine has; until it has unpacked the
runtime it may use the standard library only. It speaks with the head through its standard streams:
lines of JSON, its own after a mark, and the bytes of an archive. The unpacked runtime is kept under
its identity, so a second start sends nothing.
"""

import hashlib
import json
import os
import platform
import pwd
import shutil
import stat
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NoReturn

CHUNK = 1 << 20
"""Bytes that are read at once."""

ROOM = 5
"""How much of the disk the archive takes while it is unpacked, in its own size."""


MARK = ""
"""What precedes each answer to the head; the text that is sent sets it."""


def say(**what: Any) -> None:
    """Tell the head something, on a new line: login scripts may have begun one."""
    sys.stdout.write(f"\n{MARK}{json.dumps(what)}\n")
    sys.stdout.flush()


def fail(message: str) -> NoReturn:
    """Tell the head why this machine cannot be a node, and end."""
    say(error=message)
    sys.exit(3)


def hear() -> Any:
    """Return the next line of the head."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def c_library() -> str:
    """Return name and version of the C library, for example ``glibc 2.36``."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (ValueError, OSError):
        return "musl"


def is_here(files: list[tuple[str, int, int]]) -> bool:
    """Whether this machine has the head's own files at the same places."""
    try:
        found = [(one, Path(one[0]).stat()) for one in files]
    except OSError:
        return False
    return all((stat.st_size, stat.st_mtime_ns) == (one[1], one[2]) for one, stat in found)


def receive(folder: Path) -> None:
    """Unpack the archive that the head sends into a folder, all of it or nothing."""
    sent = hear()
    left = sent["size"]
    free = shutil.disk_usage(folder.parent).free
    if free < ROOM * left:
        fail(f"its disk is full: {free >> 20} MiB are free in {folder.parent}")
    found = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        packed = Path(made, "archive")
        with packed.open("wb") as file:
            while left:
                data = sys.stdin.buffer.read(min(CHUNK, left))
                if not data:
                    sys.exit(0)
                found.update(data)
                file.write(data)
                left -= len(data)
        if found.hexdigest() != sent["digest"]:
            fail("the runtime arrived damaged")
        unpacked = Path(made, "unpacked")
        with tarfile.open(packed) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(unpacked)  # noqa: S202 - the head's own, and its hash is right
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another node of this machine was faster
                raise


def cache_folder() -> Path:
    """Return the user's cache folder, as ``sapwood.environment.folders`` does."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):
        return Path(base, "sapwood")
    home = os.environ.get("HOME", "")
    if not home.startswith("/"):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            home = ""
    if home:
        folder = Path(home, ".cache", "sapwood")
        existing = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
        if os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
            return folder
    return Path(tempfile.gettempdir(), f"sapwood-of-{os.geteuid()}", ".cache", "sapwood")


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, which must be this user's alone."""
    missing = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid not in {os.geteuid(), 0} or status.st_mode & stat.S_IWOTH:
        fail(f"other users may write to {folder}, so the runtime is not kept there")


def main() -> None:
    """Get what is missing, then become the daemon."""
    offer = hear()
    abi = str(sysconfig.get_config_var("SOABI") or "")
    version = platform.python_version()
    facts = {"python": version, "abi": abi, "host": platform.node()}
    if abi != offer["abi"]:
        say(abi=abi, python=version, libc=c_library())
        offer = hear()  # one that fits this Python, or why there is none
        if "refused" in offer:
            fail(offer["refused"])
    if offer["mode"] != "send" and is_here(offer["files"]):
        path = offer["path"]
        say(runtime="shared", **facts)
    else:
        folder = cache_folder() / "runtime" / offer["identity"]
        try:
            if folder.is_dir():
                say(runtime="kept", **facts)
            else:
                make_private(folder.parent)
                say(runtime="wanted", **facts)
                receive(folder)
                say(runtime="received")
        except OSError as error:
            fail(f"it cannot keep the runtime in {folder}: {error.strerror}")
        path = [str(folder), *(entry for entry in sys.path if entry and "-packages" not in entry)]
    sys.path[:] = path
    from sapwood.nodes.daemon import (  # noqa: PLC0415 - it is there from now on
        main as become_daemon,
    )

    become_daemon(hear(), say)
