"""The public names of each package: adding or removing one is a decision, not an accident."""

from __future__ import annotations

import importlib

import pytest

import fmemory

NAMES = {
    "fmemory": """
        __version__ aopen Audit audit AutoCompact BootstrapState Capabilities ClearRequest
        ClearResult ClosedStore CommitUnknown CompactResult Conflict ContractError copy_log
        CopyResult CountRequest CountResult create_default_memory_backend
        create_memory_backend DamagedEvent DeleteRequest DeleteResult DuplicateRecord
        ErasedRecord Event FeatureRecord FilesystemMemoryBackend Finding ForkedStore
        GetRequest GetResult Head Health HistoryCompacted InitCommand InitPlan InitShell
        InitShellScript InitStep InMemoryBackend InMemoryMemoryBackend InvalidCursor
        InvalidSignature Journal JournalBackend JournalView JsonObject JsonValue LogBackend
        LogCorrupt LogPoisoned LogSession LogView LostEvents MemoryBackend
        MemoryBackendConfig MemoryBackendError MemoryConversationStore MemoryErrorKind
        MemoryFileError MemoryRecord MemoryView Message messages MetaGetRequest MetaResult
        MetaSetRequest NewEvent Note NotFound PostgresMemoryBackend ProgressEntry PutRequest
        PutResult ReadOnlyStore Reason Receipt RecoveryReport repair RepairResult Role Run
        RunCheckpoint RunStatus ScanRequest ScanResult ScoredRecord SegmentMemoryBackend
        Session SessionInfo SessionManifest SessionPage SessionView SqliteMemoryBackend
        Stats StorageError StoreBusy StoreFull StreamPage StreamStats StreamSummary
        TimeRange ToolCall TypeStats UnsupportedPlatform VectorBlock
    """,
    "fmemory_segments": """
        Blob canonical_envelope chain_step Commit Compaction DIGEST_BYTES Draft Envelope
        Erased ErasedEvent Erasure EVENT_BYTES_MAX event_digest FileSystem Finding FORGOTTEN
        forgotten FRAME_BYTES_MAX Head LOC_ROW_BITS Log LogError LogReason NONCE_BYTES
        Payload payload_digest Pinned PinnedHeads PosixFileSystem RecoveryReport row_digests
        RowPage RowRun Rows ROWS_MAX StoredEvent Stream StreamIndex StreamInfo verify_store
        ZERO_CHAIN
    """,
    "fmemory.errors": """
        ClosedStore CommitUnknown Conflict ContractError DuplicateRecord ForkedStore
        HistoryCompacted InvalidCursor InvalidSignature LogCorrupt LogPoisoned
        MemoryBackendError MemoryErrorKind MemoryFileError NotFound ReadOnlyStore Reason
        StorageError StoreBusy StoreFull UnsupportedPlatform
    """,
    "fmemory.journal": """
        Blob Capabilities Commit Compaction DataErased Draft Durability Envelope Erased
        ErasedEvent Erasure Finding Head Journal JournalHealth JournalSizes Payload Pinned
        PinnedHeads Plan Reader RowPage RowRun Rows StoredEvent Stream StreamInfo Txn Usage
    """,
    "fmemory.journals": """
        FilesystemMemoryBackend InMemoryMemoryBackend JsonlJournal MemoryJournal
        PostgresMemoryBackend SegmentJournal SegmentMemoryBackend SqliteMemoryBackend
    """,
    "fmemory.testing": """
        Capability CapabilityReport CapabilityRow Composed JournalSuite MemoryBackendSuite
        ModelBackend
    """,
    "fmemory.replay": """
        Attribution bisect Bisection BisectionStep blame BlamedPart ByteShare CallAt
        CallParting Change ChangeKind changes Check compare Delta EVENT_TYPES EventLine
        feature_check FeatureDifference FeatureFlip FoundRecord FoundRecords grep
        LinesDifference Match Matches MessageParting NoteLine page Part records Regression
        report ResultAt ResultParting RunDiff RunReport runs RunSort RunState RunSummary
        session_state tells_error text_check TextAt TextPlace TimeGap ToolError transcript
        TranscriptCall TranscriptEntry TranscriptResult UnansweredCall UnreadableEvent Verdict
    """,
    "fmemory.signing": """
        PrivateKey PublicKey read_signed_head sign_head SignedHead
    """,
    "fmemory.messages": """
        from_anthropic from_openai to_anthropic to_openai unanswered_tool_calls
    """,
}


@pytest.mark.parametrize("module", NAMES)
def test_public_names_are_exactly_these(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(NAMES[module].split())


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_exists(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_star_import_leaves_the_builtin_open_alone() -> None:
    names: dict[str, object] = {}
    exec("from fmemory import *", names)
    assert "open" not in names
    assert callable(fmemory.open)
