"""Writes to records and meta values, as operations: they check the contract and emit events.

Arguments are checked; encoding is done before an operation runs, outside of every lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from fmemory._engine import stored
from fmemory._engine.erasure import gone
from fmemory._engine.results import put_result
from fmemory._engine.rows import KEY_BYTES_MAX, NamespacePut
from fmemory._engine.session_operations import WriteOptions, the_receipt
from fmemory._engine.types import EventType, meta_stream, records_stream
from fmemory._engine.work import Emission, Operation, Work, reused_id
from fmemory._json_values import JsonValue
from fmemory.errors import ContractError, DuplicateRecord, Reason
from fmemory.journal import DataErased
from fmemory.log_models import Receipt
from fmemory.memory_file import MemoryFileReader
from fmemory.record_models import ClearResult, DeleteResult, MetaResult, PutResult
from fmemory.records import EMBEDDING_ID_KEY
from fmemory_segments import Blob, Stream
from fmemory_segments.event import EVENT_BYTES_MAX, ROWS_MAX

_NOTHING = Blob(b"")
_DELETE_KEYS_MAX = ROWS_MAX


def put(puts: Sequence[NamespacePut], options: WriteOptions) -> Operation[PutResult]:
    """Put records of any number of namespaces, all or nothing.

    Raises:
        DuplicateRecord: An id is already taken.
        Conflict: Another revision than expected, or the event id stands for another put.
    """
    written = sum(len(one.ids) for one in puts)

    def operation(work: Work) -> Callable[[Receipt], PutResult]:
        if _put_before(work, puts, options.event_id):
            return lambda receipt: put_result(written, receipt)
        for one in puts:
            stream = records_stream(one.namespace)
            work.expect(stream, options.expected_revision)
            taken = work.live_ids(one.namespace, one.ids)
            if taken:
                raise DuplicateRecord(tuple(taken), one.namespace)
        for one in puts:
            work.emit(
                records_stream(one.namespace),
                one.emissions,
                audit=options.audit,
                event_id=options.event_id,
            )
        return lambda receipt: put_result(written, receipt)

    return operation


def _put_before(work: Work, puts: Sequence[NamespacePut], event_id: str | None) -> bool:
    if event_id is None:
        return False
    known = [work.known(records_stream(one.namespace), event_id, one.emissions) for one in puts]
    if any(known) and not all(known):
        new = puts[known.index(False)]
        where = "an earlier put to fewer namespaces"
        raise reused_id(records_stream(new.namespace), event_id, where)
    return bool(known) and all(known)


def delete(
    namespace: tuple[str, ...], ids: Sequence[str], options: WriteOptions
) -> Operation[DeleteResult]:
    """Delete records; unknown ids are reported. `ids` without repeats."""
    stream = records_stream(namespace)

    def operation(work: Work) -> Callable[[Receipt], DeleteResult]:
        repeated = _deleted_before(work, stream, ids, options.event_id)
        if repeated is not None:
            return repeated
        work.expect(stream, options.expected_revision)
        found = work.live_ids(namespace, ids)
        known = set(found)
        missing = tuple([record_id for record_id in ids if record_id not in known])
        parts = list(_key_parts(found))
        emissions = [Emission(EventType.RECORDS_DELETED, _NOTHING, part) for part in parts]
        if emissions and options.event_id is not None:
            # What was asked for, so that a retry can be told from another delete.
            asked = stored.encode([len(parts), _digest(ids)])
            emissions[0] = Emission(EventType.RECORDS_DELETED, Blob(asked), parts[0])
        if emissions:
            work.emit(stream, emissions, audit=options.audit, event_id=options.event_id)
        return lambda receipt: DeleteResult(deleted=len(found), missing=missing, receipt=receipt)

    return operation


def _deleted_before(
    work: Work, stream: Stream, ids: Sequence[str], event_id: str | None
) -> Callable[[Receipt], DeleteResult] | None:
    """The answer to a delete that already happened: what it deleted then is what it says now."""
    if event_id is None or (first := work.find(stream, event_id)) is None:
        return None
    event = work.event(first)
    asked = _blob(work, first)
    if event is None or event.type != EventType.RECORDS_DELETED:
        raise reused_id(stream, event_id, f"event {first}")
    count, digest = stored.value_decoder.decode(asked) if asked else (1, _digest(ids))
    if digest != _digest(ids):
        raise reused_id(stream, event_id, f"event {first}")
    work.repeat(first, first + count - 1)
    gone: set[str] = set()
    for seq in range(first, first + count):
        part = work.event(seq)
        gone.update(() if part is None else part.keys)
    missing = tuple([record_id for record_id in ids if record_id not in gone])
    return lambda receipt: DeleteResult(deleted=len(gone), missing=missing, receipt=receipt)


def _key_parts(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Ids in parts that one event holds: not too many, and not too long together."""
    start, size = 0, 0
    for number, record_id in enumerate(ids):
        length = len(record_id.encode())
        if number - start == _DELETE_KEYS_MAX or size + length > KEY_BYTES_MAX:
            yield tuple(ids[start:number])
            start, size = number, 0
        size += length
    if start < len(ids):
        yield tuple(ids[start:])


