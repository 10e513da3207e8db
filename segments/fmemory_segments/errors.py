"""Errors of the log. Callers use the class, `reason` and the fields, never the sentence.

    LogError
    ├── LogNotFound          there is no log at the path                      (FileNotFoundError)
    ├── NotALog              the path cannot hold a log                       (NotADirectoryError)
    ├── UnsupportedPlatform  the system lacks what the log needs              (OSError)
    ├── NetworkFileSystem    the folder is on a network or unknown mount      (OSError)
    ├── UnsupportedFormat    written by a newer version                       (ValueError)
    ├── LogCorrupt           bytes that were good once are not any more       (ValueError)
    ├── LogReadFailed        the system could not read; nothing is decided    (OSError)
    ├── LogWriteFailed       the system could not write; nothing was appended (OSError)
    │   └── StoreFull        no space, quota or file size left
    ├── StoreBusy            another process held the lock for too long       (TimeoutError)
    ├── ReadOnlyLog          a write to a log opened for reading              (PermissionError)
    ├── UnknownEvent         no event or row at a seq or loc                  (LookupError)
    ├── RowErased            a row whose data a compaction took out           (LookupError)
    ├── InvalidDraft         an event that cannot be stored as it is          (ValueError)
    ├── LogPoisoned          fdatasync or a repair failed: reopen             (RuntimeError)
    ├── ForkedStore          the handle was carried over a fork: reopen       (RuntimeError)
    └── LogClosed            the handle was closed                            (ValueError)

The layer above translates them and chains from them.
"""

# ruff: noqa: N818 - the names say what is the case; "Error" in each of them would add nothing.

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path


class LogReason(StrEnum):
    """Why a call failed, or what a finding found. A closed set: docs/errors.md lists it."""

    MISSING = "missing"
    STORE_MOVED = "store_moved"
    NOT_A_FOLDER = "not_a_folder"
    NOT_EMPTY = "not_empty"
    ACCESS_DENIED = "access_denied"
    PLATFORM = "platform"
    NETWORK_FILE_SYSTEM = "network_file_system"
    NEWER_FORMAT = "newer_format"
    UNKNOWN_FEATURE = "unknown_feature"
    COMPACTED_STORE = "compacted_store"
    SEGMENT_HEADER = "segment_header"
    FOREIGN_SEGMENT = "foreign_segment"
    MISSING_SEGMENT = "missing_segment"
    SEAL = "seal"
    FRAME_CHECKSUM = "frame_checksum"
    META_CHECKSUM = "meta_checksum"
    DATA_CHECKSUM = "data_checksum"
    ROW_CHECKSUM = "row_checksum"
    FRAME_CONTENT = "frame_content"
    FRAME_ORDER = "frame_order"
    CHAIN = "chain"
    MANIFEST = "manifest"
    NOT_DELETED = "not_deleted"
    FORGOTTEN = "forgotten"
    ACKNOWLEDGED_LOSS = "acknowledged_loss"
    HEAD_WENT_BACK = "head_went_back"
    PINNED_HEAD = "pinned_head"
    TORN_TAIL = "torn_tail"
    UNSYNCED_TAIL = "unsynced_tail"
    WITNESS = "witness"
    FOREIGN_FILE = "foreign_file"
    READ_FAILED = "read_failed"
    WRITE_FAILED = "write_failed"
    NO_SPACE = "no_space"
    LOCK_TIMEOUT = "lock_timeout"
    LOCK_FAILED = "lock_failed"
    READ_ONLY = "read_only"
    INVALID_DRAFT = "invalid_draft"
    NOT_NEXT = "not_next"
    UNKNOWN_EVENT = "unknown_event"
    ERASED = "erased"
    SYNC_FAILED = "sync_failed"
    INTERRUPTED = "interrupted"
    TRUNCATE_FAILED = "truncate_failed"
    FORKED = "forked"
    CLOSED = "closed"


class LogError(Exception):
    """Root of all errors of this layer.

    Attributes:
        reason: Why, from a closed set.
        path: The file or folder concerned.
        offset: Byte position in that file.
        first_seq: First event concerned.
        last_seq: Last event concerned; None where the range is open.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: LogReason,
        path: Path | None = None,
        offset: int | None = None,
        first_seq: int | None = None,
        last_seq: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.path = path
        self.offset = offset
        self.first_seq = first_seq
        self.last_seq = last_seq

    def __reduce__(
        self,
    ) -> tuple[Callable[[type[LogError], str, dict[str, object]], LogError], tuple[object, ...]]:
        return _rebuild, (type(self), str(self.args[0]), dict(self.__dict__))


def _rebuild(error: type[LogError], message: str, fields: dict[str, object]) -> LogError:
    """The error as it was pickled: fields are keyword-only, so `args` alone cannot restore it."""
    rebuilt = error.__new__(error, message)
    rebuilt.args = (message,)
    rebuilt.__dict__.update(fields)
    return rebuilt


class LogNotFound(LogError, FileNotFoundError):
    """There is no log at the path, and none was to be created."""


class NotALog(LogError, NotADirectoryError):
    """The path is a file, or a folder that this user may not use."""


class UnsupportedPlatform(LogError, OSError):
    """The system has no `flock`, `pread` or `fdatasync` as the log needs them."""


class NetworkFileSystem(LogError, OSError):
    """Locks and fdatasync of this mount cannot be relied on; nothing was read or written."""


class UnsupportedFormat(LogError, ValueError):
    """A newer version wrote this; nothing was changed."""


class LogCorrupt(LogError, ValueError):
    """Bytes that were written, perhaps acknowledged, are damaged or gone. Nothing was changed."""


class LogReadFailed(LogError, OSError):
    """The system failed to read. It says nothing about the bytes: EIO is not end of file."""


class LogWriteFailed(LogError, OSError):
    """The system failed to write. The log is as it was before the call."""


class StoreFull(LogWriteFailed):
    """No space, quota or file size is left. The log is as it was; append again later."""


class StoreBusy(LogError, TimeoutError):
    """Another handle or process held the lock for longer than the caller would wait."""


class ReadOnlyLog(LogError, PermissionError):
    """A write was asked of a log opened with `read_only=True`."""


class UnknownEvent(LogError, LookupError):
    """There is no event with this seq, or no row at this loc."""


class RowErased(LogError, LookupError):
    """The row was there; its data were taken out by a compaction."""


class InvalidDraft(LogError, ValueError):
    """An event cannot be stored as it is; nothing was written."""


class LogPoisoned(LogError, RuntimeError):
    """A sync or repair failed, so what this handle promises is unknown. Close it and open again."""


class ForkedStore(LogError, RuntimeError):
    """The handle was opened by the parent process. Open the log again in the child."""


class LogClosed(LogError, ValueError):
    """The handle was closed."""
