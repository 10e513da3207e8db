"""Nothing that looks at a SQLite file takes its locks from who has it open in the same process.

Goal: no acknowledged write is lost because somebody read a header. Method: a memory stays open
while the process looks at its file in every way there is; another process then tries to take the
lock that SQLite holds for it. What would have to break: a descriptor of the file that is opened and
closed, which gives up all locks of the process: the write-ahead log is then removed under it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import fmemory
from fmemory._target import config_of
from fmemory.journals import SqliteMemoryBackend
from fmemory.journals._sqlite import descriptors
from fmemory.journals._sqlite.descriptors import is_sqlite

pytest.importorskip("fcntl")

with_descriptors = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="this system does not list descriptors"
)

TRIES = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except OSError:
        print("held")
    else:
        print("free")
"""


def lock_of(path: Path) -> str:
    """What another process finds of the lock that an open connection holds."""
    command = [sys.executable, "-c", TRIES, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def opened_and_closed(path: Path) -> None:
    SqliteMemoryBackend(path).close()


def opened_by_path(path: Path) -> None:
    with fmemory.open(path, read_only=True) as memory:
        memory.verify()


def repaired(path: Path) -> None:
    fmemory.repair(path, path.with_name("repaired"))


LOOKS: list[Callable[[Path], object]] = [
    is_sqlite,
    config_of,
    opened_and_closed,
    opened_by_path,
    repaired,
]


@pytest.mark.parametrize("look", LOOKS, ids=lambda one: one.__name__)
def test_look_at_the_file_leaves_its_locks(tmp_path: Path, look: Callable[[Path], object]) -> None:
    path = tmp_path / "memory.db"
    with SqliteMemoryBackend(path) as memory:
        memory.add_note("tea", id="a")
        assert lock_of(path) == "held"
        look(path)
        assert lock_of(path) == "held"
    assert lock_of(path) == "free"


@with_descriptors
@pytest.mark.parametrize("look", LOOKS, ids=lambda one: one.__name__)
def test_descriptors_of_one_file_do_not_become_more(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    path = tmp_path / "memory.db"
    with SqliteMemoryBackend(path) as memory:
        memory.add_note("tea", id="a")
    for _ in range(5):
        shutil.rmtree(tmp_path / "repaired", ignore_errors=True)
        look(path)

    assert open_files().count(str(path)) <= 1


@with_descriptors
def test_a_process_that_opens_many_stores_keeps_descriptors_of_none_that_is_gone(
    tmp_path: Path,
) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.db"
        with SqliteMemoryBackend(path) as memory:
            memory.add_note("tea", id="a")
        opened_by_path(path)
        path.unlink()
    path = tmp_path / "last.db"
    opened_and_closed(path)

    assert [one for one in open_files() if one.startswith(str(tmp_path))] == [str(path)]


def open_files() -> list[str]:
    """Paths of the files that this process has open; with a word behind those that are gone."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The one by which they are listed.
            found.append(str(one.readlink()))
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_looks_at_a_file_though_a_thread_of_its_parent_was_at_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    opened_and_closed(path)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with descriptors._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(30)  # Ends a child that waits for ever.
        os._exit(7 if is_sqlite(path) else 1)
    done.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
