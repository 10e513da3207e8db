"""Durable memory for LLM agent harnesses: every write is an event in an append-only log.

`open` gives a memory. It holds sessions (manifest, features, progress, checkpoints, transcript),
records (notes with vectors) and events of your own; it tells who wrote what, when and why, and
shows any moment of its past.

>>> import fmemory
>>> with fmemory.open(":memory:") as memory:
...     with fmemory.audit(actor="coder", reason="first finding"):
...         note = memory.add_note("the parser rejects empty input", id="n1")
...     [(event.type, event.actor, event.reason) for event in memory.events()]
[('records_put', 'coder', 'first finding')]
"""

from fmemory import messages
from fmemory._audit import Audit, audit
from fmemory._engine.backend import JournalBackend, JournalView
from fmemory._json_values import JsonObject, JsonValue
from fmemory._receipt import Receipt
from fmemory.backend import LogBackend, LogView, MemoryBackend, MemoryView
from fmemory.config import (
    MemoryBackendConfig,
    aopen,
    create_default_memory_backend,
    create_memory_backend,
)
from fmemory.config import open as open  # noqa: A004  not in __all__: `import *` must not hide the builtin
from fmemory.conversation import MemoryConversationStore
from fmemory.copying import CopyResult, copy_log
from fmemory.errors import (
    ClosedStore,
    CommitUnknown,
    Conflict,
    ContractError,
    DuplicateRecord,
    ForkedStore,
    HistoryCompacted,
    InvalidCursor,
    LogCorrupt,
    LogPoisoned,
    MemoryBackendError,
    MemoryErrorKind,
    MemoryFileError,
    NotFound,
    ReadOnlyStore,
    Reason,
    StorageError,
    StoreBusy,
    StoreFull,
    UnsupportedPlatform,
)
from fmemory.journal import Capabilities, Journal
from fmemory.journals import (
    FilesystemMemoryBackend,
    InMemoryMemoryBackend,
    PostgresMemoryBackend,
    SegmentMemoryBackend,
    SqliteMemoryBackend,
)
from fmemory.log_models import (
    AutoCompact,
    CompactResult,
    ErasedRecord,
    Event,
    Health,
    NewEvent,
    Stats,
    StreamPage,
    StreamStats,
    StreamSummary,
    TypeStats,
)
from fmemory.record_models import (
    ClearRequest,
    ClearResult,
    CountRequest,
    CountResult,
    DeleteRequest,
    DeleteResult,
    GetRequest,
    GetResult,
    MemoryRecord,
    MetaGetRequest,
    MetaResult,
    MetaSetRequest,
    Note,
    PutRequest,
    PutResult,
    ScanRequest,
    ScanResult,
    ScoredRecord,
    TimeRange,
    VectorBlock,
)
from fmemory.repairing import DamagedEvent, LostEvents, RepairResult, repair
from fmemory.session_handle import LogSession, Run, Session, SessionView
from fmemory.session_models import (
    BootstrapState,
    FeatureRecord,
    InitCommand,
    InitPlan,
    InitShell,
    InitShellScript,
    InitStep,
    Message,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionInfo,
    SessionManifest,
    SessionPage,
    ToolCall,
)
from fmemory_segments import Finding, Head, RecoveryReport

__version__ = "0.1.0"

InMemoryBackend = InMemoryMemoryBackend

__all__ = [
    "Audit",
    "AutoCompact",
    "BootstrapState",
    "Capabilities",
    "ClearRequest",
    "ClearResult",
    "ClosedStore",
    "CommitUnknown",
    "CompactResult",
    "Conflict",
    "ContractError",
    "CopyResult",
    "CountRequest",
    "CountResult",
    "DamagedEvent",
    "DeleteRequest",
    "DeleteResult",
    "DuplicateRecord",
    "ErasedRecord",
    "Event",
    "FeatureRecord",
    "FilesystemMemoryBackend",
    "Finding",
    "ForkedStore",
    "GetRequest",
    "GetResult",
    "Head",
    "Health",
    "HistoryCompacted",
    "InMemoryBackend",
    "InMemoryMemoryBackend",
    "InitCommand",
    "InitPlan",
    "InitShell",
    "InitShellScript",
    "InitStep",
    "InvalidCursor",
    "Journal",
    "JournalBackend",
    "JournalView",
    "JsonObject",
    "JsonValue",
    "LogBackend",
    "LogCorrupt",
    "LogPoisoned",
    "LogSession",
    "LogView",
    "LostEvents",
    "MemoryBackend",
    "MemoryBackendConfig",
    "MemoryBackendError",
    "MemoryConversationStore",
    "MemoryErrorKind",
    "MemoryFileError",
    "MemoryRecord",
    "MemoryView",
    "Message",
    "MetaGetRequest",
    "MetaResult",
    "MetaSetRequest",
    "NewEvent",
    "NotFound",
    "Note",
    "PostgresMemoryBackend",
    "ProgressEntry",
    "PutRequest",
    "PutResult",
    "ReadOnlyStore",
    "Reason",
    "Receipt",
    "RecoveryReport",
    "RepairResult",
    "Role",
    "Run",
    "RunCheckpoint",
    "RunStatus",
    "ScanRequest",
    "ScanResult",
    "ScoredRecord",
    "SegmentMemoryBackend",
    "Session",
    "SessionInfo",
    "SessionManifest",
    "SessionPage",
    "SessionView",
    "SqliteMemoryBackend",
    "Stats",
    "StorageError",
    "StoreBusy",
    "StoreFull",
    "StreamPage",
    "StreamStats",
    "StreamSummary",
    "TimeRange",
    "ToolCall",
    "TypeStats",
    "UnsupportedPlatform",
    "VectorBlock",
    "__version__",
    "aopen",
    "audit",
    "copy_log",
    "create_default_memory_backend",
    "create_memory_backend",
    "messages",
    "repair",
]
