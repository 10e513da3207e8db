"""Names of our own events and streams: one place for each word that is stored."""

from __future__ import annotations

from typing import Final

from fmemory_segments import Stream


class EventType:
    """Types without a dot are fmemory's own; callers' types contain one."""

    RECORDS_PUT: Final = "records_put"
    RECORDS_DELETED: Final = "records_deleted"
    RECORDS_CLEARED: Final = "records_cleared"
    META_SET: Final = "meta_set"
    META_CLEARED: Final = "meta_cleared"
    SESSION_INITIALIZED: Final = "session_initialized"
    MANIFEST_SAVED: Final = "manifest_saved"
    FEATURES_REPLACED: Final = "features_replaced"
    FEATURE_PASS_UPDATED: Final = "feature_pass_updated"
    PROGRESS_APPENDED: Final = "progress_appended"
    CHECKPOINT_RECORDED: Final = "checkpoint_recorded"
    TRANSCRIPT_APPENDED: Final = "transcript_appended"
    TRANSCRIPT_TRUNCATED: Final = "transcript_truncated"
    SESSION_FORKED: Final = "session_forked"
    SESSION_DELETED: Final = "session_deleted"
    STREAM_DELETED: Final = "stream_deleted"
    EVENT_LOST: Final = "event_lost"
    """Has the number of an event that a repair could not salvage; means nothing."""


SESSION: Final = "session"
RECORDS: Final = "records"
META: Final = "meta"
OWN_STREAMS: Final = frozenset({SESSION, RECORDS, META})


def session_stream(session_id: str) -> Stream:
    """The stream of one session.

    >>> session_stream("s1")
    ('session', 's1')
    """
    return (SESSION, session_id)


def records_stream(namespace: tuple[str, ...]) -> Stream:
    """The stream of one namespace's records."""
    return (RECORDS, *namespace)


def meta_stream(namespace: tuple[str, ...]) -> Stream:
    """The stream of one namespace's meta values."""
    return (META, *namespace)
