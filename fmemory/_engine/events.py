"""Events as callers see them: the envelope, and the payload as plain data or records."""

from __future__ import annotations

from collections.abc import Callable

from fmemory._engine import stored
from fmemory._engine.rows import decode_event
from fmemory._engine.types import EventType
from fmemory._json_values import JsonObject, JsonValue
from fmemory.journal import Envelope, Erased, Payload, Rows
from fmemory.log_models import ErasedRecord, Event
from fmemory.record_models import MemoryRecord
from fmemory_segments import Blob


def event_of(envelope: Envelope, payload: Payload) -> Event:
    """The event of an envelope and its payload."""
    records: tuple[MemoryRecord | ErasedRecord, ...] = ()
    data: JsonValue | bytes = None
    if isinstance(payload, Rows):
        records = _records(envelope, payload)
    elif isinstance(payload, Blob):
        data = _data(envelope, payload.data)
    return Event(
        seq=envelope.seq,
        stream=envelope.stream,
        revision=envelope.revision,
        type=envelope.type,
        recorded_at=stored.from_ns(envelope.recorded_at_ns),
        occurred_at=(
            None if envelope.occurred_at_ns is None else stored.from_ns(envelope.occurred_at_ns)
        ),
        actor=envelope.actor,
        run_id=envelope.run_id,
        reason=envelope.reason,
        event_id=envelope.event_id,
        data=data,
        records=records,
        erased=isinstance(payload, Erased),
        lost=isinstance(payload, Erased) and payload.is_lost,
    )


def _records(envelope: Envelope, rows: Rows) -> tuple[MemoryRecord | ErasedRecord, ...]:
    found = decode_event(envelope.keys, rows, envelope.stream[1:])
    lost = set(rows.lost.tolist())
    return tuple(
        [
            ErasedRecord(key, timestamp, number in lost) if record is None else record
            for number, (key, timestamp, record) in enumerate(
                zip(envelope.keys, rows.timestamps.tolist(), found, strict=True)
            )
        ]
    )


def _data(envelope: Envelope, data: bytes) -> JsonValue | bytes:
    decode = _DECODERS.get(envelope.type)
    if decode is not None:
        return decode(envelope, data)
    value: JsonValue | bytes = stored.value_decoder.decode(data) if data else None
    return value


def _manifest(envelope: Envelope, data: bytes) -> JsonValue:
    del envelope
    return stored.load_manifest(stored.manifest_decoder.decode(data)).to_dict()


def _features(envelope: Envelope, data: bytes) -> JsonValue:
    del envelope
    features = stored.load_features(stored.features_decoder.decode(data), {})
    return {"features": [feature.to_dict() for feature in features]}


def _progress(envelope: Envelope, data: bytes) -> JsonValue:
    del envelope
    return stored.load_progress(stored.progress_decoder.decode(data)).to_dict()


def _checkpoint(envelope: Envelope, data: bytes) -> JsonValue:
    del envelope
    return stored.load_checkpoint(stored.checkpoint_decoder.decode(data)).to_dict()


def _messages(envelope: Envelope, data: bytes) -> JsonValue:
    del envelope
    messages = stored.messages_decoder.decode(data)
    return {"messages": [stored.load_message(message).to_dict() for message in messages]}


def _session(envelope: Envelope, data: bytes) -> JsonValue:
    session = stored.session_decoder.decode(data)
    manifest = session.manifest
    plain: JsonObject = {
        "manifest": None if manifest is None else stored.load_manifest(manifest).to_dict(),
        "features": [one.to_dict() for one in stored.load_features(session.features, {})],
        "progress": [stored.load_progress(one).to_dict() for one in session.progress],
        "checkpoints": [stored.load_checkpoint(one).to_dict() for one in session.checkpoints],
    }
    if envelope.type == EventType.SESSION_FORKED:
        plain["origin"] = session.origin
        plain["origin_seq"] = session.origin_seq
    return plain


def _meta(envelope: Envelope, data: bytes) -> JsonValue:
    return {"key": envelope.keys[0], "value": stored.value_decoder.decode(data)}


def _nothing(envelope: Envelope, data: bytes) -> JsonValue:
    del envelope, data
    return None


_DECODERS: dict[str, Callable[[Envelope, bytes], JsonValue]] = {
    EventType.RECORDS_DELETED: lambda envelope, _: {"ids": list(envelope.keys)},
    EventType.RECORDS_CLEARED: lambda envelope, _: {"deleted": envelope.count},
    EventType.META_SET: _meta,
    EventType.META_CLEARED: _nothing,
    EventType.SESSION_INITIALIZED: _session,
    EventType.SESSION_FORKED: _session,
    EventType.MANIFEST_SAVED: _manifest,
    EventType.FEATURES_REPLACED: _features,
    EventType.FEATURE_PASS_UPDATED: lambda envelope, _: {
        "feature_id": envelope.keys[0],
        "passes": bool(envelope.count),
    },
    EventType.PROGRESS_APPENDED: _progress,
    EventType.CHECKPOINT_RECORDED: _checkpoint,
    EventType.TRANSCRIPT_APPENDED: _messages,
    EventType.TRANSCRIPT_TRUNCATED: lambda envelope, _: {"keep": envelope.count},
    EventType.SESSION_DELETED: _nothing,
    EventType.STREAM_DELETED: _nothing,
}
