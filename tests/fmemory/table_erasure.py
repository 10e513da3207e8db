"""Erasure in tables of events: random histories, what must stay, and what must be gone.

Goal: erasure takes out what it is told and nothing else. Method: a history of puts and other events
of all sizes, in which every note, vector, embedding id and payload is random bytes of its own; some
of it is erased, again and again; then everything that can be read is compared with what was written
and the bytes of the store are searched. What would have to break: a row that goes or stays wrongly,
a digest or chain value that changes, or a copy of erased bytes anywhere in the store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from fmemory.journal import (
    Blob,
    DataErased,
    Draft,
    Envelope,
    Erased,
    Erasure,
    Head,
    Payload,
    RowRun,
    Rows,
    Stream,
    Txn,
)
from fmemory.journals._tables.journal import TableJournal
from fmemory_segments import payload_digest, row_digests
from fmemory_segments.event import NONCE_BYTES, BoolArray, UInt64Array
from tests.segments.event_strategies import same_payload

STREAMS: tuple[Stream, ...] = (("records",), ("records", "n"), ("session", "s"))
TRACE_BYTES = 12
"""Random bytes of at least this length do not occur twice by chance."""


@dataclass
class History:
    """A log that is written and erased, and what it should hold.

    Attributes:
        originals: Payloads as they were written, by seq.
        gone: What was erased of each, by seq: which rows, or for other events one True.
    """

    journal: TableJournal
    random: Random
    originals: dict[int, Payload] = field(default_factory=dict)
    gone: dict[int, BoolArray] = field(default_factory=dict)
    revisions: dict[Stream, int] = field(default_factory=dict)

    def grow(self, batches: int, *, rows_max: int = 40) -> None:
        """Commit batches of one to four events."""
        for _ in range(batches):
            drafts = [self._draft(rows_max) for _ in range(self.random.choice([1, 1, 1, 4]))]
            done = self.journal.commit(partial(planned, drafts))
            assert done is not None
            seqs = range(done.first_seq, done.last_seq + 1)
            for seq, payload in zip(seqs, self.journal.payloads(seqs), strict=True):
                self.originals[seq] = payload
                size = len(payload) if isinstance(payload, Rows) else 1
                self.gone[seq] = np.zeros(size, np.bool_)

    def choose(self, share: float, *, upto: int | None = None) -> Erasure:
        """An erasure of about this share of rows and events."""
        upto = max(self.originals) if upto is None else upto
        locs, seqs = [], []
        for seq, payload in self.originals.items():
            if seq > upto:
                continue
            if not isinstance(payload, Rows):
                seqs += [seq] if self.random.random() < share else []
                continue
            # Some events lose all, most a part.
            part = self.random.choice([share, share, 0.0, 1.0])
            locs += [seq << 16 | row for row in range(len(payload)) if self.random.random() < part]
        return Erasure(upto, np.array(locs, np.uint64), np.array(seqs, np.uint64))

    def note(self, erasure: Erasure) -> tuple[int, int]:
        """Mark as gone what an erasure names; how many rows and events were not before."""
        before = self._counts()
        for loc in erasure.locs.tolist():
            self.gone[loc >> 16][loc & 0xFFFF] = True
        for seq in erasure.seqs.tolist():
            self.gone[seq][0] = True
        rows, events = self._counts()
        return rows - before[0], events - before[1]

    def expected(self, seq: int) -> Payload:
        """The payload of an event by what was erased of it."""
        payload, gone = self.originals[seq], self.gone[seq]
        if not gone.any():
            return payload
        if not isinstance(payload, Rows):
            return Erased(payload_digest(payload))
        bounds, flags = payload.note_offsets.tolist(), gone.tolist()
        notes = [
            b"" if flags[row] else payload.notes[bounds[row] : bounds[row + 1]]
            for row in range(len(payload))
        ]
        nonces = np.frombuffer(payload.nonces, np.uint8).reshape(-1, NONCE_BYTES)
        left = ~gone[:, None]
        return Rows(
            payload.timestamps,
            b"".join(notes),
            np.cumsum([0, *map(len, notes)]).astype("<u4"),
            np.where(left, payload.vectors, 0).astype(payload.vectors.dtype),
            tuple(None if flags[row] else one for row, one in enumerate(payload.embedding_ids)),
            np.where(left, nonces, 0).astype(np.uint8).tobytes(),
            gone,
            np.where(left, 0, row_digests(payload)).astype(np.uint8),
        )

    def traces(self, *, erased: bool) -> Iterator[bytes]:
        """Bytes that tell of what was erased, or of what was not."""
        for seq, payload in self.originals.items():
            flags = self.gone[seq].tolist()
            if isinstance(payload, Blob):
                if flags[0] is erased and len(payload.data) >= TRACE_BYTES:
                    yield payload.data[:TRACE_BYTES]
                    yield payload.data[-TRACE_BYTES:]
                continue
            assert isinstance(payload, Rows)
            for row, flag in enumerate(flags):
                if flag is erased:
                    yield from _row_traces(payload, row)

    def locs(self, *, erased: bool) -> UInt64Array:
        """Places of rows that were erased, or were not."""
        return np.array(
            [
                seq << 16 | row
                for seq, payload in self.originals.items()
                if isinstance(payload, Rows)
                for row, flag in enumerate(self.gone[seq].tolist())
                if flag is erased
            ],
            np.uint64,
        )

    def check(self, journal: TableJournal | None = None) -> None:
        """Compare all that a journal gives with what it should hold."""
        journal = journal or self.journal
        seqs = sorted(self.originals)
        for seq, payload in zip(seqs, journal.payloads(seqs), strict=True):
            assert same_payload(payload, self.expected(seq)), seq
        self.check_rows(journal)
        erased = {one.seq: one.rows for one in journal.erased(0, seqs[-1])}
        assert sorted(erased) == [seq for seq in seqs if self.gone[seq].any()]
        for seq, rows in erased.items():
            has_rows = isinstance(self.originals[seq], Rows)
            assert (rows is not None) == has_rows
            assert rows is None or rows.tolist() == self.gone[seq].tolist()
        assert journal.verify() == []

    def check_rows(self, journal: TableJournal) -> None:
        """Compare the rows that are left, and ask in vain for each of the others."""
        for loc in self.locs(erased=False).tolist():
            payload, row = self.originals[loc >> 16], loc & 0xFFFF
            assert isinstance(payload, Rows)
            note, vector, embedding_id = journal.row(loc)
            bounds = payload.note_offsets
            assert note == payload.notes[bounds[row] : bounds[row + 1]]
            assert vector.tobytes() == payload.vectors[row].tobytes()
            assert embedding_id == payload.embedding_ids[row]
        for loc in self.locs(erased=True).tolist():
            with pytest.raises(DataErased) as caught:
                journal.row(loc)
            assert caught.value.seq == loc >> 16

    def _counts(self) -> tuple[int, int]:
        rows = sum(
            int(self.gone[seq].sum())
            for seq, payload in self.originals.items()
            if isinstance(payload, Rows)
        )
        return rows, sum(int(gone.sum()) for gone in self.gone.values()) - rows

    def _draft(self, rows_max: int) -> Draft:
        stream = self.random.choice(STREAMS)
        revision = self.revisions[stream] = self.revisions.get(stream, 0) + 1
        payload: Blob | Rows
        if stream[0] == "session":
            payload = Blob(self.random.randbytes(self.random.choice([0, 1, 14, 40, 900, 9000])))
            return Draft(stream, revision, "word.said", payload)
        count = self.random.choice([1, 1, 2, rows_max])
        keys = tuple(f"{stream}-{revision}-{row}" for row in range(count))
        payload = self._rows(count)
        return Draft(stream, revision, "records_put", payload, keys=keys, count=count)

    def _rows(self, count: int) -> Rows:
        notes = [
            b"\xa1k" + _text(self.random.randbytes(self.random.choice([0, 12, 60, 700]))) + b"\x80"
            for _ in range(count)
        ]
        dim = self.random.choice([0, 3, 64])
        vectors = np.frombuffer(self.random.randbytes(4 * count * dim), "<u4") >> 2
        models = [None, self.random.randbytes(8).hex()]
        return Rows(
            np.array([self.random.uniform(-5, 5) for _ in range(count)], "<f8"),
            b"".join(notes),
            np.cumsum([0, *map(len, notes)]).astype("<u4"),
            vectors.view("<f4").reshape(count, dim),
            tuple(self.random.choice(models) for _ in range(count)),
        )


@dataclass(frozen=True)
class Seen:
    """What erasure must not change: the envelopes, what a fold gives, and the chain."""

    head: Head
    envelopes: list[Envelope]
    folded: list[object]

    @classmethod
    def of(cls, journal: TableJournal, upto: int) -> Seen:
        """What a journal shows."""
        return cls(
            journal.head(upto),
            list(journal.envelopes(0, upto)),
            [_plain(item) for item in journal.fold(0, upto)],
        )


def planned(drafts: list[Draft], _txn: Txn) -> list[Draft]:
    """A plan that appends these."""
    return drafts


def found_in(traces: Iterable[bytes], files: Iterable[Path]) -> list[bytes]:
    """Those traces that any of the files holds."""
    content = b"\0".join(path.read_bytes() for path in files)
    wanted = list(traces)
    # Most are nowhere. What no place starts with, by two bytes and then by eight, is not searched.
    heads = np.array([int.from_bytes(trace[:8], sys.byteorder) for trace in wanted], np.uint64)
    places = sliding_window_view(np.frombuffer(content, np.uint8), 8)
    starts = np.ascontiguousarray(places).view(np.uint64).ravel()
    known = np.zeros(1 << 16, bool)
    known[heads & 0xFFFF] = True
    maybe = np.isin(heads, starts[known[starts & 0xFFFF]])
    return [trace for trace, may in zip(wanted, maybe, strict=True) if may and trace in content]


def _plain(item: Envelope | RowRun) -> object:
    if isinstance(item, Envelope):
        return item
    return (
        item.stream,
        item.first_revision,
        item.event_count,
        item.first_seq,
        item.last_seq,
        item.ids,
        item.timestamps.tolist(),
        item.locs.tolist(),
    )


def _row_traces(rows: Rows, row: int) -> Iterator[bytes]:
    note = rows.notes[rows.note_offsets[row] : rows.note_offsets[row + 1]]
    yield rows.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)]
    if len(note) > 2 * TRACE_BYTES:
        yield note[5 : 5 + TRACE_BYTES]
        yield note[-TRACE_BYTES:]
    if rows.vectors.shape[1]:
        yield rows.vectors[row].tobytes()[:TRACE_BYTES]


def _text(content: bytes) -> bytes:
    """MessagePack of text with this many bytes, so that notes are what a reader expects."""
    text = content.hex().encode()[: len(content)]
    return b"\xda" + len(text).to_bytes(2, "big") + text
