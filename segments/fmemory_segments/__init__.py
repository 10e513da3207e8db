"""The log on disk: frames, segments, recovery. Knows bytes, no domain; docs/format.md owns them."""

from fmemory_segments._stream_index import StreamIndex
from fmemory_segments.compaction import Compaction, ErasedEvent, Erasure, forgotten
from fmemory_segments.digest import (
    canonical_envelope,
    chain_step,
    event_digest,
    payload_digest,
    row_digests,
)
from fmemory_segments.errors import LogError, LogReason
from fmemory_segments.event import (
    DIGEST_BYTES,
    EVENT_BYTES_MAX,
    FORGOTTEN,
    FRAME_BYTES_MAX,
    LOC_ROW_BITS,
    NONCE_BYTES,
    ROWS_MAX,
    ZERO_CHAIN,
    Blob,
    Commit,
    Draft,
    Envelope,
    Erased,
    Head,
    Payload,
    RowPage,
    RowRun,
    Rows,
    StoredEvent,
    Stream,
    StreamInfo,
)
from fmemory_segments.filesystem import FileSystem, PosixFileSystem
from fmemory_segments.finding import Finding
from fmemory_segments.log import Log
from fmemory_segments.pinned import Pinned, PinnedHeads
from fmemory_segments.recovery import RecoveryReport
from fmemory_segments.verify import verify_store

__all__ = [
    "DIGEST_BYTES",
    "EVENT_BYTES_MAX",
    "FORGOTTEN",
    "FRAME_BYTES_MAX",
    "LOC_ROW_BITS",
    "NONCE_BYTES",
    "ROWS_MAX",
    "ZERO_CHAIN",
    "Blob",
    "Commit",
    "Compaction",
    "Draft",
    "Envelope",
    "Erased",
    "ErasedEvent",
    "Erasure",
    "FileSystem",
    "Finding",
    "Head",
    "Log",
    "LogError",
    "LogReason",
    "Payload",
    "Pinned",
    "PinnedHeads",
    "PosixFileSystem",
    "RecoveryReport",
    "RowPage",
    "RowRun",
    "Rows",
    "StoredEvent",
    "Stream",
    "StreamIndex",
    "StreamInfo",
    "canonical_envelope",
    "chain_step",
    "event_digest",
    "forgotten",
    "payload_digest",
    "row_digests",
    "verify_store",
]
