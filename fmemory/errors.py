"""Errors of the memory contract: one root, a kind and a reason for each, typed fields.

    MemoryBackendError (RuntimeError)
    ├── ContractError (ValueError)     a value or a request breaks the contract; nothing was done
    │   └── InvalidSignature           a signed head or a key is not what it should be
    ├── DuplicateRecord                a record id is taken, or named twice in one put
    ├── InvalidCursor                  a cursor is malformed, or of another store or namespace
    ├── MemoryFileError                a memory file cannot be read or written
    ├── NotFound (LookupError)         the thing asked for by name does not exist
    ├── Conflict                       somebody else wrote first, or an event id was reused
    ├── ReadOnlyStore                  a write on a handle opened for reading, or on a view
    ├── HistoryCompacted               the past asked for is no longer kept
    ├── ClosedStore                    the handle was closed
    └── StorageError                   the store failed; chained from what the journal raised
        ├── StoreFull                  no space left; the log is as it was
        ├── StoreBusy (TimeoutError)   a lock was not free in time
        ├── LogPoisoned                a sync failed; the handle refuses until reopened
        ├── LogCorrupt                 stored bytes are not what was written
        ├── CommitUnknown              a connection was lost around a commit, and its server
        ├── ForkedStore                a handle was carried over a fork
        └── UnsupportedPlatform        this system or file system cannot hold such a store

Callers tell errors apart by class, `reason` and fields, never by the sentence. docs/errors.md lists
class, kind and reason; a test compares the two. Every error survives pickling, so it can cross
processes.
"""

# ruff: noqa: N818 - the names are those of the contract, which has no suffix

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, ClassVar

__all__ = [
    "ClosedStore",
    "CommitUnknown",
    "Conflict",
    "ContractError",
    "DuplicateRecord",
    "ForkedStore",
    "HistoryCompacted",
    "InvalidCursor",
    "InvalidSignature",
    "LogCorrupt",
    "LogPoisoned",
    "MemoryBackendError",
    "MemoryErrorKind",
    "MemoryFileError",
    "NotFound",
    "ReadOnlyStore",
    "Reason",
    "StorageError",
    "StoreBusy",
    "StoreFull",
    "UnsupportedPlatform",
]

_BRIEF_CHARACTERS_MAX = 80
_IDS_NAMED_MAX = 5


class MemoryErrorKind(StrEnum):
    """What a caller can do about an error, in four words."""

    STORAGE = "storage"
    NOT_FOUND = "not_found"
    INVALID_REQUEST = "invalid_request"
    OTHER = "other"


class Reason(StrEnum):
    """Why, as one closed list; docs/errors.md says which class gives which."""

    # ContractError
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    NOT_FINITE = "not_finite"
    EMPTY = "empty"
    LONE_SURROGATE = "lone_surrogate"
    NOT_JSON = "not_json"
    TOO_DEEP = "too_deep"
    TOO_LARGE = "too_large"
    NAIVE_TIME = "naive_time"
    NOT_EXACT = "not_exact"
    BAD_VALUE = "bad_value"
    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    WRONG_DIMENSION = "wrong_dimension"
    MISMATCH = "mismatch"
    UNSUPPORTED = "unsupported"
    # InvalidSignature
    SIGNATURE_FORM = "signature_form"
    SIGNATURE_WRONG = "signature_wrong"
    KEY_FORM = "key_form"
    KEY_UNKNOWN = "key_unknown"
    # DuplicateRecord
    RECORD_EXISTS = "record_exists"
    RECORD_REPEATED = "record_repeated"
    # InvalidCursor
    CURSOR_MALFORMED = "cursor_malformed"
    CURSOR_FOREIGN = "cursor_foreign"
    # MemoryFileError
    FILE_FORMAT = "file_format"
    FILE_HEADER = "file_header"
    FILE_RECORD = "file_record"
    FILE_DUPLICATE = "file_duplicate"
    FILE_COUNT = "file_count"
    FILE_EMBEDDING = "file_embedding"
    FILE_PRESENT = "file_present"
    FILE_CHANGED = "file_changed"
    FILE_UNREADABLE = "file_unreadable"
    FILE_UNWRITABLE = "file_unwritable"
    # NotFound
    FEATURE_NOT_FOUND = "feature_not_found"
    SESSION_NOT_FOUND = "session_not_found"
    RUN_NOT_FOUND = "run_not_found"
    RECORD_NOT_FOUND = "record_not_found"
    EVENT_NOT_FOUND = "event_not_found"
    STORE_NOT_FOUND = "store_not_found"
    # Conflict
    REVISION_MISMATCH = "revision_mismatch"
    EVENT_ID_REUSED = "event_id_reused"
    TARGET_EXISTS = "target_exists"
    # ReadOnlyStore
    READ_ONLY = "read_only"
    # HistoryCompacted
    HISTORY_COMPACTED = "history_compacted"
    # ClosedStore
    CLOSED = "closed"
    # StorageError and its leaves
    STORAGE_FAILED = "storage_failed"
    NOT_A_STORE = "not_a_store"
    UNKNOWN_FORMAT = "unknown_format"
    STORE_FULL = "store_full"
    STORE_BUSY = "store_busy"
    LOG_POISONED = "log_poisoned"
    LOG_CORRUPT = "log_corrupt"
    COMMIT_UNKNOWN = "commit_unknown"
    FORKED_STORE = "forked_store"
    UNSUPPORTED_PLATFORM = "unsupported_platform"
    NETWORK_FILE_SYSTEM = "network_file_system"


