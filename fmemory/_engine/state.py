"""Reads: what a caller asks, answered from the projection and the journal.

A `State` is either live, and then every question first catches up with the log, or it stands still
at one seq. The engine's lock is held while the index is asked, never while payloads are read.

Data may be erased between the two. What a live state was about to read was deleted before, so the
question is asked again; a past whose data are gone is refused. What a repair found lost was never
deleted: it is damage, now and in every view of the past that holds it.
"""

from __future__ import annotations

import functools
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar

import msgspec
import numpy as np

from fmemory._engine import stored
from fmemory._engine.cursors import CursorCodec
from fmemory._engine.erasure import floor_of, gone
from fmemory._engine.events import event_of
from fmemory._engine.pace import Pace
from fmemory._engine.projection import Projection
from fmemory._engine.rows import decode_page, decode_row
from fmemory._engine.session_fold import SessionFold
from fmemory._engine.types import (
    RECORDS,
    SESSION,
    EventType,
    meta_stream,
    records_stream,
    session_stream,
)
from fmemory._engine.work import blobs_of, payload_bytes
from fmemory._json_values import JsonValue
from fmemory.errors import ContractError, HistoryCompacted, Reason
from fmemory.journal import DataErased, Envelope, Reader, Usage
from fmemory.log_models import Event
from fmemory.record_models import MemoryRecord, TimeRange, VectorBlock
from fmemory.session_models import BootstrapState, Message, SessionInfo
from fmemory_segments import LOC_ROW_BITS, Stream, StreamInfo
from fmemory_segments.event import UInt64Array, VectorArray

P = ParamSpec("P")
T = TypeVar("T")

_NO_RANGE = TimeRange()
_EVENTS_PER_READ = 128
_ROWS_PER_READ = 2048
_SESSIONS_MIN = 256
_ASKED_AGAIN_MAX = 5


