"""A journal in an SQLite file: docs/sqlite.md."""

from fmemory.journals._sqlite.backend import SqliteMemoryBackend
from fmemory.journals._sqlite.table import SqliteTable

__all__ = ["SqliteMemoryBackend", "SqliteTable"]