def _digest(ids: Sequence[str]) -> bytes:
    return hashlib.sha256(stored.encode(list(ids))).digest()


def clear(namespace: tuple[str, ...], options: WriteOptions) -> Operation[ClearResult]:
    """Delete all records and meta values of one namespace."""
    records, meta = records_stream(namespace), meta_stream(namespace)

    def operation(work: Work) -> Callable[[Receipt], ClearResult]:
        repeated = _cleared_before(work, records, meta, options.event_id)
        if repeated is not None:
            return repeated
        work.expect(records, options.expected_revision)
        deleted = work.record_count(namespace)
        has_meta = bool(work.meta(namespace).set_seq)
        if has_meta:
            cleared = Emission(EventType.META_CLEARED, _NOTHING)
            work.emit(meta, [cleared], audit=options.audit)
        if deleted or has_meta:
            # Both streams are told, so that each folds without the other; the records' event is
            # last and carries the id.
            emission = Emission(EventType.RECORDS_CLEARED, _NOTHING, count=deleted)
            work.emit(records, [emission], audit=options.audit, event_id=options.event_id)
        return lambda receipt: ClearResult(deleted=deleted, receipt=receipt)

    return operation


def _cleared_before(
    work: Work, records: Stream, meta: Stream, event_id: str | None
) -> Callable[[Receipt], ClearResult] | None:
    """The answer to a clear that already happened."""
    if event_id is None or (last := work.find(records, event_id)) is None:
        return None
    event = work.event(last)
    if event is None or event.type != EventType.RECORDS_CLEARED:
        raise reused_id(records, event_id, f"event {last}")
    before = work.event(last - 1) if last > 1 else None
    with_meta = before is not None and (before.stream, before.type) == (
        meta,
        EventType.META_CLEARED,
    )
    work.repeat(last - int(with_meta), last)
    return lambda receipt: ClearResult(deleted=event.count, receipt=receipt)


def set_meta(
    namespace: tuple[str, ...], key: str, value: JsonValue, options: WriteOptions
) -> Operation[MetaResult]:
    """Set one meta value, if it is another one."""
    stream = meta_stream(namespace)
    data = encode_value(value, "value")
    emission = Emission(EventType.META_SET, Blob(data), (key,), 1)

    def operation(work: Work) -> Callable[[Receipt], MetaResult]:
        if not work.known(stream, options.event_id, [emission]):
            work.expect(stream, options.expected_revision)
            seq = work.meta(namespace).set_seq.get(key)
            try:
                is_there = seq is not None and work.blobs([seq])[0] == data
            except DataErased:  # Lost before a repair: whatever it was is replaced.
                is_there = False
            if not is_there:
                work.emit(stream, [emission], audit=options.audit, event_id=options.event_id)
        return lambda receipt: MetaResult(value=value, receipt=receipt)

    return operation


