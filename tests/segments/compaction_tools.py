"""Histories with deletes, what of them is dead, and everything a reader can ask of a log."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fmemory_segments import (
    Blob,
    Draft,
    Envelope,
    Erased,
    Log,
    RowRun,
    Rows,
    StoredEvent,
    Stream,
)
from fmemory_segments._frame import FRAME_HEADER_BYTES, FrameKind, frame_bytes
from fmemory_segments._frame import unpack_header as unpack_frame
from fmemory_segments._header import SEGMENT_HEADER_BYTES, unpack_header
from fmemory_segments.compaction import Erasure
from tests.segments.compacted_tools import erased, events_of
from tests.segments.event_strategies import make_rows

SEGMENT_BYTES = 2_500
STREAMS: tuple[Stream, ...] = (("records",), ("records", "user1"), ("session", "s1"))


def erasure_at(upto: int, locs: Sequence[int] = (), seqs: Sequence[int] = ()) -> Erasure:
    """What is dead as of a seq."""
    return Erasure(upto, np.array(sorted(locs), np.uint64), np.array(sorted(seqs), np.uint64))


def open_log(path: Path, **options: object) -> Log:
    """A log whose segments are small."""
    return Log.open(path, segment_bytes_max=SEGMENT_BYTES, **options)  # type: ignore[arg-type]


class Story:
    """Random puts, words and deletes in a log, and what of them is dead by now."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.revisions: dict[Stream, int] = {}
        self.living: list[int] = []
        self.words: list[int] = []
        self.dead_locs: list[int] = []
        self.dead_seqs: list[int] = []

    def go_on(self, log: Log, batches: int) -> None:
        """Commit so many batches of one to three events."""
        for _ in range(batches):
            size = self.choose.randint(1, 3)
            actions = [self.choose.choice((self._put, self._put, self._say)) for _ in range(size)]
            if self.living and self.choose.random() < 0.4:
                actions.append(self._delete)
            if self.words and self.choose.random() < 0.2:
                actions.append(self._clear)
            log.commit(lambda txn, actions=actions: self._drafts(txn.head_seq, actions))  # type: ignore[misc]

    @property
    def erasure(self) -> Callable[[int], Erasure]:
        """What is dead, as of a seq."""
        return lambda upto: erasure_at(upto, self.dead_locs, self.dead_seqs)

    def _drafts(self, head_seq: int, actions: Sequence[Callable[[int], Draft]]) -> list[Draft]:
        return [action(seq) for seq, action in enumerate(actions, head_seq + 1)]

    def _revision(self, stream: Stream) -> int:
        self.revisions[stream] = self.revisions.get(stream, 0) + 1
        return self.revisions[stream]

    def _put(self, seq: int) -> Draft:
        choose = self.choose
        stream, count = choose.choice(STREAMS[:2]), choose.choice((1, 1, 2, 5))
        rows = make_rows(
            seq, count, choose.choice((0, 3, 8)), choose.choice(("<f4", "<f8")), has_nonces=False
        )
        self.living += [seq << 16 | row for row in range(count)]
        keys = tuple(f"{seq}-{row}" for row in range(count))
        event_id = f"put-{seq}" if choose.random() < 0.2 else None
        return Draft(
            stream,
            self._revision(stream),
            "records_put",
            rows,
            keys=keys,
            count=count,
            event_id=event_id,
        )

    def _say(self, seq: int) -> Draft:
        self.words.append(seq)
        word = self.choose.randbytes(self.choose.choice((0, 9, 700)))
        event_id = f"said-{seq}" if self.choose.random() < 0.2 else None
        return Draft(
            STREAMS[2], self._revision(STREAMS[2]), "note.taken", Blob(word), event_id=event_id
        )

    def _delete(self, seq: int) -> Draft:
        count = self.choose.randint(1, len(self.living))
        self.choose.shuffle(self.living)
        self.dead_locs += self.living[:count]
        del self.living[:count]
        return Draft(STREAMS[0], self._revision(STREAMS[0]), "records_deleted", Blob(b"%d" % seq))

    def _clear(self, seq: int) -> Draft:
        self.dead_seqs += self.words
        self.words = []
        return Draft(STREAMS[2], self._revision(STREAMS[2]), "session.cleared", Blob(b"%d" % seq))


