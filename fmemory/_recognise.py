"""What lies at a path: told from names and tables, without writing and without opening a memory.

It only chooses who opens the place; whether the place is sound is for that backend to say.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fmemory.journals._jsonl.store import EVENTS_NAME, TIP_NAME
from fmemory.journals._sqlite.descriptors import is_sqlite
from fmemory.journals._sqlite.file import FIDDLESTICKS_TABLES

__all__ = ["Found", "what_lies_at"]

OUR_TABLES: Final = frozenset({"fmemory_log", "fmemory_events"})

_HEX_JSON = re.compile(r"(?:[0-9a-f]{2})+\.json")


class Found(StrEnum):
    """What lies at a path."""

    NOTHING = "nothing"
    SQLITE_LOG = "sqlite_log"
    FIDDLESTICKS_FILE = "fiddlesticks_file"
    OTHER_SQLITE = "other_sqlite"
    OTHER_FILE = "other_file"
    JSONL_LOG = "jsonl_log"
    FIDDLESTICKS_FOLDER = "fiddlesticks_folder"
    FOLDER = "folder"


def what_lies_at(path: Path) -> Found:
    """What lies at a path; a place that cannot be looked at counts as a folder or other file.

    Cost: the names in one folder, or 16 bytes of a file and the names of its tables.
    """
    if path.is_dir():
        return _what_a_folder_holds(path)
    if not path.exists():
        return Found.NOTHING
    if not _is_sqlite(path):
        return Found.OTHER_FILE
    tables = _tables_of(path)
    if tables is None or tables >= OUR_TABLES:
        return Found.SQLITE_LOG
    return Found.FIDDLESTICKS_FILE if tables >= FIDDLESTICKS_TABLES else Found.OTHER_SQLITE


def _what_a_folder_holds(path: Path) -> Found:
    try:
        with os.scandir(path) as entries:
            names = {entry.name for entry in entries}
        if TIP_NAME in names or any(map(EVENTS_NAME.fullmatch, names)):
            return Found.JSONL_LOG
        if names == {"sessions"} and any(
            _HEX_JSON.fullmatch(one.name) for one in (path / "sessions").iterdir()
        ):
            return Found.FIDDLESTICKS_FOLDER
    except OSError:
        # The backend says what is wrong with it.
        return Found.FOLDER
    return Found.FOLDER


def _is_sqlite(path: Path) -> bool:
    try:
        return path.is_file() and is_sqlite(path)
    except OSError:
        return False


def _tables_of(path: Path) -> set[str] | None:
    """Names of the tables of a SQLite file; None where it cannot be read, and may hold a memory."""
    # SQLite makes the files of a WAL even for a reader: `immutable` does without, and sees all of
    # it where no WAL lies beside the file, and where the folder has no place for one.
    modes = ["mode=ro&immutable=1"]
    if path.with_name(path.name + "-wal").exists():
        modes.insert(0, "mode=ro")
    for mode in modes:
        uri = f"file:{quote(str(path.absolute()))}?{mode}"
        try:
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                return {str(name) for (name,) in rows}
        except (sqlite3.Error, UnicodeDecodeError):  # The second tells of a damaged name.
            continue
    return None
