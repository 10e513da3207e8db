"""The journals of this package, each with its backend."""

from fmemory.journals._memory import InMemoryMemoryBackend, MemoryJournal
from fmemory.journals._segments import SegmentJournal, SegmentMemoryBackend

__all__ = [
    "InMemoryMemoryBackend",
    "MemoryJournal",
    "SegmentJournal",
    "SegmentMemoryBackend",
]
