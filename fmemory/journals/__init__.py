"""Where events are stored: the journals of this package, each with its backend."""

from fmemory.journals._jsonl import FilesystemMemoryBackend, JsonlJournal
from fmemory.journals._memory import InMemoryMemoryBackend, MemoryJournal
from fmemory.journals._postgres import PostgresMemoryBackend
from fmemory.journals._segments import SegmentJournal, SegmentMemoryBackend
from fmemory.journals._sqlite import SqliteMemoryBackend

__all__ = [
    "FilesystemMemoryBackend",
    "InMemoryMemoryBackend",
    "JsonlJournal",
    "MemoryJournal",
    "PostgresMemoryBackend",
    "SegmentJournal",
    "SegmentMemoryBackend",
    "SqliteMemoryBackend",
]