class MemoryBackendError(RuntimeError):
    """The root of all errors of this package.

    Attributes:
        kind: What a caller can do about it.
        reason: Why, from the closed list of `Reason`.
        REASONS: Which reasons the class can give.
    """

    kind: ClassVar[MemoryErrorKind] = MemoryErrorKind.OTHER
    REASONS: ClassVar[tuple[Reason, ...]] = ()
    reason: Reason

    def __init__(self, message: str, *, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(
        self,
    ) -> tuple[
        Callable[..., MemoryBackendError],
        tuple[type[MemoryBackendError], tuple[object, ...], dict[str, object]],
    ]:
        return _rebuilt, (type(self), self.args, dict(self.__dict__))


class ContractError(MemoryBackendError, ValueError):
    """A value or a request breaks the contract. Nothing was written.

    Attributes:
        where: Path of the bad value, such as `records[3].note.metadata["a"]`; empty if the whole.
        problem: The sentence without the path.
        owner: Name of the class that was being built; empty outside of one.
    """

    kind = MemoryErrorKind.INVALID_REQUEST
    REASONS: ClassVar[tuple[Reason, ...]] = (
        Reason.WRONG_TYPE,
        Reason.OUT_OF_RANGE,
        Reason.NOT_FINITE,
        Reason.EMPTY,
        Reason.LONE_SURROGATE,
        Reason.NOT_JSON,
        Reason.TOO_DEEP,
        Reason.TOO_LARGE,
        Reason.NAIVE_TIME,
        Reason.NOT_EXACT,
        Reason.BAD_VALUE,
        Reason.UNKNOWN_FIELD,
        Reason.MISSING_FIELD,
        Reason.WRONG_DIMENSION,
        Reason.MISMATCH,
        Reason.UNSUPPORTED,
    )

    def __init__(
        self, problem: str, *, where: str = "", reason: Reason = Reason.BAD_VALUE, owner: str = ""
    ) -> None:
        path = _joined(owner, where)
        super().__init__(f"{path}: {problem}" if path else problem, reason=reason)
        self.problem = problem
        self.where = where
        self.owner = owner

    def within(self, prefix: str, *, owner: str = "") -> ContractError:
        """The same error seen from further out: `prefix` goes before the path.

        >>> ContractError("expected str, got int", where='["a"]').within("note.metadata").where
        'note.metadata["a"]'
        """
        return ContractError(
            self.problem, where=_joined(prefix, self.where), reason=self.reason, owner=owner
        )


class InvalidSignature(ContractError):
    """A signed head was changed, is of another signer, or is none; or the text of a key is none.

    Attributes:
        key_name: Name of the key concerned; empty where none is.
    """

    REASONS = (
        Reason.SIGNATURE_FORM,
        Reason.SIGNATURE_WRONG,
        Reason.KEY_FORM,
        Reason.KEY_UNKNOWN,
    )

    def __init__(self, problem: str, *, where: str, reason: Reason, key_name: str = "") -> None:
        super().__init__(problem, where=where, reason=reason)
        self.key_name = key_name


class DuplicateRecord(MemoryBackendError):
    """Record ids that are taken in their namespace, or named twice in one put.

    Nothing of the put was written, in any namespace.

    Attributes:
        ids: The ids, in the order of the call.
        namespace: Where they are taken.
    """

    kind = MemoryErrorKind.INVALID_REQUEST
    REASONS = (Reason.RECORD_EXISTS, Reason.RECORD_REPEATED)

    def __init__(
        self,
        ids: tuple[str, ...],
        namespace: tuple[str, ...] = (),
        *,
        reason: Reason = Reason.RECORD_EXISTS,
    ) -> None:
        taken = "already stored" if reason is Reason.RECORD_EXISTS else "named twice in one put"
        super().__init__(
            f"put: expected new record ids, got {some_of(ids)} {taken} (namespace {namespace!r});"
            " nothing was written; delete the old record first, or use another id",
            reason=reason,
        )
        self.ids = ids
        self.namespace = namespace


class InvalidCursor(MemoryBackendError):
    """A cursor that this store did not give for this request. Nothing was read.

    Attributes:
        cursor: What was passed.
    """

    kind = MemoryErrorKind.INVALID_REQUEST
    REASONS = (Reason.CURSOR_MALFORMED, Reason.CURSOR_FOREIGN)

    def __init__(
        self, problem: str, *, cursor: str, reason: Reason = Reason.CURSOR_MALFORMED
    ) -> None:
        super().__init__(
            f"cursor: {problem}, got {brief(cursor)}; pass the next_cursor of the page before,"
            " with the same namespace and store, or None to start over",
            reason=reason,
        )
        self.cursor = cursor


class MemoryFileError(MemoryBackendError):
    """A memory file, or a page, cannot be read or written. On a load, the target is unchanged.

    Attributes:
        path: The file; None for a stream.
        line: Line number from 1; None where no line is to blame.
    """

    kind = MemoryErrorKind.INVALID_REQUEST
    REASONS = (
        Reason.FILE_FORMAT,
        Reason.FILE_HEADER,
        Reason.FILE_RECORD,
        Reason.FILE_DUPLICATE,
        Reason.FILE_COUNT,
        Reason.FILE_EMBEDDING,
        Reason.FILE_PRESENT,
        Reason.FILE_CHANGED,
        Reason.FILE_UNREADABLE,
        Reason.FILE_UNWRITABLE,
    )

    def __init__(
        self,
        problem: str,
        *,
        reason: Reason,
        path: str | None = None,
        line: int | None = None,
        what: str = "memory file",
    ) -> None:
        places = [text for text in (path, f"line {line}" if line is not None else None) if text]
        place = f" ({', '.join(places)})" if places else ""
        super().__init__(f"{what}{place}: {problem}", reason=reason)
        self.path = path
        self.line = line


class NotFound(MemoryBackendError, LookupError):
    """The thing asked for by name does not exist. Nothing was written.

    Attributes:
        what: Kind of thing: "feature", "session", "run", "record", "event" or "store".
        key: Its name.
    """

    kind = MemoryErrorKind.NOT_FOUND
    REASONS = (
        Reason.FEATURE_NOT_FOUND,
        Reason.SESSION_NOT_FOUND,
        Reason.RUN_NOT_FOUND,
        Reason.RECORD_NOT_FOUND,
        Reason.EVENT_NOT_FOUND,
        Reason.STORE_NOT_FOUND,
    )

    def __init__(self, message: str, *, reason: Reason, key: str = "") -> None:
        super().__init__(message, reason=reason)
        self.what = reason.value.removesuffix("_not_found")
        self.key = key


class Conflict(MemoryBackendError):
    """Somebody else wrote first, or an event id stands for something else. Nothing was written.

    Attributes:
        stream: The stream written to.
        expected: Revision the caller expected; None if it expected none.
        actual: Revision the stream has; None where it does not matter.
        event_id: The event id that was reused; None for other reasons.
    """

    kind = MemoryErrorKind.INVALID_REQUEST
    REASONS = (
        Reason.REVISION_MISMATCH,
        Reason.EVENT_ID_REUSED,
        Reason.TARGET_EXISTS,
    )

    def __init__(
        self,
        message: str,
        *,
        reason: Reason,
        stream: tuple[str, ...] = (),
        expected: int | None = None,
        actual: int | None = None,
        event_id: str | None = None,
    ) -> None:
        super().__init__(message, reason=reason)
        self.stream = stream
        self.expected = expected
        self.actual = actual
        self.event_id = event_id


class ReadOnlyStore(MemoryBackendError):
    """A write on a handle that only reads. Nothing was written.

    Attributes:
        path: The store; None for a view of the past.
    """

    kind = MemoryErrorKind.INVALID_REQUEST
    REASONS = (Reason.READ_ONLY,)

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message, reason=Reason.READ_ONLY)
        self.path = path