def kept(
    ask: Callable[Concatenate[State, P], T],
) -> Callable[Concatenate[State, P], T]:
    """A question whose data may be erased while it is answered."""

    def asked(self: State, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return ask(self, *args, **kwargs)
        except DataErased as erased:
            return self.ask_again(erased, lambda: ask(self, *args, **kwargs))

    functools.update_wrapper(asked, ask)
    return asked


class State:
    """The readable half of a memory, live or as of one seq."""

    def __init__(
        self,
        reader: Reader,
        projection: Projection,
        lock: threading.RLock,
        cursors: CursorCodec,
        fixed: int | None = None,
    ) -> None:
        self.reader = reader
        self.fixed = fixed
        self._projection = projection
        self._lock = lock
        self.cursors = cursors
        self._past_streams: list[StreamInfo] | None = None
        self._floors: dict[Stream, int] = {}

    def upto(self) -> int:
        """The seq that this question is answered for."""
        newest = self.reader.refresh()
        return newest if self.fixed is None else self.fixed

    # Records

    @kept
    def get(
        self, ids: Sequence[str], namespace: tuple[str, ...]
    ) -> tuple[list[MemoryRecord], tuple[str, ...]]:
        """Records by id in the order asked for, each once, and the ids that are not there."""
        upto = self._upto_of_records(namespace)
        with self._lock:
            index = self._projection.records(self.reader, namespace, upto).index
            row_of = index.row_of
            wanted = dict.fromkeys(ids)
            rows = [row_of[one] for one in wanted if one in row_of]
            missing = tuple([one for one in wanted if one not in row_of])
            locs, timestamps = index.locs_of(rows), index.timestamps_of(rows)
        if not len(locs):
            return [], missing
        return decode_page(self.reader.rows(locs), timestamps, namespace), missing

    def get_one(self, record_id: str, namespace: tuple[str, ...]) -> MemoryRecord | None:
        """One record by id; None if it is not there. Cost: about 10 µs."""
        # As `kept`, but without what that costs beside a single record.
        try:
            return self._get_one(record_id, namespace)
        except DataErased as erased:
            return self.ask_again(erased, lambda: self._get_one(record_id, namespace))

    def _get_one(self, record_id: str, namespace: tuple[str, ...]) -> MemoryRecord | None:
        reader = self.reader
        upto = reader.refresh() if self.fixed is None else self._upto_of_records(namespace)
        with self._lock:
            index = self._projection.records(reader, namespace, upto).index
            row = index.row_of.get(record_id)
            if row is None:
                return None
            loc, timestamp = index.place_of(row)
        return decode_row(reader.row(loc), timestamp, namespace)

    @kept
    def scan(
        self,
        time_range: TimeRange | None,
        namespace: tuple[str, ...],
        limit: int,
        cursor: str | None,
    ) -> tuple[list[MemoryRecord], str | None]:
        """One page of records and the cursor of the next."""
        after = None if cursor is None else self.cursors.decode(cursor, RECORDS, namespace)
        span = time_range or _NO_RANGE
        upto = self._upto_of_records(namespace)
        with self._lock:
            index = self._projection.records(self.reader, namespace, upto).index
            page = index.page(span.start, span.end, after, limit)
        if not len(page.rows):
            return [], None
        if len(page.locs) == 1:
            row = self.reader.row(page.locs.item())
            records = [decode_row(row, page.timestamps.item(), namespace)]
        else:
            records = decode_page(self.reader.rows(page.locs), page.timestamps, namespace)
        if not page.more:
            return records, None
        last = (float(page.timestamps[-1]), int(page.locs[-1]))
        return records, self.cursors.encode(RECORDS, namespace, *last)

    @kept
    def count(self, time_range: TimeRange | None, namespace: tuple[str, ...]) -> int:
        """Live records in a range."""
        span = time_range or _NO_RANGE
        upto = self._upto_of_records(namespace)
        with self._lock:
            index = self._projection.records(self.reader, namespace, upto).index
            return index.count(span.start, span.end)

    @kept
    def meta(self, key: str, namespace: tuple[str, ...]) -> JsonValue:
        """A meta value in new objects; None if absent."""
        upto = self._upto_of_stream(meta_stream(namespace))
        with self._lock:
            seq = self._projection.meta(self.reader, namespace, upto).set_seq.get(key)
        if seq is None:
            return None
        (data,) = self._blobs([seq])
        value: JsonValue = stored.value_decoder.decode(data) if data else None
        return value

    @kept
    def vectors(
        self,
        time_range: TimeRange | None,
        namespace: tuple[str, ...],
        ids: Sequence[str] | None,
    ) -> VectorBlock:
        """Vectors of the records that have one, in scan order."""
        span = time_range or _NO_RANGE
        upto = self._upto_of_records(namespace)
        with self._lock:
            index = self._projection.records(self.reader, namespace, upto).index
            rows = index.select(span.start, span.end)
            if ids is not None:
                chosen = [index.row_of[one] for one in dict.fromkeys(ids) if one in index.row_of]
                rows = rows[np.isin(rows, np.array(chosen, np.int64))]
            locs, timestamps = index.locs_of(rows), index.timestamps_of(rows)
            all_ids = index.ids
            names = [all_ids[row] for row in rows.tolist()]
        matrix, kept = self._matrix(locs)
        if kept is not None:
            timestamps = timestamps[kept]
            names = [name for name, keep in zip(names, kept.tolist(), strict=True) if keep]
        return VectorBlock(ids=tuple(names), timestamps=timestamps, matrix=matrix)

    # Sessions

    def session(self, session_id: str) -> SessionFold:
        """The folded places of a session: a copy."""
        upto = self._upto_of_stream(session_stream(session_id))
        with self._lock:
            return self._projection.session(self.reader, session_id, upto).copy()

    def is_initialized(self, session_id: str) -> bool:
        """Whether a session has a manifest."""
        upto = self._upto_of_stream(session_stream(session_id))
        with self._lock:
            fold = self._projection.session(self.reader, session_id, upto)
            return fold.manifest_seq is not None

    @kept
    def bootstrap(self, session_id: str) -> BootstrapState:
        """Everything of a session but its transcript."""
        fold = self.session(session_id)
        manifest = stored.manifest_of(self._parts(fold, fold.manifest_seq))
        features = stored.features_of(self._parts(fold, fold.features_seq))
        progress = stored.progress_of(self._parts(fold, *fold.progress))
        checkpoints = stored.checkpoints_of(self._parts(fold, *fold.checkpoints))
        return BootstrapState(
            manifest=None if manifest is None else stored.load_manifest(manifest),
            feature_list=stored.load_features(features, fold.passes),
            recent_progress=tuple([stored.load_progress(entry) for entry in progress]),
            checkpoints=tuple([stored.load_checkpoint(one) for one in checkpoints]),
            revision=fold.revision,
        )

    @kept
    def messages(self, session_id: str, window: Callable[[int], range]) -> tuple[Message, ...]:
        """The messages that a window of the transcript's length chooses."""
        fold = self.session(session_id)
        chosen = window(fold.message_count)
        first, stop = chosen.start, chosen.stop
        places = list(fold.places(first, stop)) if chosen else []
        messages: list[Message] = []
        for place, data in zip(places, self._blobs([one.seq for one in places]), strict=True):
            low, high = max(0, first - place.first), min(place.count, stop - place.first)
            messages += [stored.load_message(one) for one in stored.messages_of(data)[low:high]]
        return tuple(messages)

    def sessions(self, limit: int, cursor: str | None) -> tuple[list[SessionInfo], str | None]:
        """Sessions, the most recently written first; deleted ones are left out."""
        before = None
        if cursor is not None:
            _, before = self.cursors.decode(cursor, SESSION, ())
        upto = self.upto()
        found: list[SessionInfo] = []
        while True:
            # One more than asked for tells whether there is a next page.
            page = self.stream_infos((SESSION,), before, max(limit + 1 - len(found), _SESSIONS_MIN))
            for listed in page:
                if len(found) > limit:
                    break
                session_id = listed.stream[1]
                self._upto_of_stream(listed.stream)
                with self._lock:
                    fold = self._projection.session(self.reader, session_id, upto)
                    info = _session_info(session_id, fold)
                if info is not None:
                    found.append(info)
                before = listed.last_seq
            if not page or len(found) > limit:
                break
        if len(found) <= limit:
            return found, None
        found = found[:limit]
        return found, self.cursors.encode(SESSION, (), 0.0, found[-1].last_seq)

    # Events

    def events(
        self,
        after: int,
        upto: int,
        *,
        stream: Stream | None = None,
        backwards: bool = False,
        keep: Callable[[Envelope], bool] | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Events with their data, read some at a time; no lock is held between them."""
        waiting: list[Envelope] = []
        rows = 0
        left = limit
        pace = Pace(_EVENTS_PER_READ)
        for envelope in self.reader.envelopes(after, upto, stream=stream, backwards=backwards):
            if keep is not None and not keep(envelope):
                continue
            waiting.append(envelope)
            rows += envelope.count if envelope.type == EventType.RECORDS_PUT else 0
            if len(waiting) >= pace.count or rows >= _ROWS_PER_READ:
                yield from self._with_data(waiting, pace)
                waiting, rows = [], 0
            if left is not None:
                # Before the next is looked at: it may be damaged, and nobody asked for it.
                left -= 1
                if left <= 0:
                    break
        yield from self._with_data(waiting, pace)

    def event(self, seq: int) -> Event | None:
        """One event; None where there is none of that number."""
        if not 1 <= seq <= self.upto():
            return None
        (event,) = self._with_data(list(self.reader.envelopes(seq - 1, seq)), Pace(1))
        return event

    def seq_at(self, time: datetime, where: str = "time") -> int:
        """The newest event recorded at or before a time; 0 if there is none. Cost: O(log n)."""
        wanted = stored.to_ns(time, where, clamp=True)
        # Times are shown in microseconds, so that is how they are compared.
        return self._count_while(lambda ns: ns // 1000 * 1000 <= wanted)

    def seq_before(self, time: datetime, where: str) -> int:
        """The newest event recorded before a time; 0 if there is none. Cost: O(log n)."""
        wanted = stored.to_ns(time, where, clamp=True)
        return self._count_while(lambda ns: ns // 1000 * 1000 < wanted)

    def find(self, event_id: str, stream: Stream | None) -> Event | None:
        """The event with an idempotency key, in one stream or anywhere."""
        upto = self.upto()
        streams = [info.stream for info in self.reader.streams()] if stream is None else [stream]
        found = [seq for one in streams if (seq := self.reader.find(one, event_id)) is not None]
        first = min(found, default=upto + 1)
        return self.event(first) if first <= upto else None

    def record_history(self, stream: Stream, record_id: str, upto: int) -> Iterator[Event]:
        """Puts, deletes and clears of one record; a put shows only this one."""
        cleared = EventType.RECORDS_CLEARED

        def concerns(event: Envelope) -> bool:
            return record_id in event.keys or event.type == cleared

        for event in self.events(0, upto, stream=stream, keep=concerns):
            if event.type == EventType.RECORDS_PUT:
                own = [record for record in event.records if record.id == record_id]
                yield msgspec.structs.replace(event, records=tuple(own))
            else:
                yield event

    def stream_infos(self, prefix: Stream, before: int | None, limit: int) -> list[StreamInfo]:
        """Streams as of now or of the fixed seq, newest first."""
        upto = self.upto()
        if self.fixed is None:
            return self.reader.streams(prefix, before, limit)
        if self._past_streams is None:
            self._past_streams = self._streams_of_past(upto)
        past = self._past_streams
        # Newest first: those of a smaller last seq begin where a binary search says.
        start = 0 if before is None else bisect_left(past, 1 - before, key=lambda i: -i.last_seq)
        found = (info for info in past[start:] if info.stream[: len(prefix)] == prefix)
        return list(islice(found, limit))

    def _streams_of_past(self, upto: int) -> list[StreamInfo]:
        """The journal lists streams as they are now; the past is told from the events, once."""
        infos: dict[Stream, StreamInfo] = {}
        for event in self.reader.envelopes(0, upto):
            info = infos.get(event.stream)
            infos[event.stream] = StreamInfo(
                event.stream,
                event.revision,
                1 if info is None else info.event_count + 1,
                event.seq if info is None else info.first_seq,
                event.seq,
                event.recorded_at_ns,
            )
        return sorted(infos.values(), key=lambda info: -info.last_seq)

    def usage(self, upto: int) -> list[Usage]:
        """Events and payload bytes by stream and type up to a seq. Cost: reads all of it."""
        totals: dict[tuple[Stream, str], tuple[int, int]] = {}
        for event in self.reader.envelopes(0, upto):
            (payload,) = self.reader.payloads([event.seq])
            key = (event.stream, event.type)
            count, size = totals.get(key, (0, 0))
            totals[key] = (count + 1, size + payload_bytes(payload))
        return [Usage(*key, *total) for key, total in totals.items()]

    def record_count(self) -> int:
        """Live records of all namespaces."""
        upto = self.upto()
        for info in [] if self.fixed is None else self.reader.streams((RECORDS,)):
            self._upto_of_stream(info.stream)
        with self._lock:
            return self._projection.record_count(self.reader, upto)

    def ask_again(self, erased: DataErased, ask: Callable[[], T]) -> T:
        """Answer after data were erased meanwhile.

        Raises:
            HistoryCompacted: They were of the past that is asked for.
            LogCorrupt: They were lost before a repair, or are erased although nothing deletes them.
        """
        if self.fixed is not None:
            (event,) = self.reader.envelopes(erased.seq - 1, erased.seq)
            # What is erased by now was deleted by now, and behind this past: the floor tells both.
            floor = self._floor(event.stream, anew=True)
            raise self._compacted(floor) if self.fixed < floor else gone(self.reader, erased.seq)
        for _ in range(_ASKED_AGAIN_MAX):
            try:
                return ask()
            except DataErased as again:
                erased = again
        raise gone(self.reader, erased.seq)

    # Private

    def _upto_of_records(self, namespace: tuple[str, ...]) -> int:
        """As `upto`, once it is sure that the records of then are all kept."""
        stream = records_stream(namespace)
        newest, fixed = self._folded_first(stream), self.fixed
        if fixed is None:
            return newest
        if fixed < newest and fixed < (floor := self._floor(stream)):
            raise self._compacted(floor)
        return fixed

    def _upto_of_stream(self, stream: Stream) -> int:
        """As `upto`, once it is sure that no event of then was forgotten."""
        newest, fixed = self.reader.refresh(), self.fixed
        if fixed is None:
            return newest
        with self._lock:
            floor = self._projection.stub_end(self.reader, stream, fixed)
        if fixed < floor:
            raise self._compacted(floor)
        return fixed

    def _folded_first(self, stream: Stream) -> int:
        """The newest seq, once a past is folded: what is missing in it then shows in its floor."""
        newest = self.reader.refresh()
        if self.fixed is None:
            return newest
        with self._lock:
            self._projection.revision(self.reader, stream, self.fixed)
        return self.reader.refresh()

    def _floor(self, stream: Stream, *, anew: bool = False) -> int:
        if anew or stream not in self._floors:
            self._floors[stream] = floor_of(self.reader, stream, self.reader.refresh())
        return self._floors[stream]

    def _compacted(self, floor: int) -> HistoryCompacted:
        assert self.fixed is not None
        return HistoryCompacted(
            f"past: expected a seq from {floor} on, got {self.fixed}; what was deleted up to event"
            f" {floor} has been erased; ask for a later moment",
            seq=self.fixed,
            floor=floor,
        )

    def _blobs(self, seqs: Sequence[int]) -> list[bytes]:
        return blobs_of(self.reader, seqs)

    def _parts(self, fold: SessionFold, *seqs: int | None) -> list[stored.Part]:
        known = [seq for seq in seqs if seq is not None]
        return fold.parts(known, self._blobs(known))

    def _matrix(self, locs: UInt64Array) -> tuple[VectorArray, np.ndarray | None]:
        """One matrix of the rows that have a vector, and which those are (None = all)."""
        if not len(locs):
            return np.empty((0, 0)), None
        blocks = self.reader.rows(locs, notes=False).blocks
        if len(blocks) == 1 and blocks[0].shape[1]:
            return blocks[0], None
        kept = np.concatenate([np.full(len(block), block.shape[1] > 0) for block in blocks])
        blocks = [block for block in blocks if block.shape[1]]
        if len({block.shape[1] for block in blocks}) > 1:
            raise _of_several_dims(blocks, locs[kept])
        return (np.concatenate(blocks) if blocks else np.empty((0, 0))), kept

    def _count_while(self, holds: Callable[[int], bool]) -> int:
        """How many events from the first on have a time for which `holds`."""
        low, high = 0, self.upto()
        while low < high:
            middle = (low + high + 1) // 2
            (event,) = self.reader.envelopes(middle - 1, middle)
            if holds(event.recorded_at_ns):
                low = middle
            else:
                high = middle - 1
        return low

    def _with_data(self, envelopes: Sequence[Envelope], pace: Pace) -> Iterator[Event]:
        if not envelopes:
            return
        payloads = self.reader.payloads([envelope.seq for envelope in envelopes])
        pace.took(len(payloads), sum(map(payload_bytes, payloads)))
        for envelope, payload in zip(envelopes, payloads, strict=True):
            yield event_of(envelope, payload)


def _session_info(session_id: str, fold: SessionFold) -> SessionInfo | None:
    if fold.is_empty and fold.deleted:
        return None
    return SessionInfo(
        session_id=session_id,
        revision=fold.revision,
        last_seq=fold.last_seq,
        updated_at=stored.from_ns(fold.last_recorded_at_ns),
        initialized=fold.manifest_seq is not None,
    )


def _of_several_dims(blocks: Sequence[VectorArray], locs: UInt64Array) -> ContractError:
    """The error for vectors of several dimensions; it names a record of the rarest."""
    counts: Counter[int] = Counter()
    first: dict[int, int] = {}
    for block in blocks:
        dim = block.shape[1]
        first.setdefault(dim, int(locs[counts.total()]) >> LOC_ROW_BITS)
        counts[dim] += len(block)
    told = ", ".join(f"{dim} ({counts[dim]})" for dim in sorted(counts))
    rarest, _ = counts.most_common()[-1]
    return ContractError(
        f"vectors: expected one dimension, got {told}, as one of {rarest} in event {first[rarest]};"
        " keep vectors of different models in namespaces of their own, or choose records by ids or"
        " time",
        reason=Reason.WRONG_DIMENSION,
    )
