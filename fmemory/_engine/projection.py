"""The projection: state folded from events, stream by stream.

Whoever asks for a stream names the seq up to which it must be folded. A journal that can read one
stream cheaply (`reads_streams`, and every view of the past) is folded stream by stream when it is
asked for; any other is folded wholly. Nothing here writes, checks rules or reads payloads.

A deletion that was forgotten after what it deleted was folded, and before it was folded itself,
is not there to be applied. Journals forget what was deleted first, so whoever meets the stub of a
deletion can see whether the fold holds anything forgotten, and folds anew if it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from fmemory._engine.record_index import RecordIndex
from fmemory._engine.session_fold import MetaFold, SessionFold
from fmemory._engine.types import META, RECORDS, SESSION, EventType
from fmemory.journal import Commit, Draft, Reader
from fmemory_segments import FORGOTTEN, LOC_ROW_BITS, Envelope, RowRun, Rows, Stream

_LOC_ROW_BITS: Final = np.uint64(LOC_ROW_BITS)


class RecordsFold:
    """A records stream: its revision and the index of what lives."""

    __slots__ = ("index", "revision")

    def __init__(self) -> None:
        self.revision = 0
        self.index = RecordIndex()

    def apply(self, event: Envelope) -> None:
        """Fold a delete, a clear, or an event of a caller's own type."""
        self.revision = event.revision
        if event.type == EventType.RECORDS_DELETED:
            self.index.delete(event.keys)
        elif event.type == EventType.RECORDS_CLEARED:
            self.index = RecordIndex()

    def apply_run(self, run: RowRun) -> None:
        """Fold consecutive puts."""
        self.revision = run.first_revision + run.event_count - 1
        self.index.put(run.ids, run.timestamps, run.locs)

    def live_seqs(self) -> list[int]:
        """Events of which something lives."""
        found: list[int] = np.unique(self.index.live_locs() >> _LOC_ROW_BITS).tolist()
        return found


class RevisionFold:
    """A caller's own stream, of which only the revision is folded."""

    __slots__ = ("revision",)

    def __init__(self) -> None:
        self.revision = 0

    def apply(self, event: Envelope) -> None:
        """Count one event."""
        self.revision = event.revision

    def live_seqs(self) -> list[int]:
        """Events of which something lives: none is kept."""
        return []


StreamFold = RecordsFold | MetaFold | SessionFold | RevisionFold


def _new_fold(stream: Stream) -> StreamFold:
    match stream[0]:
        case "records":
            return RecordsFold()
        case "meta":
            return MetaFold()
        case "session":
            return SessionFold()
        case _:
            return RevisionFold()