class HistoryCompacted(MemoryBackendError):
    """The past asked for was compacted away; the present is whole.

    Attributes:
        seq: What was asked for.
        floor: Smallest seq whose state can still be shown.
    """

    kind = MemoryErrorKind.NOT_FOUND
    REASONS = (Reason.HISTORY_COMPACTED,)

    def __init__(self, message: str, *, seq: int, floor: int) -> None:
        super().__init__(message, reason=Reason.HISTORY_COMPACTED)
        self.seq = seq
        self.floor = floor


class ClosedStore(MemoryBackendError):
    """The handle was closed before this call. The store itself is fine: open it again.

    Attributes:
        path: The store; None if it has no place.
    """

    REASONS = (Reason.CLOSED,)

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message, reason=Reason.CLOSED)
        self.path = path


class StorageError(MemoryBackendError):
    """The store failed. What was acknowledged before is not affected unless the message says so.

    Attributes:
        path: File or store; None if it has no place.
        offset: Byte position in the file; None where none is to blame.
        seq: First event concerned; None where unknown.
    """

    kind = MemoryErrorKind.STORAGE
    REASONS: ClassVar[tuple[Reason, ...]] = (
        Reason.STORAGE_FAILED,
        Reason.NOT_A_STORE,
        Reason.UNKNOWN_FORMAT,
    )

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        seq: int | None = None,
        reason: Reason | None = None,
    ) -> None:
        super().__init__(message, reason=self.REASONS[0] if reason is None else reason)
        self.path = path
        self.offset = offset
        self.seq = seq


