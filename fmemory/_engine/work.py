"""A unit of work: what one batch sees and what it will append.

An operation is a function of a `Work`: it asks for state, checks the contract and emits drafts. It
has no side effects beyond the work it is given, because a journal may call a plan again. State is
the projection as of the journal's head with the drafts of the same batch on top, so that the second
operation of a batch sees the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from fmemory._audit import Audit
from fmemory._engine.projection import Projection
from fmemory._engine.session_fold import MetaFold, SessionFold
from fmemory._engine.stored import same_but_times, to_ns
from fmemory._engine.types import EventType
from fmemory.errors import Conflict, Reason
from fmemory.journal import DataErased, Draft, Reader, Txn
from fmemory.log_models import Receipt
from fmemory_segments import FORGOTTEN, Blob, Envelope, Erased, Rows, Stream

T = TypeVar("T")

Finish: TypeAlias = "Callable[[Receipt], T]"
Operation: TypeAlias = "Callable[[Work], Callable[[Receipt], T]]"


class Emission(msgspec.Struct, frozen=True, gc=False):
    """What an operation appends to one stream: an event without its revision."""

    type: str
    payload: Blob | Rows
    keys: tuple[str, ...] = ()
    count: int = 0
    occurred_at_ns: int | None = None
    event_id: str | None = None


class Work:
    """State as one batch sees it, and the drafts it has made so far."""

    def __init__(self, txn: Txn, projection: Projection, *, shared: bool = False) -> None:
        """
        Args:
            shared: Several operations use this work, so drafts must show in what they read.
        """
        self.txn = txn
        self._shared = shared
        self._touched: Stream | None = None
        self.drafts: list[Draft] = []
        self.repeated: Receipt | None = None
        self._projection = projection
        self._head = txn.head_seq
        self._event_ids: dict[tuple[Stream, str], int] = {}
        self._revisions: dict[Stream, int] = {}
        self._records: dict[tuple[str, ...], _PendingRecords] = {}
        self._metas: dict[tuple[str, ...], MetaFold] = {}
        self._sessions: dict[str, SessionFold] = {}

    def begin(self) -> None:
        """Forget what the operation before said about itself."""
        self.repeated = None
        self._touched = None

    def touched_revision(self) -> int:
        """The revision of the stream that the operation last named; 0 if none."""
        return 0 if self._touched is None else self.revision(self._touched)

    # State

    def revision(self, stream: Stream) -> int:
        """The revision of a stream, drafts included."""
        pending = self._revisions.get(stream)
        if pending is not None:
            return pending
        return self._projection.revision(self.txn, stream, self._head)

    def live_ids(self, namespace: tuple[str, ...], ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are records now, in order."""
        row_of = self._projection.records(self.txn, namespace, self._head).index.row_of
        pending = self._records.get(namespace)
        if pending is None:
            return [record_id for record_id in ids if record_id in row_of]
        return [record_id for record_id in ids if pending.holds(record_id, row_of)]

    def record_count(self, namespace: tuple[str, ...]) -> int:
        """Live records of a namespace."""
        index = self._projection.records(self.txn, namespace, self._head).index
        pending = self._records.get(namespace)
        return len(index) if pending is None else pending.count(index.row_of)

    def meta(self, namespace: tuple[str, ...]) -> MetaFold:
        """Meta values of a namespace; not to be changed."""
        pending = self._metas.get(namespace)
        if pending is not None:
            return pending
        return self._projection.meta(self.txn, namespace, self._head)

    def session(self, session_id: str) -> SessionFold:
        """A session; not to be changed."""
        pending = self._sessions.get(session_id)
        if pending is not None:
            return pending
        return self._projection.session(self.txn, session_id, self._head)

    def blobs(self, seqs: Sequence[int]) -> list[bytes]:
        """Payload bytes of events, drafts included.

        Raises:
            DataErased: They were taken out of one of them.
        """
        old = [seq for seq in seqs if seq <= self._head]
        found = dict(zip(old, blobs_of(self.txn, old), strict=True)) if old else {}
        for seq in seqs:
            if seq > self._head:
                found[seq] = data_of(self.drafts[seq - self._head - 1].payload)
        return [found[seq] for seq in seqs]

    # Checking and emitting

    def expect(self, stream: Stream, expected_revision: int | None) -> None:
        """Compare the revision that a caller expects of a stream with what it is.

        Raises:
            Conflict: They differ.
        """
        self._touched = stream
        if expected_revision is None:
            return
        actual = self.revision(stream)
        if expected_revision != actual:
            raise Conflict(
                f"stream {stream!r}: expected revision {expected_revision}, got {actual}; nothing"
                " was written; read the newest state and decide again",
                reason=Reason.REVISION_MISMATCH,
                stream=stream,
                expected=expected_revision,
                actual=actual,
            )

    def emit(
        self,
        stream: Stream,
        emissions: Sequence[Emission],
        *,
        audit: Audit,
        event_id: str | None = None,
    ) -> None:
        """Append events to one stream; the first carries the event id."""
        revision = self.revision(stream)
        occurred_at_ns = (
            None if audit.occurred_at is None else to_ns(audit.occurred_at, "occurred_at")
        )
        for emission in emissions:
            revision += 1
            draft = Draft(
                stream,
                revision,
                emission.type,
                emission.payload,
                occurred_at_ns if emission.occurred_at_ns is None else emission.occurred_at_ns,
                audit.actor,
                audit.run_id,
                audit.reason,
                emission.event_id or event_id,
                emission.keys,
                emission.count,
            )
            event_id = None
            self.drafts.append(draft)
            if draft.event_id is not None:
                self._event_ids[stream, draft.event_id] = self._head + len(self.drafts)
            if self._shared:
                self._apply(draft)
        self._revisions[stream] = revision

    def known(
        self,
        stream: Stream,
        event_id: str | None,
        emissions: Sequence[Emission],
        number: int = 0,
    ) -> bool:
        """Whether this write already happened; if so, its receipt is the answer.

        Args:
            emissions: What the caller would write.
            number: Which of the emissions carries the id.

        Raises:
            Conflict: The id stands for another write to this stream.
        """
        if event_id is None:
            return False
        found = self.find(stream, event_id)
        if found is None:
            return False
        # The events of one write are neighbours in the log.
        first = found - number
        count = len(emissions)
        if not self._same(stream, emissions, first):
            raise reused_id(stream, event_id, f"event {found}")
        before = self.repeated
        again = self.repeat(first, first + count - 1)
        if before is not None:
            # One write to several streams is answered as one.
            self.repeated = Receipt(
                seq=max(again.seq, before.seq),
                revision=again.revision,
                event_count=again.event_count + before.event_count,
                durable=False,
            )
        return True

    def find(self, stream: Stream, event_id: str) -> int | None:
        """The seq of the event with this id, drafts included."""
        pending = self._event_ids.get((stream, event_id))
        if pending is not None:
            return pending
        found = self.txn.find(stream, event_id)
        # A handle may know an id still that was forgotten together with its event.
        forgotten = found is not None and self.event(found)
        return None if forgotten and forgotten.type == FORGOTTEN else found

    def event(self, seq: int) -> Envelope | None:
        """An event, drafts included; None where there is none of that number."""
        if seq > self._head:
            at = seq - self._head - 1
            if at >= len(self.drafts):
                return None
            return self.drafts[at].envelope(seq, self.txn.now_ns)
        return next(iter(self.txn.envelopes(seq - 1, seq)), None)

    def repeat(self, first: int, last: int) -> Receipt:
        """The answer is the receipt of the write that appended these events."""
        event = self.event(last)
        assert event is not None
        self.repeated = Receipt(
            seq=last, revision=event.revision, event_count=last - first + 1, durable=False
        )
        return self.repeated

    # Private

    def _same(self, stream: Stream, emissions: Sequence[Emission], first: int) -> bool:
        for seq, emission in enumerate(emissions, first):
            event = self.event(seq)
            if event is None or event.stream != stream:
                return False
            payload = (
                self.drafts[seq - self._head - 1].payload
                if seq > self._head
                else self.txn.payloads([seq])[0]
            )
            if not _same(emission, event, payload):
                return False
        return True

    def _apply(self, draft: Draft) -> None:
        """Let later operations of this batch see a draft."""
        kind, *labels = draft.stream
        if kind == "records":
            namespace = tuple(labels)
            pending = self._records.get(namespace)
            if pending is None:
                pending = self._records[namespace] = _PendingRecords()
            pending.apply(draft)
        elif kind == "meta":
            namespace = tuple(labels)
            if namespace not in self._metas:
                self._metas[namespace] = self.meta(namespace).copy()
            self._metas[namespace].apply(self._newest())
        elif kind == "session":
            if labels[0] not in self._sessions:
                self._sessions[labels[0]] = self.session(labels[0]).copy()
            self._sessions[labels[0]].apply(self._newest())

    def _newest(self) -> Envelope:
        """The last draft as an event."""
        return self.drafts[-1].envelope(self._head + len(self.drafts), self.txn.now_ns)


