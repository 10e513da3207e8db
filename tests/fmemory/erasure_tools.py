"""Random histories of words that stand nowhere else, and what holds once some are erased."""

from __future__ import annotations

import random
from base64 import b64encode
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from fmemory.journal import (
    Blob,
    DataErased,
    Draft,
    Envelope,
    Erased,
    ErasedEvent,
    Erasure,
    Journal,
    Payload,
    RowRun,
    Rows,
    Stream,
)
from fmemory_segments import LOC_ROW_BITS, payload_digest, row_digests

STREAMS: tuple[Stream, ...] = (("records", "a"), ("records", "b"), ("words",), ("other", "x"))
DIMS: dict[Stream, tuple[int, str]] = {("records", "a"): (3, "<f8"), ("records", "b"): (2, "<f4")}


def secret(number: int) -> str:
    """A word that only the data of one item hold."""
    return f"secret{number:06}word"


@dataclass
class Writer:
    """Makes drafts that follow each other; remembers the revision of each stream."""

    choose: random.Random
    revisions: dict[Stream, int] = field(default_factory=dict)
    count: int = 0

    def draft(self) -> Draft:
        """Some event."""
        stream = self.choose.choice(STREAMS)
        revision = self.revisions[stream] = self.revisions.get(stream, 0) + 1
        if stream in DIMS:
            return self._put(stream, revision, self.choose.choice((1, 1, 2, 7)))
        self.count += 1
        data = self.choose.choice(
            [
                msgspec.msgpack.encode({"said": secret(self.count)}),
                b"\xff\x00" + secret(self.count).encode(),
            ]
        )
        return Draft(stream, revision, "word.said", Blob(data), actor="me", reason="to remember")

    def _put(self, stream: Stream, revision: int, rows: int) -> Draft:
        dim, dtype = DIMS[stream]
        bodies, ids, models = [], [], []
        for _ in range(rows):
            self.count += 1
            word = secret(self.count)
            ids.append(f"id{self.count}")
            note: tuple[object, ...] = (ids[-1], f"text {word}", {"meta": f"{word} too"})
            bodies.append(b"".join(map(msgspec.msgpack.encode, note)))
            models.append(self.choose.choice([None, f"model {word}"]))
        numbers = np.arange(self.count - rows + 1, self.count + 1)
        vectors = (numbers[:, None] * 1000 + np.arange(dim) + 0.5).astype(dtype)
        payload = Rows(
            numbers.astype("<f8"),
            b"".join(bodies),
            np.cumsum([0, *map(len, bodies)]).astype("<u4"),
            vectors,
            tuple(models),
        )
        return Draft(stream, revision, "records_put", payload, keys=tuple(ids), count=rows)


def fill(journal: Journal, writer: Writer, batches: int) -> None:
    """Commit so many batches of one to four events."""
    for _ in range(batches):
        drafts = [writer.draft() for _ in range(writer.choose.randint(1, 4))]
        journal.commit(lambda _txn, drafts=drafts: drafts)  # type: ignore[misc]


@dataclass
class Before:
    """What a journal held, whole."""

    envelopes: list[Envelope]
    payloads: list[Payload]
    folded: list[object]
    heads: list[object]
    streams: list[object]

    @property
    def locs(self) -> list[int]:
        """Places of all rows."""
        return [
            (event.seq << LOC_ROW_BITS) + row
            for event, payload in zip(self.envelopes, self.payloads, strict=True)
            if isinstance(payload, Rows)
            for row in range(len(payload))
        ]

    @property
    def seqs(self) -> list[int]:
        """Events without rows."""
        return [
            event.seq
            for event, payload in zip(self.envelopes, self.payloads, strict=True)
            if not isinstance(payload, Rows)
        ]


def remember(journal: Journal) -> Before:
    """All of a journal."""
    head = journal.refresh()
    return Before(
        list(journal.envelopes(0, head)),
        journal.payloads(range(1, head + 1)),
        folded(journal),
        [journal.head(seq) for seq in range(head + 1)],
        list(journal.streams()),
    )


def folded(journal: Journal) -> list[object]:
    """What an index would be built from, comparable."""
    return [
        (
            item.stream,
            item.first_revision,
            item.first_seq,
            item.last_seq,
            item.ids,
            item.timestamps.tolist(),
            item.locs.tolist(),
        )
        if isinstance(item, RowRun)
        else item
        for item in journal.fold(0, journal.refresh())
    ]


def erasure_of(upto: int, locs: list[int], seqs: list[int]) -> Erasure:
    """An erasure of these rows and events."""
    return Erasure(upto, np.array(sorted(locs), np.uint64), np.array(sorted(seqs), np.uint64))


def choose_some(before: Before, choose: random.Random) -> Erasure:
    """Some of the rows and some of the events."""
    locs = [one for one in before.locs if choose.random() < 0.5]
    return erasure_of(
        len(before.envelopes), locs, [one for one in before.seqs if choose.random() < 0.5]
    )


