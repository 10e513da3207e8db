"""The projection: state folded from events, stream by stream.

Whoever asks for a stream names the seq up to which it must be folded. A journal that can read one
stream cheaply (`reads_streams`, and every view of the past) is folded stream by stream when it is
asked for; any other is folded wholly. Nothing here writes, checks rules or reads payloads.

A stub says that what was deleted there was forgotten, and no longer what that was. Who folds from
the start meets stubs instead of all of it; who has folded some of it before must fold anew.
"""

from __future__ import annotations

from fmemory._engine.record_index import RecordIndex
from fmemory._engine.session_fold import MetaFold, SessionFold
from fmemory._engine.types import META, RECORDS, SESSION, EventType
from fmemory.journal import Reader
from fmemory_segments import FORGOTTEN, Envelope, RowRun, Stream


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


class RevisionFold:
    """A caller's own stream, of which only the revision is folded."""

    __slots__ = ("revision",)

    def __init__(self) -> None:
        self.revision = 0

    def apply(self, event: Envelope) -> None:
        """Count one event."""
        self.revision = event.revision


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

    __slots__ = ("_by_stream", "_folds", "_seq", "_seqs")

    def __init__(self, *, by_stream: bool) -> None:
        self._by_stream = by_stream
        self._folds: dict[Stream, StreamFold] = {}
        self._seqs: dict[Stream, int] = {}
        self._seq = 0

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
        if after < upto:
            try:
                for item in reader.fold(after, upto, stream):
                    if after and _is_stub(item):
                        fold = self._folds[stream] = _folded(reader, stream, upto)
                        break
                    _apply(fold, item)
            except BaseException:
                # Half a fold is no state: the next question folds this stream from its start.
                del self._folds[stream]
                self._seqs.pop(stream, None)
                raise
            self._seqs[stream] = upto
        return fold

    def _catch_up(self, reader: Reader, upto: int) -> None:
        if self._by_stream or self._seq >= upto:
            return
        folds = self._folds
        stale: set[Stream] = set()
        try:
            for item in reader.fold(self._seq, upto):
                if self._seq and _is_stub(item):
                    stale.add(item.stream)
                fold = folds.get(item.stream)
                if fold is None:
                    fold = folds[item.stream] = _new_fold(item.stream)
                _apply(fold, item)
            for stream in stale:
                folds[stream] = _folded(reader, stream, upto)
        except BaseException:
            folds.clear()
            self._seq = 0
            raise
        self._seq = upto


def _folded(reader: Reader, stream: Stream, upto: int) -> StreamFold:
    """A stream from its start."""
    fold = _new_fold(stream)
    for item in reader.fold(0, upto, stream):
        _apply(fold, item)
    return fold


def _is_stub(item: Envelope | RowRun) -> bool:
    return isinstance(item, Envelope) and item.type == FORGOTTEN


def _apply(fold: StreamFold, item: Envelope | RowRun) -> None:
    if isinstance(item, Envelope):
        fold.apply(item)
    else:
        assert isinstance(fold, RecordsFold)
        fold.apply_run(item)