def everything(log: Log, erasure: Erasure | None = None, head: int | None = None) -> list[object]:
    """All that a reader can ask, comparable; with what an erasure names left out.

    Args:
        head: Ask only for events up to here, and not for streams, which others may extend.
    """
    asks_for_all = head is None
    newest = log.refresh()
    head = newest if head is None else head
    events = events_of(log)[:head]
    assert [event.envelope.seq for event in events] == list(range(1, head + 1))
    if erasure is not None:
        events = erased(events, erasure)
    found: list[object] = [log.store_id, head, log.head(head)]
    found += [(event.envelope, plain(event.payload)) for event in events]
    found += [_folded(log, head, stream) for stream in (None, *STREAMS)]
    found += [list(log.envelopes(0, head, stream=stream, backwards=True)) for stream in STREAMS]
    found.append(_pages(log, events))
    found += [
        log.find(event.envelope.stream, event.envelope.event_id)
        for event in events
        if event.envelope.event_id is not None
    ]
    if asks_for_all:
        found.append(log.streams())
    return found


def plain(payload: object) -> object:
    """A payload as a value that compares equal when it holds the same."""
    if not isinstance(payload, Rows):
        assert isinstance(payload, Blob | Erased)
        return payload
    flags = np.zeros(len(payload), np.bool_) if payload.erased is None else payload.erased
    digests = b"" if payload.digests is None else payload.digests[flags].tobytes()
    return (
        payload.timestamps.tobytes(),
        payload.notes,
        payload.note_offsets.tolist(),
        (payload.vectors.dtype.str, payload.vectors.shape, payload.vectors.tobytes()),
        payload.embedding_ids,
        payload.nonces,
        flags.tolist(),
        digests,
    )


def _folded(log: Log, head: int, stream: Stream | None) -> object:
    """A fold, stream by stream, without regard to where runs are cut."""
    found: dict[Stream, list[object]] = {}
    for item in log.fold(0, head, stream):
        if isinstance(item, Envelope):
            found.setdefault(item.stream, []).append(item)
            continue
        assert isinstance(item, RowRun)
        rows = zip(item.ids, item.timestamps.tolist(), item.locs.tolist(), strict=True)
        found.setdefault(item.stream, []).extend(rows)
    return found


def _pages(log: Log, events: Sequence[StoredEvent]) -> object:
    """All living rows, in one page and one by one."""
    locs = []
    for event in events:
        if isinstance(event.payload, Rows):
            flags = event.payload.erased
            locs += [
                event.envelope.seq << 16 | row
                for row in range(len(event.payload))
                if flags is None or not flags[row]
            ]
    if not locs:
        return None
    page = log.rows(np.array(locs, np.uint64))
    single = [log.row(loc) for loc in locs]
    return (
        bytes(page.notes),
        [(block.dtype.str, block.shape, block.tobytes()) for block in page.blocks],
        page.embedding_ids,
        [(note, vector.tobytes(), embedding) for note, vector, embedding in single],
    )


def holds_bytes(path: Path, needle: bytes) -> list[str]:
    """Names of files of a store that hold these bytes, deflated or not."""
    return [
        str(file.relative_to(path))
        for file in sorted(path.rglob("*"))
        if file.is_file() and needle in plain_bytes(file)
    ]


def plain_bytes(file: Path) -> bytes:
    """The bytes of a file, and behind them what its deflated LEDGER and SEAL frames say."""
    content = file.read_bytes()
    segment = unpack_header(content) if file.suffix == ".log" else None
    if segment is None:
        return content
    found, at = [content], SEGMENT_HEADER_BYTES
    while (header := unpack_frame(content[at : at + 64], segment.salt, at)) is not None:
        if header.is_deflated:
            is_ledger = header.kind == FrameKind.LEDGER
            start = at + (FRAME_HEADER_BYTES if is_ledger else header.data_start)
            size = header.meta_bytes if is_ledger else header.data_bytes
            found.append(zlib.decompress(content[start : start + size]))
        at += frame_bytes(header)
    return b"".join(found)
