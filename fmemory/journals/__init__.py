"""The journals of this package, each with its backend."""

from fmemory.journals._jsonl import FilesystemMemoryBackend, JsonlJournal
from fmemory.journals._memory import InMemoryMemoryBackend, MemoryJournal
from fmemory.journals._segments import SegmentJournal, SegmentMemoryBackend

__all__ = [
    "FilesystemMemoryBackend",
    "InMemoryMemoryBackend",
    "JsonlJournal",
    "MemoryJournal",
    "SegmentJournal",
    "SegmentMemoryBackend",
]