def set_meta_once(
    namespace: tuple[str, ...], key: str, value: JsonValue, options: WriteOptions
) -> Operation[None]:
    """Set a meta value that never changes afterwards.

    Raises:
        ContractError: Another value is set.
        LogCorrupt: The value that is set was lost before a repair.
    """
    stream = meta_stream(namespace)
    data = encode_value(value, key)
    emission = Emission(EventType.META_SET, Blob(data), (key,), 1)

    def operation(work: Work) -> Callable[[Receipt], None]:
        seq = work.meta(namespace).set_seq.get(key)
        if seq is None:
            work.emit(stream, [emission], audit=options.audit)
            return lambda _: None
        if (before := _blob(work, seq)) != data:
            raise ContractError(
                f"expected {stored.value_decoder.decode(before)!r}, which namespace {namespace!r}"
                f" has, got {value!r}; use another namespace, or embed its notes again",
                where=key,
                reason=Reason.MISMATCH,
            )
        return lambda _: None

    return operation


def load(
    puts: Sequence[NamespacePut], file: MemoryFileReader, options: WriteOptions
) -> Operation[int]:
    """Put all records of a checked memory file, and its embedding id if there was none.

    Raises:
        MemoryFileError: Another embedding id is set, or an id is taken.
    """
    stream = meta_stream(file.namespace)
    embedding_id = file.header.embedding_id

    def operation(work: Work) -> Callable[[Receipt], int]:
        seq = work.meta(file.namespace).set_seq.get(EMBEDDING_ID_KEY)
        present = None if seq is None else stored.value_decoder.decode(_blob(work, seq))
        file.check_embedding_id(present)
        for one in puts:
            taken = work.live_ids(one.namespace, one.ids)
            if taken:
                raise file.already_present(one.namespace, taken[0])
        for one in puts:
            work.emit(records_stream(one.namespace), one.emissions, audit=options.audit)
        if seq is None and embedding_id is not None:
            data = encode_value(embedding_id, "header.embedding_id")
            emission = Emission(EventType.META_SET, Blob(data), (EMBEDDING_ID_KEY,), 1)
            work.emit(stream, [emission], audit=options.audit)
        return lambda _: file.header.count

    return operation


def append(
    stream: Stream, emissions: Sequence[Emission], options: WriteOptions
) -> Operation[Receipt]:
    """Append callers' own events; those that carry an event id are written once."""

    def operation(work: Work) -> Callable[[Receipt], Receipt]:
        for number, emission in enumerate(emissions):
            if work.known(stream, emission.event_id, emissions, number):
                return the_receipt
        work.expect(stream, options.expected_revision)
        if emissions:
            work.emit(stream, emissions, audit=options.audit)
        return the_receipt

    return operation


def delete_stream(stream: Stream, options: WriteOptions) -> Operation[Receipt]:
    """End a caller's own stream, if it has events since it last ended."""
    emission = Emission(EventType.STREAM_DELETED, _NOTHING)

    def operation(work: Work) -> Callable[[Receipt], Receipt]:
        if work.known(stream, options.event_id, [emission]):
            return the_receipt
        work.expect(stream, options.expected_revision)
        if work.revision(stream) and not _ended(work, stream):
            work.emit(stream, [emission], audit=options.audit, event_id=options.event_id)
        return the_receipt

    return operation


def _ended(work: Work, stream: Stream) -> bool:
    if any(draft.stream == stream for draft in work.drafts):
        return False
    newest = work.txn.envelopes(0, work.txn.head_seq, stream=stream, backwards=True, limit=1)
    return any(event.type == EventType.STREAM_DELETED for event in newest)


def encode_value(value: JsonValue | bytes, where: str) -> bytes:
    """A checked value as it is stored.

    Raises:
        ContractError: It is larger than an event may be.
    """
    data = stored.encode(value)
    if len(data) > EVENT_BYTES_MAX:
        raise ContractError(
            f"expected at most {EVENT_BYTES_MAX} bytes, got {len(data)}; nothing was written; keep"
            " large files elsewhere and store a reference",
            where=where,
            reason=Reason.TOO_LARGE,
        )
    return data


def _blob(work: Work, seq: int) -> bytes:
    """The payload of an event that must have one.

    Raises:
        LogCorrupt: It was lost before a repair, or erased although nothing deletes it.
    """
    try:
        (data,) = work.blobs([seq])
    except DataErased:
        raise gone(work.txn, seq) from None
    return data
