"""Nothing that looks at a SQLite file takes its locks from who has it open in the same process.

Goal: no acknowledged write is lost because somebody read a header. Method: a memory stays open
while the process looks at its file in every way there is; another process then tries to take the
lock that SQLite holds for it. What would have to break: a descriptor of the file that is opened and
closed, which gives up all locks of the process: the write-ahead log is then removed under it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fmemory
from fmemory._target import config_of
from fmemory.journals import SqliteMemoryBackend
from fmemory.journals._sqlite.header import is_sqlite

pytest.importorskip("fcntl")

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