class Projection:
    """State of every stream, folded no further than it was asked for.

    Not thread-safe: the engine guards it.
    """

    __slots__ = ("_by_stream", "_folds", "_own_first", "_own_last", "_seq", "_seqs", "_stub_ends")

    def __init__(self, *, by_stream: bool) -> None:
        self._by_stream = by_stream
        self._folds: dict[Stream, StreamFold] = {}
        self._seqs: dict[Stream, int] = {}
        self._stub_ends: dict[Stream, int] = {}
        self._seq = 0
        # The newest events that were folded as drafts, all of them between these two.
        self._own_first = self._own_last = 0

    def records(self, reader: Reader, namespace: tuple[str, ...], upto: int) -> RecordsFold:
        """The records of a namespace as of `upto`."""
        stream = (RECORDS, *namespace)
        fold = self._folds.get(stream) if self._seq >= upto else None
        if fold is None:
            fold = self._fold(reader, stream, upto)
        assert type(fold) is RecordsFold
        return fold

    def meta(self, reader: Reader, namespace: tuple[str, ...], upto: int) -> MetaFold:
        """The meta values of a namespace as of `upto`."""
        fold = self._fold(reader, (META, *namespace), upto)
        assert isinstance(fold, MetaFold)
        return fold

    def session(self, reader: Reader, session_id: str, upto: int) -> SessionFold:
        """A session as of `upto`."""
        fold = self._fold(reader, (SESSION, session_id), upto)
        assert isinstance(fold, SessionFold)
        return fold

    def revision(self, reader: Reader, stream: Stream, upto: int) -> int:
        """The revision of any stream as of `upto`; 0 for one that was never written."""
        return self._fold(reader, stream, upto).revision

    def stub_end(self, reader: Reader, stream: Stream, upto: int) -> int:
        """The newest deletion of what is forgotten of a stream as of `upto`; 0 if nothing is.

        Only for projections by stream. A state of before that deletion cannot be told.
        """
        self._fold(reader, stream, upto)
        return self._stub_ends.get(stream, 0)

    def add(self, commit: Commit, drafts: Sequence[Draft]) -> None:
        """Fold what was just appended, where it follows what is folded; else it is read when asked.

        Cost: O(rows), and nothing is read.
        """
        by_stream, folds = self._by_stream, self._folds
        if not by_stream and self._seq != commit.first_seq - 1:
            return
        try:
            for seq, draft in enumerate(drafts, commit.first_seq):
                stream = draft.stream
                fold = folds.get(stream)
                if fold is None and (draft.revision == 1 or not by_stream):
                    fold = folds[stream] = _new_fold(stream)
                if by_stream:
                    if fold is None or fold.revision != draft.revision - 1:
                        continue  # Never asked for, or others wrote to it meanwhile.
                    self._seqs[stream] = seq
                assert fold is not None
                _apply_draft(fold, draft, seq, commit.recorded_at_ns)
            if by_stream:
                if commit.first_seq != self._own_last + 1:
                    self._own_first = commit.first_seq
                self._own_last = commit.last_seq
            else:
                self._seq = commit.last_seq
        except BaseException:
            folds.clear()
            self._seqs.clear()
            self._seq = self._own_last = 0
            raise

    def record_count(self, reader: Reader, upto: int) -> int:
        """Live records of all namespaces."""
        for info in reader.streams((RECORDS,)):
            self._fold(reader, info.stream, upto)
        self._catch_up(reader, upto)
        folds = self._folds.values()
        return sum(len(fold.index) for fold in folds if isinstance(fold, RecordsFold))

    def _fold(self, reader: Reader, stream: Stream, upto: int) -> StreamFold:
        if not self._by_stream:
            self._catch_up(reader, upto)
            fold = self._folds.get(stream)
            return _new_fold(stream) if fold is None else fold
        fold = self._folds.get(stream)
        if fold is None:
            fold = self._folds[stream] = _new_fold(stream)
        after = self._seqs.get(stream, 0)
        if self._own_first <= after + 1 and upto <= self._own_last:
            return fold
        while after < upto:
            try:
                is_doubted = False
                for item in reader.fold(after, upto, stream):
                    _apply(fold, item)
                    if isinstance(item, Envelope) and item.type == FORGOTTEN:
                        known = self._stub_ends.get(stream, 0)
                        self._stub_ends[stream] = max(known, item.count)
                        is_doubted = is_doubted or _is_forgotten_deletion(item)
                is_doubted = is_doubted and _holds_forgotten(reader, upto, stream, [fold])
            except BaseException:
                # Half a fold is no state: the next question folds this stream from its start.
                del self._folds[stream]
                self._seqs.pop(stream, None)
                raise
            if is_doubted:
                fold, after = _new_fold(stream), 0
                self._folds[stream] = fold
                continue
            self._seqs[stream] = after = upto
        return fold

    def _catch_up(self, reader: Reader, upto: int) -> None:
        if self._by_stream:
            return
        folds = self._folds
        while self._seq < upto:
            doubted: set[Stream] = set()
            try:
                for item in reader.fold(self._seq, upto):
                    fold = folds.get(item.stream)
                    if fold is None:
                        fold = folds[item.stream] = _new_fold(item.stream)
                    _apply(fold, item)
                    if type(item) is Envelope and _is_forgotten_deletion(item):
                        doubted.add(item.stream)
                is_doubted = bool(doubted) and _holds_forgotten(
                    reader, upto, None, [folds[stream] for stream in doubted]
                )
            except BaseException:
                folds.clear()
                self._seq = 0
                raise
            if is_doubted:
                folds.clear()
                self._seq = 0
                continue
            self._seq = upto


def _apply(fold: StreamFold, item: Envelope | RowRun) -> None:
    if isinstance(item, RowRun):
        assert isinstance(fold, RecordsFold)
        fold.apply_run(item)
    else:
        fold.apply(item)


def _apply_draft(fold: StreamFold, draft: Draft, seq: int, recorded_at_ns: int) -> None:
    """As `_apply`, of what was a draft until it got this seq and time."""
    payload = draft.payload
    if isinstance(payload, Rows):
        assert isinstance(fold, RecordsFold)
        fold.revision = draft.revision
        first, keys = seq << LOC_ROW_BITS, draft.keys
        if len(keys) == 1:
            fold.index.put_one(keys[0], payload.timestamps.item(), first)
            return
        locs = np.arange(first, first + len(keys), dtype=np.uint64)
        fold.index.put(keys, payload.timestamps, locs)
    else:
        fold.apply(draft.envelope(seq, recorded_at_ns))


def _is_forgotten_deletion(event: Envelope) -> bool:
    """Whether an event is what is left of a deletion: only that is named as its own end."""
    return event.type == FORGOTTEN and event.count == event.seq


def _holds_forgotten(
    reader: Reader, upto: int, stream: Stream | None, folds: Iterable[StreamFold]
) -> bool:
    """Whether anything that lives in these folds is forgotten by now. Cost: O(erased events)."""
    erased = {event.seq for event in reader.erased(0, upto, stream) if event.rows is None}
    for seq in (seq for fold in folds for seq in fold.live_seqs() if seq in erased):
        # Others have lost their data only: a past holds such events, and it is refused elsewhere.
        (event,) = reader.envelopes(seq - 1, seq)
        if event.type == FORGOTTEN:
            return True
    return False
