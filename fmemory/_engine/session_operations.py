"""Writes to sessions, as operations: they check the contract and emit events, and do no I/O.

Arguments are checked models. Each function returns an operation that runs inside a plan; encoding
is done before, outside of every lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from fmemory._audit import Audit
from fmemory._engine import stored
from fmemory._engine.erasure import gone
from fmemory._engine.projection import Projection
from fmemory._engine.session_fold import SessionFold
from fmemory._engine.types import EventType, session_stream
from fmemory._engine.work import Emission, Operation, Work, reused_id
from fmemory.errors import Conflict, ContractError, NotFound, Reason, some_of
from fmemory.journal import DataErased
from fmemory.log_models import Receipt
from fmemory.session_models import (
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
)
from fmemory_segments import Blob, Stream
from fmemory_segments.event import EVENT_BYTES_MAX

_NOTHING = Blob(b"")


class WriteOptions(msgspec.Struct, frozen=True, gc=False):
    """What every write carries besides its content."""

    audit: Audit
    event_id: str | None = None
    expected_revision: int | None = None


def the_receipt(receipt: Receipt) -> Receipt:
    """The result of operations that answer with their receipt."""
    return receipt


def write_once(
    session_id: str,
    emissions: Sequence[Emission],
    options: WriteOptions,
    changes: Callable[[Work, SessionFold], bool],
) -> Operation[Receipt]:
    """An operation on one session that emits `emissions` if that changes anything.

    Args:
        changes: Whether there is anything to write; may raise what the contract says.
    """
    stream = session_stream(session_id)

    def operation(work: Work) -> Callable[[Receipt], Receipt]:
        if work.known(stream, options.event_id, emissions):
            return the_receipt
        work.expect(stream, options.expected_revision)
        if emissions and changes(work, work.session(session_id)):
            work.emit(stream, emissions, audit=options.audit, event_id=options.event_id)
        return the_receipt

    return operation


def initialize(
    session_id: str,
    manifest: SessionManifest,
    features: Sequence[FeatureRecord],
    progress: ProgressEntry | None,
    checkpoint: RunCheckpoint | None,
    options: WriteOptions,
) -> Operation[bool]:
    """Create a session unless it has a manifest; the answer is whether this call created it."""
    _check_manifest(session_id, manifest)
    _check_features(features)
    stream = session_stream(session_id)
    session = stored.StoredSession(
        stored.store_manifest(manifest),
        stored.store_features(features),
        [] if progress is None else [stored.store_progress(progress)],
        [] if checkpoint is None else [stored.store_checkpoint(checkpoint)],
    )
    emission = Emission(EventType.SESSION_INITIALIZED, _blob(session, "session"), count=1)

    def operation(work: Work) -> Callable[[Receipt], bool]:
        if work.known(stream, options.event_id, [emission]):
            return lambda _: True
        if work.session(session_id).manifest_seq is not None:
            return lambda _: False
        work.expect(stream, options.expected_revision)
        work.emit(stream, [emission], audit=options.audit, event_id=options.event_id)
        return lambda _: True

    return operation


def save_manifest(
    session_id: str, manifest: SessionManifest, options: WriteOptions
) -> Operation[Receipt]:
    """Replace the manifest, if it is another one."""
    _check_manifest(session_id, manifest)
    new = stored.store_manifest(manifest)
    emission = Emission(EventType.MANIFEST_SAVED, _blob(new, "manifest"), count=1)

    def changes(work: Work, fold: SessionFold) -> bool:
        try:
            return stored.manifest_of(_read(work, fold, _seqs(fold.manifest_seq))) != new
        except DataErased:  # Lost before a repair: whatever it was is replaced.
            return True

    return write_once(session_id, [emission], options, changes)


def replace_features(
    session_id: str, features: Sequence[FeatureRecord], options: WriteOptions
) -> Operation[Receipt]:
    """Replace the whole feature list, if it is another one."""
    _check_features(features)
    new = stored.store_features(features)
    emission = Emission(EventType.FEATURES_REPLACED, _blob(new, "feature_list"), count=len(new))

    def changes(work: Work, fold: SessionFold) -> bool:
        try:
            before = stored.features_of(_read(work, fold, _seqs(fold.features_seq)))
        except DataErased:  # Lost before a repair: whatever it was is replaced.
            return True
        return stored.load_features(before, fold.passes) != tuple(features)

    return write_once(session_id, [emission], options, changes)


def update_feature(
    session_id: str, feature_id: str, passes: bool, options: WriteOptions
) -> Operation[Receipt]:
    """Flip one feature.

    Raises:
        NotFound: The session has no such feature.
        LogCorrupt: Its feature list was lost before a repair.
    """
    emission = Emission(
        EventType.FEATURE_PASS_UPDATED, _NOTHING, keys=(feature_id,), count=int(passes)
    )

    def changes(work: Work, fold: SessionFold) -> bool:
        try:
            features = stored.features_of(_read(work, fold, _seqs(fold.features_seq)))
        except DataErased as erased:
            raise gone(work.txn, erased.seq) from None
        for feature in features:
            if feature.id == feature_id:
                return fold.passes.get(feature_id, feature.passes) != passes
        ids = [feature.id for feature in features]
        known = f"it has {some_of(ids)}" if ids else "it has none: replace its feature list first"
        raise NotFound(
            f"feature: expected one of session {session_id!r}, got {feature_id!r}; {known}; nothing"
            " was written",
            reason=Reason.FEATURE_NOT_FOUND,
            key=feature_id,
        )

    return write_once(session_id, [emission], options, changes)


def append_progress(
    session_id: str, entry: ProgressEntry, options: WriteOptions
) -> Operation[Receipt]:
    """Append one progress entry."""
    blob = _blob(stored.store_progress(entry), "entry")
    emission = Emission(EventType.PROGRESS_APPENDED, blob, count=1)
    return write_once(session_id, [emission], _of_run(options, entry.run_id), _always)


def record_checkpoint(
    session_id: str, checkpoint: RunCheckpoint, options: WriteOptions
) -> Operation[Receipt]:
    """Append one checkpoint."""
    blob = _blob(stored.store_checkpoint(checkpoint), "checkpoint")
    emission = Emission(EventType.CHECKPOINT_RECORDED, blob, count=1)
    return write_once(session_id, [emission], _of_run(options, checkpoint.run_id), _always)


def append_messages(
    session_id: str, messages: Sequence[Message], options: WriteOptions
) -> Operation[Receipt]:
    """Append messages to the transcript; none at all changes nothing."""
    emissions = _transcript([stored.store_message(message) for message in messages])
    return write_once(session_id, emissions, options, _always)


def truncate_transcript(session_id: str, keep: int, options: WriteOptions) -> Operation[Receipt]:
    """Keep the first `keep` messages."""
    emission = Emission(EventType.TRANSCRIPT_TRUNCATED, _NOTHING, count=keep)

    def changes(work: Work, fold: SessionFold) -> bool:
        del work
        return fold.message_count > keep

    return write_once(session_id, [emission], options, changes)


def delete_session(session_id: str, options: WriteOptions) -> Operation[Receipt]:
    """Delete all state of a session, if there is any."""
    emission = Emission(EventType.SESSION_DELETED, _NOTHING)

    def changes(work: Work, fold: SessionFold) -> bool:
        del work
        return fold.revision > 0 and not fold.deleted

    return write_once(session_id, [emission], options, changes)


def fork_session(
    source: str, target: str, at: Callable[[Work], int | None], options: WriteOptions
) -> Operation[Receipt]:
    """Begin `target` with what `source` holds now, or held at a seq, by value.

    Args:
        at: The seq, found when the log stands still; None = now.
    """
    stream = session_stream(target)

    def operation(work: Work) -> Callable[[Receipt], Receipt]:
        if _forked_before(work, stream, source, options.event_id):
            return the_receipt
        work.expect(stream, options.expected_revision)
        seq = at(work)
        fold = work.session(source) if seq is None else _past(work, source, seq)
        if fold.is_empty:
            raise NotFound(
                f"session: expected one with content to fork, got {source!r}; nothing was written",
                reason=Reason.SESSION_NOT_FOUND,
                key=source,
            )
        if not work.session(target).is_empty:
            raise Conflict(
                f"fork: expected a new session id as target, got {target!r}, which has content;"
                " nothing was written; choose another id or delete that session first",
                reason=Reason.TARGET_EXISTS,
                stream=stream,
                actual=work.revision(stream),
            )
        emissions = _copy_of(work, fold, source, target, seq)
        work.emit(stream, emissions, audit=options.audit, event_id=options.event_id)
        return the_receipt

    return operation


def _forked_before(work: Work, stream: Stream, source: str, event_id: str | None) -> bool:
    """A fork is told again by its source: what it copied is only known by doing it."""
    if event_id is None or (first := work.find(stream, event_id)) is None:
        return False
    event = work.event(first)
    if event is None or event.type != EventType.SESSION_FORKED or event.keys != (source,):
        raise reused_id(stream, event_id, f"event {first}")
    work.repeat(first, first + (event.count >> 1))
    return True


def _copy_of(
    work: Work, fold: SessionFold, source: str, target: str, seq: int | None
) -> list[Emission]:
    manifest = stored.manifest_of(_read(work, fold, _seqs(fold.manifest_seq)))
    if manifest is not None:
        loaded = msgspec.structs.replace(stored.load_manifest(manifest), session_id=target)
        manifest = stored.store_manifest(loaded)
    features = stored.load_features(
        stored.features_of(_read(work, fold, _seqs(fold.features_seq))), fold.passes
    )
    session = stored.StoredSession(
        manifest,
        stored.store_features(features),
        stored.progress_of(_read(work, fold, fold.progress)),
        stored.checkpoints_of(_read(work, fold, fold.checkpoints)),
        source,
        fold.last_seq if seq is None else seq,
    )
    places = fold.messages
    payloads = work.blobs([place.seq for place in places])
    messages = [
        message
        for place, data in zip(places, payloads, strict=True)
        for message in stored.messages_of(data)[: place.count]
    ]
    transcript = _transcript(messages)
    first = Emission(
        EventType.SESSION_FORKED,
        _blob(session, "session"),
        keys=(source,),
        count=int(manifest is not None) | len(transcript) << 1,
    )
    return [first, *transcript]


def _read(work: Work, fold: SessionFold, seqs: list[int]) -> list[stored.Part]:
    return fold.parts(seqs, work.blobs(seqs))


def _past(work: Work, session_id: str, seq: int) -> SessionFold:
    return Projection(by_stream=True).session(work.txn, session_id, seq)


def _transcript(messages: Sequence[stored.StoredMessage]) -> list[Emission]:
    """Events for messages: one, or as many as the size of an event needs."""
    if not messages:
        return []
    data = stored.encode(list(messages))
    if len(data) <= EVENT_BYTES_MAX:
        return [Emission(EventType.TRANSCRIPT_APPENDED, Blob(data), count=len(messages))]
    if len(messages) == 1:
        raise _too_large("message", len(data))
    middle = len(messages) // 2
    return _transcript(messages[:middle]) + _transcript(messages[middle:])


def _blob(value: object, where: str) -> Blob:
    data = stored.encode(value)
    if len(data) > EVENT_BYTES_MAX:
        raise _too_large(where, len(data))
    return Blob(data)


def _too_large(where: str, size: int) -> ContractError:
    return ContractError(
        f"expected at most {EVENT_BYTES_MAX} bytes, got {size}; nothing was written; keep large"
        " files elsewhere and store a reference",
        where=where,
        reason=Reason.TOO_LARGE,
    )


def _seqs(seq: int | None) -> list[int]:
    return [] if seq is None else [seq]


def _always(work: Work, fold: SessionFold) -> bool:
    del work, fold
    return True


def _of_run(options: WriteOptions, run_id: str) -> WriteOptions:
    if options.audit.run_id is not None:
        return options
    audit = Audit(run_id=run_id).over(options.audit)
    return WriteOptions(audit, options.event_id, options.expected_revision)


def _check_manifest(session_id: str, manifest: SessionManifest) -> None:
    if manifest.session_id != session_id:
        raise ContractError(
            f"expected the manifest of session {session_id!r}, got that of"
            f" {manifest.session_id!r}; nothing was written",
            where="manifest.session_id",
            reason=Reason.MISMATCH,
        )


def _check_features(features: Sequence[FeatureRecord]) -> None:
    seen: set[str] = set()
    for number, feature in enumerate(features):
        if feature.id in seen:
            raise ContractError(
                f"expected each feature id once, got {feature.id!r} again; nothing was written",
                where=f"feature_list[{number}].id",
                reason=Reason.BAD_VALUE,
            )
        seen.add(feature.id)