def traces_of(
    before: Before, locs: set[int], seqs: set[int]
) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """How what was erased, and what was not, may stand in a text file: of each item all forms."""
    gone: list[list[bytes]] = []
    kept: list[list[bytes]] = []
    for event, payload in zip(before.envelopes, before.payloads, strict=True):
        if isinstance(payload, Rows):
            for row, key in enumerate(event.keys):
                number = int(key[2:])
                is_gone = (event.seq << LOC_ROW_BITS) + row in locs
                forms = [secret(number).encode(), b"[%d.5," % (number * 1000)]
                (gone if is_gone else kept).append(forms)
        elif isinstance(payload, Blob):
            start = payload.data.index(b"secret")
            word = payload.data[start : start + len(secret(0))]
            (gone if event.seq in seqs else kept).append([word, b64encode(payload.data)])
    return gone, kept


def check_erased(journal: Journal, before: Before, locs: set[int], seqs: set[int]) -> None:
    """Nothing but the data of these rows and events is missing, and those say so."""
    head = journal.refresh()
    count = len(before.envelopes)
    assert head >= count
    assert list(journal.envelopes(0, count)) == before.envelopes
    assert folded(journal)[: len(before.folded)] == before.folded
    assert [journal.head(seq) for seq in range(count + 1)] == before.heads
    if head == count:
        assert journal.streams() == before.streams
    for event, old, new in zip(
        before.envelopes, before.payloads, journal.payloads(range(1, count + 1)), strict=True
    ):
        assert payload_digest(new) == payload_digest(old)
        _check_payload(event.seq, old, new, locs, seqs)
    _check_rows(journal, before, locs)
    told = list(journal.erased(0, count))
    assert list(map(_plain, told)) == _expected(before, locs, seqs)
    for stream in STREAMS:
        of_stream = journal.erased(0, count, stream)
        assert [one.seq for one in of_stream] == [
            one.seq for one in told if before.envelopes[one.seq - 1].stream == stream
        ]


def erased_now(journal: Journal) -> tuple[set[int], set[int]]:
    """Places of the rows, and events without rows, of which a journal says that they are erased."""
    locs: set[int] = set()
    seqs: set[int] = set()
    for one in journal.erased(0, journal.refresh()):
        if one.rows is None:
            seqs.add(one.seq)
        else:
            locs |= {(one.seq << LOC_ROW_BITS) + int(row) for row in np.flatnonzero(one.rows)}
    return locs, seqs


def _check_payload(seq: int, old: Payload, new: Payload, locs: set[int], seqs: set[int]) -> None:
    if not isinstance(old, Rows):
        assert new == (Erased(payload_digest(old)) if seq in seqs else old)
        return
    assert isinstance(new, Rows)
    gone = [(seq << LOC_ROW_BITS) + row in locs for row in range(len(old))]
    assert (new.erased.tolist() if new.erased is not None else [False] * len(old)) == gone
    assert new.timestamps.tolist() == old.timestamps.tolist()
    assert (new.vectors.dtype, new.vectors.shape) == (old.vectors.dtype, old.vectors.shape)
    digests = row_digests(old)
    for row, is_gone in enumerate(gone):
        note = bytes(new.notes[new.note_offsets[row] : new.note_offsets[row + 1]])
        nonce = new.nonces[16 * row : 16 * row + 16]
        if is_gone:
            assert new.digests is not None
            assert new.digests[row].tobytes() == digests[row].tobytes()
            assert (note, new.embedding_ids[row], nonce) == (b"", None, bytes(16))
            assert not new.vectors[row].any()
        else:
            assert note == old.notes[old.note_offsets[row] : old.note_offsets[row + 1]]
            assert nonce == old.nonces[16 * row : 16 * row + 16]
            assert new.embedding_ids[row] == old.embedding_ids[row]
            assert new.vectors[row].tobytes() == old.vectors[row].tobytes()


def _check_rows(journal: Journal, before: Before, locs: set[int]) -> None:
    living = []
    for loc in before.locs:
        if loc not in locs:
            living.append(loc)
            continue
        with pytest.raises(DataErased) as one:
            journal.row(loc)
        with pytest.raises(DataErased) as many:
            journal.rows(np.array([loc], np.uint64))
        assert one.value.seq == many.value.seq == loc >> LOC_ROW_BITS
    page = journal.rows(np.array(living, np.uint64))
    bodies, vectors = [], []
    for loc in living:
        old, row = before.payloads[(loc >> LOC_ROW_BITS) - 1], loc & 0xFFFF
        assert isinstance(old, Rows)
        body, vector, embedding_id = journal.row(loc)
        bodies.append(body)
        vectors.append(vector.tobytes())
        assert body == old.notes[old.note_offsets[row] : old.note_offsets[row + 1]]
        assert (vector.dtype, vector.tobytes()) == (old.vectors.dtype, old.vectors[row].tobytes())
        assert embedding_id == old.embedding_ids[row]
    assert bytes(page.notes[5:]) == b"".join(bodies)
    assert [row.tobytes() for block in page.blocks for row in block] == vectors


def _plain(event: ErasedEvent) -> tuple[int, list[bool] | None]:
    return event.seq, None if event.rows is None else event.rows.tolist()


def _expected(
    before: Before, locs: set[int], seqs: set[int]
) -> list[tuple[int, list[bool] | None]]:
    found: list[tuple[int, list[bool] | None]] = []
    for event, payload in zip(before.envelopes, before.payloads, strict=True):
        if isinstance(payload, Rows):
            rows = [(event.seq << LOC_ROW_BITS) + row in locs for row in range(len(payload))]
            if any(rows):
                found.append((event.seq, rows))
        elif event.seq in seqs:
            found.append((event.seq, None))
    return found
