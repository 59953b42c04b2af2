"""The first program on a node. It has no Sapwood: it gets it, and then becomes the node's daemon.

This file is sent as text and run by whatever Python the machine has; it may use the standard
library only. It speaks with the head through its standard streams: lines of JSON, and the bytes of
an archive. What is unpacked is kept under the hash of the archive, so a second start sends nothing.
"""

import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
import tarfile
import tempfile

CHUNK = 1 << 20

ROOM = 5  # how much of the disk the archive takes while it is unpacked, in its own size


def say(**what):  # type: ignore[no-untyped-def]  # it runs on any Python; nobody imports it
    """Tell the head something."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def fail(message):  # type: ignore[no-untyped-def]
    """Tell the head why this machine cannot be a node, and end."""
    say(error=message)
    sys.exit(3)


def hear():  # type: ignore[no-untyped-def]
    """Return the next line of the head."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def is_here(files):  # type: ignore[no-untyped-def]
    """Whether this machine has the head's own files at the same places."""
    for path, size, mtime in files:
        try:
            status = os.stat(path)
        except OSError:
            return False
        if status.st_size != size or status.st_mtime_ns != mtime:
            return False
    return True


def receive(folder):  # type: ignore[no-untyped-def]
    """Unpack the archive that the head sends into a folder, all of it or nothing."""
    sent = hear()
    digest, size = sent["digest"], sent["size"]
    free = shutil.disk_usage(os.path.dirname(folder)).free
    if free < ROOM * size:
        fail("its disk is full: %d MiB are free in %s" % (free >> 20, os.path.dirname(folder)))
    found = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as made:
        packed = os.path.join(made, "archive")
        with open(packed, "wb") as file:
            left = size
            while left:
                data = sys.stdin.buffer.read(min(CHUNK, left))
                if not data:
                    sys.exit(0)
                found.update(data)
                file.write(data)
                left -= len(data)
        if found.hexdigest() != digest:
            fail("the runtime arrived damaged")
        unpacked = os.path.join(made, "unpacked")
        with tarfile.open(packed) as archive:
            archive.extractall(unpacked)
        try:
            os.rename(unpacked, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another one was faster
                raise


def main():  # type: ignore[no-untyped-def]
    """Get what is missing, then become the daemon."""
    offer = hear()
    version = list(sys.version_info[:2])
    abi = sysconfig.get_config_var("SOABI") or ""
    facts = {"python": platform.python_version(), "abi": abi, "host": platform.node()}
    if version < offer["oldest"]:
        wanted = ".".join(map(str, offer["oldest"]))
        fail("its Python is %s, and Sapwood needs %s" % (facts["python"], wanted))
    if offer["mode"] != "send" and abi == offer["abi"] and is_here(offer["files"]):
        path = offer["path"]
        say(runtime="shared", **facts)
    else:
        if abi != offer["abi"]:
            fail(
                "its Python is %s (%s), that of the head %s" % (facts["python"], abi, offer["abi"])
            )
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(cache, "sapwood", "runtime", offer["identity"])
        try:
            if not os.path.isdir(folder):
                os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
                say(runtime="wanted", **facts)
                receive(folder)
                say(runtime="received")
            else:
                say(runtime="kept", **facts)
        except OSError as error:
            fail("it cannot keep the runtime in %s: %s" % (folder, error.strerror))
        path = [folder] + [entry for entry in sys.path if entry and "-packages" not in entry]
    sys.path[:] = path
    from sapwood.nodes.daemon import main as become

    become(hear())