class StoreFull(StorageError):
    """No space left. Nothing of the call was written; the log is as it was."""

    REASONS = (Reason.STORE_FULL,)


class StoreBusy(StorageError, TimeoutError):
    """A lock was not free in time. Nothing was written; trying again is safe.

    Attributes:
        timeout_s: Seconds that were waited.
    """

    REASONS = (Reason.STORE_BUSY,)

    def __init__(
        self, message: str, *, timeout_s: float | None = None, path: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.timeout_s = timeout_s


class LogPoisoned(StorageError):
    """A sync failed earlier: nobody knows what is on disk. Close the handle and open it again."""

    REASONS = (Reason.LOG_POISONED,)


class LogCorrupt(StorageError):
    """Stored bytes are not what was written. No file was changed.

    Attributes:
        last_seq: Last event concerned; None where unknown.
    """

    REASONS = (Reason.LOG_CORRUPT,)

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        seq: int | None = None,
        last_seq: int | None = None,
    ) -> None:
        super().__init__(message, path=path, offset=offset, seq=seq)
        self.last_seq = last_seq


class CommitUnknown(StorageError):
    """The connection was lost around a commit, and the server stayed away.

    The batch is there whole, or not at all, and which of the two will not change any more once the
    server is back: `was_committed(error)` of the backend tells.

    Attributes:
        seq: What the first event of the batch would have.
        batch_id: What the batch is stored under, 32 hexadecimal digits.
        store_id: The log, 32 hexadecimal digits.
    """

    REASONS = (Reason.COMMIT_UNKNOWN,)

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        seq: int | None = None,
        batch_id: str = "",
        store_id: str = "",
    ) -> None:
        super().__init__(message, path=path, seq=seq)
        self.batch_id = batch_id
        self.store_id = store_id


class ForkedStore(StorageError):
    """A handle was used in a child process that inherited it. The parent's handle is fine."""

    REASONS = (Reason.FORKED_STORE,)


class UnsupportedPlatform(StorageError):
    """This system or file system cannot hold such a store. Nothing was created."""

    REASONS = (Reason.UNSUPPORTED_PLATFORM, Reason.NETWORK_FILE_SYSTEM)


def brief(value: object) -> str:
    """A `repr` short enough for a message; lone surrogates come out escaped.

    >>> brief("a" * 200)[-4:]
    "...'"
    """
    try:
        text = repr(value)
    except Exception as error:  # a foreign object's repr may raise anything
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    if len(text) > _BRIEF_CHARACTERS_MAX:
        text = text[: _BRIEF_CHARACTERS_MAX - 4] + "..." + text[-1]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _joined(prefix: str, path: str) -> str:
    if not prefix or not path or path.startswith("["):
        return prefix + path
    return f"{prefix}.{path}"


def some_of(ids: Sequence[str]) -> str:
    """The first of these ids, and how many more there are, for a message."""
    shown = ", ".join(brief(id_) for id_ in ids[:_IDS_NAMED_MAX])
    return shown if len(ids) <= _IDS_NAMED_MAX else f"{shown} and {len(ids) - _IDS_NAMED_MAX} more"


def _rebuilt(
    kind: type[MemoryBackendError], args: tuple[object, ...], state: dict[str, object]
) -> MemoryBackendError:
    # A leaf that is also an OSError must be made by OSError: the builtin that its layout is.
    base: type[Any] = kind
    while base.__module__ != "builtins":
        assert base.__base__ is not None, "an exception stands on a builtin one"
        base = base.__base__
    make: Callable[..., MemoryBackendError] = base.__new__
    error = make(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
