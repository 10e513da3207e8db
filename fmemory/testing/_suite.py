"""The suite for whoever writes a backend, assembled from its parts; one part a verb or subject."""

from __future__ import annotations

from fmemory.testing._async import AsyncLoopsPart, AsyncTwinsPart
from fmemory.testing._backend_processes import ProcessesPart
from fmemory.testing._lifecycle import HeadPart, LifecyclePart, ReadOnlyPart
from fmemory.testing._log_audit import AuditPart
from fmemory.testing._log_compaction import CompactionPart, ErasedPastPart, ForgettingPart
from fmemory.testing._log_past import DeletionPart, ForkPart, TimeTravelPart
from fmemory.testing._log_reads import EventsPart, FollowPart, HistoryPart, ListingPart
from fmemory.testing._log_writes import AppendPart, BatchPart, IdempotencyPart, ReceiptPart
from fmemory.testing._machine_part import MachinePart
from fmemory.testing._memory_file import DumpPart, LoadPart
from fmemory.testing._records_meta import MetaPart, NamespacesPart
from fmemory.testing._records_put import PutPart
from fmemory.testing._records_read import ClearPart, CountPart, DeletePart, GetPart
from fmemory.testing._records_refused import BadRecordPart, BadRequestPart
from fmemory.testing._records_scan import CursorPart, IterAllPart, ScanPart
from fmemory.testing._records_values import CopiesPart, ValuesPart
from fmemory.testing._records_vectors import ConveniencePart, NearestPart, VectorsPart
from fmemory.testing._sessions_bootstrap import (
    ArtifactsPart,
    BadSessionInputPart,
    FeaturesPart,
    InitializePart,
)
from fmemory.testing._sessions_transcript import (
    ConversationStorePart,
    SessionHandlePart,
    TranscriptPart,
)

__all__ = ["MemoryBackendSuite"]


class MemoryBackendSuite(
    PutPart,
    GetPart,
    DeletePart,
    CountPart,
    ClearPart,
    ScanPart,
    CursorPart,
    IterAllPart,
    MetaPart,
    NamespacesPart,
    ValuesPart,
    CopiesPart,
    BadRecordPart,
    BadRequestPart,
    VectorsPart,
    NearestPart,
    ConveniencePart,
    InitializePart,
    ArtifactsPart,
    FeaturesPart,
    BadSessionInputPart,
    TranscriptPart,
    SessionHandlePart,
    ConversationStorePart,
    AsyncTwinsPart,
    AsyncLoopsPart,
    DumpPart,
    LoadPart,
    LifecyclePart,
    ReadOnlyPart,
    ProcessesPart,
    ReceiptPart,
    IdempotencyPart,
    AppendPart,
    BatchPart,
    EventsPart,
    ListingPart,
    HistoryPart,
    FollowPart,
    AuditPart,
    TimeTravelPart,
    ForkPart,
    DeletionPart,
    CompactionPart,
    ErasedPastPart,
    ForgettingPart,
    HeadPart,
    MachinePart,
):
    """Every rule of the memory contract as a test; subclass it and say how to open one.

        class TestMyMemory(MemoryBackendSuite):
            def open_backend(self, location):
                return MyMemory(location)

    What is not declared (`PERSISTENT = True` and so on) is skipped with a reason that names it;
    `print(TestMyMemory.capability_report())` shows what is claimed.
    """