class _PendingRecords:
    """What the drafts of a batch did to the records of one namespace."""

    __slots__ = ("_changes", "_cleared")

    def __init__(self) -> None:
        self._changes: dict[str, bool] = {}
        self._cleared = False

    def apply(self, draft: Draft) -> None:
        if draft.type == EventType.RECORDS_PUT:
            self._changes.update(dict.fromkeys(draft.keys, True))
        elif draft.type == EventType.RECORDS_DELETED:
            self._changes.update(dict.fromkeys(draft.keys, False))
        elif draft.type == EventType.RECORDS_CLEARED:
            self._changes.clear()
            self._cleared = True

    def holds(self, record_id: str, row_of: dict[str, int]) -> bool:
        change = self._changes.get(record_id)
        return (not self._cleared and record_id in row_of) if change is None else change

    def count(self, row_of: dict[str, int]) -> int:
        base = 0 if self._cleared else len(row_of)
        for record_id, present in self._changes.items():
            before = not self._cleared and record_id in row_of
            base += int(present) - int(before)
        return base


def reused_id(stream: Stream, event_id: str, where: str) -> Conflict:
    """The error for an event id that stands for another write."""
    return Conflict(
        f"stream {stream!r}: expected event id {event_id!r} to be new or the same write again, got"
        f" other content than {where} has; nothing was written; use a new id",
        reason=Reason.EVENT_ID_REUSED,
        stream=stream,
        event_id=event_id,
    )


