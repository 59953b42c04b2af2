"""A process that writes to the store in SQLite is killed at every one of its writes.

A library that is loaded before the system's counts the calls that change files, and kills the
process at the call of a given number: before it, behind it, or, where bytes are written, when half
of them are. The process is forked anew for each number, until it comes to its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

KILLER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1;
static int how;  /* 0: before, 1: half, 2: behind */

void arm(long calls, int way) { left = calls; how = way; }
static int now(void) { return left > 0 && --left == 0; }
static void die(void) { kill(getpid(), SIGKILL); pause(); }

#define NEXT(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))
#define WRITER(name, OFFSET) \
    ssize_t name(int fd, const void *data, size_t size, OFFSET at) { \
        __typeof__(&name) next = NEXT(name); \
        if (!now()) return next(fd, data, size, at); \
        if (how == 1) next(fd, data, size / 2, at); \
        if (how == 2) next(fd, data, size, at); \
        die(); return -1; \
    }
#define CHANGER(name, PARAMETERS, ARGUMENTS) \
    int name PARAMETERS { \
        __typeof__(&name) next = NEXT(name); \
        if (!now()) return next ARGUMENTS; \
        if (how == 2) next ARGUMENTS; \
        die(); return -1; \
    }

WRITER(pwrite, off_t)
WRITER(pwrite64, off64_t)
CHANGER(fsync, (int fd), (fd))
CHANGER(fdatasync, (int fd), (fd))
CHANGER(ftruncate, (int fd, off_t size), (fd, size))
CHANGER(ftruncate64, (int fd, off64_t size), (fd, size))
CHANGER(unlink, (const char *path), (path))
CHANGER(rename, (const char *from, const char *to), (from, to))
"""

DRIVER = r"""
import ctypes, os, shutil, signal, sys
from pathlib import Path
from sapwood.store import sqlite
from sapwood.testing import stores

root, step, local = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "local"
arm = ctypes.CDLL(os.environ["LD_PRELOAD"]).arm
sqlite.is_local = lambda folder: local
sqlite.HISTORY = 24  # so that the history is cut in between
END = 12

class Done(Exception): pass

def write(folder, acknowledged, calls, way, seed):
    def acknowledge(number):
        os.write(acknowledged, b"%d\n" % number)
        if number == END:
            raise Done
    arm(calls, way)
    with sqlite.SqliteStore(folder) as store:
        stores.write_until_killed(store, acknowledge, seed)

kills = 0
for way in range(3):
    calls = 1
    while True:
        folder, seed = root / "store", calls
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                write(folder, writer, calls, way, seed)
            except Done:
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as lines:
            said = lines.read().split()
        _, status = os.waitpid(child, 0)
        with sqlite.SqliteStore(folder) as store:
            stores.is_whole(store, int(said[-1]) if said else 0, seed)
            position = store._forgotten
            with store.watch("", after=position) as watch:  # the history is whole as well
                while position < store._revision:
                    change = watch.next(0)
                    assert change.revision == position + 1, "a revision is gone"
                    position = change.revision
            store.put("after", b"")
        shutil.rmtree(folder)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
        kills += 1
        calls += step
print(kills)
"""


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killer")
    source, library = folder / "killer.c", folder / "killer.so"
    source.write_text(KILLER)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def kills(killer: Path, step: int, where: str) -> int:
    # In memory: the system keeps what a killed process wrote, and need not wait for a disk.
    memory = Path("/dev/shm")  # noqa: S108 - the folder made there is ours alone
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, folder, str(step), where],
            env=os.environ | {"LD_PRELOAD": str(killer)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.row("C4-STORE")
@pytest.mark.parametrize("where", [pytest.param("local", marks=pytest.mark.nightly), "shared"])
def test_killed_at_a_write_the_store_is_as_before_or_as_after(killer: Path, where: str) -> None:
    assert kills(killer, 10, where) > 15


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", ["local", "shared"])
def test_killed_at_every_write_the_store_is_as_before_or_as_after(killer: Path, where: str) -> None:
    assert kills(killer, 1, where) > 150
