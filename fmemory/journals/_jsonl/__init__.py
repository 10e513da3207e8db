"""A journal in JSON Lines files: docs/jsonl.md."""

from fmemory.journals._jsonl.backend import FilesystemMemoryBackend, JsonlJournal

__all__ = ["FilesystemMemoryBackend", "JsonlJournal"]