def _same(emission: Emission, event: Envelope, payload: Blob | Rows | Erased) -> bool:
    """Whether an event is what would be written now, audit and times aside."""
    if (emission.type, emission.keys, emission.count) != (event.type, event.keys, event.count):
        return False
    if emission.event_id is not None and emission.event_id != event.event_id:
        return False
    if isinstance(payload, Erased):
        return True
    if isinstance(payload, Blob):
        return isinstance(emission.payload, Blob) and same_but_times(
            event.type, emission.payload.data, payload.data
        )
    if payload.erased is not None:
        return True
    rows = emission.payload
    return (
        isinstance(rows, Rows)
        and rows.notes == payload.notes
        and rows.embedding_ids == payload.embedding_ids
        and rows.timestamps.tobytes() == payload.timestamps.tobytes()
        and rows.vectors.dtype == payload.vectors.dtype
        and rows.vectors.shape == payload.vectors.shape
        and rows.vectors.tobytes() == payload.vectors.tobytes()
    )


def blobs_of(reader: Reader, seqs: Sequence[int]) -> list[bytes]:
    """The bytes of these events' payloads; empty for records.

    Raises:
        DataErased: They were taken out of one of them.
    """
    payloads = reader.payloads(seqs) if seqs else []
    for seq, payload in zip(seqs, payloads, strict=True):
        if isinstance(payload, Erased):
            raise DataErased(seq)
    return [data_of(payload) for payload in payloads]


def data_of(payload: Blob | Rows | Erased) -> bytes:
    """The bytes of a payload that is a blob; empty for another."""
    return payload.data if isinstance(payload, Blob) else b""


def payload_bytes(payload: Blob | Rows | Erased) -> int:
    """Bytes of data that a payload holds."""
    if isinstance(payload, Blob):
        return len(payload.data)
    if isinstance(payload, Rows):
        return len(payload.notes) + payload.vectors.nbytes
    return 0
