"""Compaction: what is named is taken out and nothing else, and the chain still proves all of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from fmemory.errors import ReadOnlyStore
from fmemory.journal import (
    Blob,
    DataErased,
    Draft,
    Envelope,
    Erased,
    Erasure,
    Journal,
    Payload,
    RowRun,
    Rows,
    StoredEvent,
    Stream,
)
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._journal_base import (
    NOTES,
    OTHER,
    WORDS,
    Journals,
    JournalSuiteBase,
    blob,
    commit,
    note_body,
    put,
    refusal,
    row_ids,
    stored,
    vector_of,
)
from fmemory_segments import FORGOTTEN, LOC_ROW_BITS, NONCE_BYTES
from fmemory_segments.digest import event_digest, payload_digest, row_digests

ROUNDS = 8


def loc(seq: int, row: int = 0) -> int:
    """The place of a row."""
    return seq << LOC_ROW_BITS | row


def erasure(
    journal: Journal,
    *,
    locs: Sequence[int] = (),
    seqs: Sequence[int] = (),
    forget: dict[int, int] | None = None,
) -> Erasure:
    """What to take out, as of now."""
    ends = sorted((forget or {}).items())
    return Erasure(
        journal.refresh(),
        np.array(sorted(locs), np.uint64),
        np.array(sorted(seqs), np.uint64),
        np.array([seq for seq, _ in ends], np.uint64),
        np.array([end for _, end in ends], np.uint64),
    )


def without(event: StoredEvent, taken: Erasure) -> StoredEvent:
    """An event as it has to be after this erasure: written down here once more, in plain Python."""
    payload, seq = event.payload, event.envelope.seq
    ends = dict(zip(taken.forget.tolist(), taken.ends.tolist(), strict=True))
    if seq in ends and event.envelope.type != FORGOTTEN:
        old = event.envelope
        stub = Envelope(
            seq, old.stream, old.revision, FORGOTTEN, old.recorded_at_ns, count=ends[seq]
        )
        return StoredEvent(stub, Erased(event_digest(old, payload_digest(payload))))
    if not isinstance(payload, Rows):
        erased = seq in taken.seqs.tolist()
        return replace(event, payload=Erased(payload_digest(payload))) if erased else event
    gone = [loc(seq, row) in taken.locs.tolist() for row in range(len(payload))]
    if payload.erased is not None:
        gone = [one or bool(before) for one, before in zip(gone, payload.erased, strict=True)]
    if not any(gone):
        return event
    offsets = payload.note_offsets.tolist()
    notes = [
        b"" if gone[row] else bytes(payload.notes[offsets[row] : offsets[row + 1]])
        for row in range(len(payload))
    ]
    vectors = np.array(payload.vectors)
    vectors[gone] = 0
    nonces = [
        bytes(NONCE_BYTES)
        if gone[row]
        else payload.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)]
        for row in range(len(payload))
    ]
    digests = row_digests(payload).copy()
    digests[[not one for one in gone]] = 0
    rows = Rows(
        timestamps=payload.timestamps,
        notes=b"".join(notes),
        note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
        vectors=vectors,
        embedding_ids=tuple(
            None if gone[row] else one for row, one in enumerate(payload.embedding_ids)
        ),
        nonces=b"".join(nonces),
        erased=np.array(gone),
        digests=digests,
    )
    return replace(event, payload=rows)


def plain(payload: Payload) -> object:
    """A payload as values that compare."""
    if not isinstance(payload, Rows):
        return payload
    erased = [False] * len(payload) if payload.erased is None else payload.erased.tolist()
    digests = [
        payload.digests[row].tobytes() if gone and payload.digests is not None else b""
        for row, gone in enumerate(erased)
    ]
    return (
        payload.timestamps.tolist(),
        bytes(payload.notes),
        payload.note_offsets.tolist(),
        (payload.vectors.dtype.str, payload.vectors.shape, payload.vectors.tobytes()),
        payload.embedding_ids,
        bytes(payload.nonces),
        erased,
        digests,
    )


def whole(events: Sequence[StoredEvent]) -> list[tuple[Envelope, object]]:
    """Everything of events, as values that compare."""
    return [(one.envelope, plain(one.payload)) for one in events]


def folded(journal: Journal) -> dict[Stream, list[object]]:
    """What an index is built from, by stream."""
    found: dict[Stream, list[object]] = {}
    for item in journal.fold(0, journal.refresh()):
        seen = found.setdefault(item.stream, [])
        if isinstance(item, RowRun):
            seen += zip(item.ids, item.timestamps.tolist(), item.locs.tolist(), strict=True)
        else:
            seen.append(item)
    return found


def fill(journal: Journal) -> None:
    """Seven events: three puts of three shapes, and words between them."""
    commit(journal, put("a", "b", "c"), blob(b"one"))
    commit(journal, put("d", revision=2, dtype=np.float32, embedding_ids=["model"]))
    commit(journal, blob(b"two", revision=2), put("x", "y", stream=OTHER, dim=0))
    commit(journal, blob(b"three", revision=3), put("e", revision=3))


class CompactPart(JournalSuiteBase):
    """What `compact` takes out, and what it leaves."""

    def test_compaction_of_nothing_changes_nothing(self, journal: Journal) -> None:
        fill(journal)
        before = whole(stored(journal)), folded(journal), journal.head()
        done = journal.compact(erasure(journal))
        assert (done.erased_rows, done.erased_events, done.pending) == (0, 0, ())
        assert (whole(stored(journal)), folded(journal), journal.head()) == before

    def test_compaction_of_an_empty_journal_is_fine(self, journal: Journal) -> None:
        assert journal.compact(erasure(journal)).erased_rows == 0
        assert journal.refresh() == 0

    def test_erased_row_leaves_its_digest_and_nothing_else(self, journal: Journal) -> None:
        fill(journal)
        (before,) = journal.payloads([1])
        assert isinstance(before, Rows)
        journal.compact(erasure(journal, locs=[loc(1, 1)]))
        (after,) = journal.payloads([1])
        assert isinstance(after, Rows)
        assert after.erased is not None
        assert after.digests is not None
        assert after.erased.tolist() == [False, True, False]
        assert after.digests[1].tobytes() == row_digests(before)[1].tobytes()
        assert after.notes == note_body("a") + note_body("c")
        assert after.vectors.tolist() == [vector_of("a"), [0.0] * 3, vector_of("c")]
        assert after.nonces[NONCE_BYTES : 2 * NONCE_BYTES] == bytes(NONCE_BYTES)

    def test_erased_payload_leaves_its_digest(self, journal: Journal) -> None:
        fill(journal)
        (before,) = journal.payloads([2])
        journal.compact(erasure(journal, seqs=[2]))
        assert journal.payloads([2]) == [Erased(payload_digest(before))]

    def test_compaction_keeps_envelopes_and_the_fold(self, journal: Journal) -> None:
        fill(journal)
        before = list(journal.envelopes(0, 7)), folded(journal)
        journal.compact(erasure(journal, locs=[loc(1), loc(1, 1), loc(1, 2), loc(5)], seqs=[2, 4]))
        assert (list(journal.envelopes(0, 7)), folded(journal)) == before

    def test_compaction_keeps_the_chain_at_every_seq(self, journal: Journal) -> None:
        fill(journal)
        before = [journal.head(upto) for upto in range(8)]
        journal.compact(erasure(journal, locs=[loc(1, 2), loc(3), loc(5, 1)], seqs=[4]))
        assert [journal.head(upto) for upto in range(8)] == before

    def test_living_rows_read_as_before(self, journal: Journal) -> None:
        fill(journal)
        journal.compact(erasure(journal, locs=[loc(1, 1), loc(5)]))
        assert row_ids(journal, [loc(1, 2), loc(7), loc(1), loc(5, 1)]) == ["c", "e", "a", "y"]
        body, vector, embedding_id = journal.row(loc(3))
        assert (body, vector.tolist(), embedding_id) == (note_body("d"), vector_of("d"), "model")
        assert vector.dtype == np.float32

    @pytest.mark.parametrize("chosen_rows", [[20], range(40), range(47, -1, -3)])
    def test_erased_row_is_refused_by_a_page(
        self, journal: Journal, chosen_rows: Sequence[int]
    ) -> None:
        commit(journal, put(*[f"r{number}" for number in range(50)]))
        journal.compact(erasure(journal, locs=[loc(1, 20)]))
        wanted = np.array([loc(1, row) for row in chosen_rows], np.uint64)
        with pytest.raises(DataErased) as caught:
            journal.rows(wanted)
        assert caught.value.seq == 1

    def test_erased_row_is_refused_alone(self, journal: Journal) -> None:
        fill(journal)
        journal.compact(erasure(journal, locs=[loc(1, 1)]))
        with pytest.raises(DataErased) as caught:
            journal.row(loc(1, 1))
        assert caught.value.seq == 1

    def test_erased_events_are_listed_with_their_rows(self, journal: Journal) -> None:
        fill(journal)
        assert list(journal.erased(0, 7)) == []
        journal.compact(erasure(journal, locs=[loc(1, 1), loc(5), loc(5, 1)], seqs=[4, 6]))

        def listed(after: int, upto: int, stream: Stream | None = None) -> list[object]:
            return [
                (one.seq, None if one.rows is None else one.rows.tolist())
                for one in journal.erased(after, upto, stream)
            ]

        expected = [(1, [False, True, False]), (4, None), (5, [True, True]), (6, None)]
        assert listed(0, 7) == expected
        assert listed(1, 5) == expected[1:3]
        assert listed(0, 7, WORDS) == [expected[1], expected[3]]
        assert listed(0, 7, NOTES) == expected[:1]

    def test_what_is_erased_is_counted_once(self, journal: Journal) -> None:
        fill(journal)
        first = journal.compact(erasure(journal, locs=[loc(1), loc(1, 1)], seqs=[2]))
        again = journal.compact(erasure(journal, locs=[loc(1), loc(1, 1), loc(7)], seqs=[2, 4]))
        assert (first.erased_rows, first.erased_events) == (2, 1)
        assert (again.erased_rows, again.erased_events) == (1, 1)

    def test_compacted_journal_goes_on(self, journal: Journal) -> None:
        fill(journal)
        journal.compact(erasure(journal, locs=[loc(7)], seqs=[6]))
        made = commit(journal, put("f", revision=4), blob(b"four", revision=4))
        assert (made.first_seq, made.last_seq) == (8, 9)
        assert row_ids(journal, [loc(8), loc(1)]) == ["f", "a"]
        journal.compact(erasure(journal, locs=[loc(8)]))
        assert journal.payloads([9]) == [Blob(b"four", journal.payloads([9])[0].nonce)]  # type: ignore[union-attr]
        assert [one.revision for one in journal.streams()] == [4, 4, 1]

    def test_event_ids_stay_known(self, journal: Journal) -> None:
        commit(journal, replace(blob(), event_id="e1"), replace(put("a"), event_id="e2"))
        journal.compact(erasure(journal, locs=[loc(2)], seqs=[1]))
        assert (journal.find(WORDS, "e1"), journal.find(NOTES, "e2")) == (1, 2)

    def test_verify_finds_nothing_after_a_compaction(self, journal: Journal) -> None:
        fill(journal)
        pinned = journal.head(), journal.head(3)
        journal.compact(erasure(journal, locs=[loc(1, 1), loc(3)], seqs=[2]))
        assert [journal.verify(one) for one in (None, *pinned)] == [[], [], []]

    def test_exclusive_compaction_takes_out_the_same(self, journal: Journal) -> None:
        fill(journal)
        before = stored(journal)
        taken = erasure(journal, locs=[loc(1, 1)], seqs=[2])
        done = journal.compact(taken, exclusive=True)
        assert (done.erased_rows, done.erased_events, done.pending) == (1, 1, ())
        assert whole(stored(journal)) == whole([without(one, taken) for one in before])

    def test_compacted_log_can_be_imported_elsewhere(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        source.compact(erasure(source, locs=[loc(1, 1), loc(3)], seqs=[2]))
        target.import_exact(stored(source))
        assert target.head() == source.head()
        assert whole(stored(target)) == whole(stored(source))
        assert target.compact(erasure(target, locs=[loc(1), loc(1, 1)])).erased_rows == 1

    @pytest.mark.parametrize("seed", range(ROUNDS))
    def test_random_erasures_leave_what_is_written_down_here(
        self, journals: Journals, seed: int
    ) -> None:
        journal = journals.open()
        chance = random.Random(seed)
        for _ in range(3):
            grow(journal, chance)
            expected = stored(journal)
            locs, seqs = chosen(expected, chance)
            last = journal.refresh()
            forget = {seq: last for seq in range(1, last) if chance.random() < 0.2}
            taken = erasure(journal, locs=locs, seqs=seqs, forget=forget)
            journal.compact(taken)
            expected = [without(one, taken) for one in expected]
            assert whole(stored(journal)) == whole(expected), f"seed {seed}"
            assert journal.verify(journal.head()) == []
        if self.PERSISTENT:
            journal = journals.reopen(journal)
            assert whole(stored(journal)) == whole(expected), f"seed {seed}"

    @needs(Capability.PERSISTENT)
    def test_erasure_outlives_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        fill(journal)
        journal.compact(erasure(journal, locs=[loc(1, 1)], seqs=[2]))
        before = whole(stored(journal)), folded(journal), journal.head()
        again = journals.reopen(journal)
        assert (whole(stored(again)), folded(again), again.head()) == before
        assert commit(again, blob(revision=4)).first_seq == 8

    @needs(Capability.SHARED)
    def test_handle_opened_before_sees_the_same_log_after(self, journals: Journals) -> None:
        here, there = journals.open(), journals.open()
        fill(here)
        there.refresh()
        before = folded(there), there.head(), row_ids(there, [loc(1), loc(1, 1), loc(7)])
        here.compact(erasure(here, locs=[loc(1, 1)], seqs=[2]))
        commit(here, blob(b"more", revision=4))
        assert there.refresh() == 8
        assert (row_ids(there, [loc(1), loc(7)]), before[2]) == (["a", "e"], ["a", "b", "e"])
        assert (folded(there)[NOTES], there.head(7)) == (before[0][NOTES], before[1])
        assert whole(stored(there)) == whole(stored(here))
        assert commit(there, put("f", revision=4)).first_seq == 9

    @needs(Capability.SHARED)
    def test_reading_that_began_before_goes_on_over_a_compaction(self, journals: Journals) -> None:
        here, there = journals.open(), journals.open()
        for number in range(1, 60):
            commit(here, blob(b"%d" % number, revision=number))
        there.refresh()
        reading = there.envelopes(0, 59)
        begun = [next(reading).seq for _ in range(5)]
        here.compact(erasure(here, seqs=range(1, 59)))
        assert begun + [one.seq for one in reading] == list(range(1, 60))

    @needs(Capability.READ_ONLY)
    def test_read_only_handle_refuses_to_compact(self, journals: Journals) -> None:
        fill(journals.open())
        reader = journals.open_read_only()
        refusal(lambda: reader.compact(erasure(reader)), ReadOnlyStore)


class ForgetPart(JournalSuiteBase):
    """What `compact` leaves of events that are to be forgotten."""

    def test_forgotten_events_leave_a_stub_each(self, journal: Journal) -> None:
        fill(journal)
        before = stored(journal)
        taken = erasure(journal, forget={1: 7, 2: 6, 5: 7})
        done = journal.compact(taken)
        assert (done.erased_rows, done.erased_events, done.forgotten_events) == (5, 1, 3)
        assert whole(stored(journal)) == whole([without(one, taken) for one in before])

    def test_stub_says_place_and_time_and_what_ended_it(self, journal: Journal) -> None:
        fill(journal)
        (before,) = journal.envelopes(4, 5)
        journal.compact(erasure(journal, forget={5: 7}))
        (after,) = journal.envelopes(4, 5)
        assert after == Envelope(5, OTHER, 1, FORGOTTEN, before.recorded_at_ns, count=7)

    def test_chain_goes_on_over_stubs(self, journal: Journal) -> None:
        fill(journal)
        before = [journal.head(upto) for upto in range(8)]
        journal.compact(erasure(journal, locs=[loc(3)], seqs=[2], forget={1: 7, 2: 7, 5: 7}))
        assert [journal.head(upto) for upto in range(8)] == before
        assert journal.verify([before[7], before[3]]) == []

    def test_forgotten_put_is_no_longer_folded(self, journal: Journal) -> None:
        fill(journal)
        journal.compact(erasure(journal, forget={1: 7}))
        found = folded(journal)[NOTES]
        assert [one for one in found if isinstance(one, Envelope)] == list(
            journal.envelopes(0, 1, stream=NOTES)
        )
        assert [one[0] for one in found if isinstance(one, tuple)] == ["d", "e"]

    @pytest.mark.parametrize("rows", [1, 2])
    def test_row_of_a_forgotten_event_is_refused_as_erased(
        self, journal: Journal, rows: int
    ) -> None:
        fill(journal)
        journal.compact(erasure(journal, forget={1: 7}))
        wanted = np.array([loc(1, row) for row in range(rows)], np.uint64)
        for read in (lambda: journal.rows(wanted), lambda: journal.row(loc(1, rows - 1))):
            with pytest.raises(DataErased) as caught:
                read()
            assert caught.value.seq == 1

    def test_forgotten_events_are_listed_as_erased_whole(self, journal: Journal) -> None:
        fill(journal)
        journal.compact(erasure(journal, locs=[loc(1)], forget={1: 7, 6: 7}))
        assert [(one.seq, one.rows) for one in journal.erased(0, 7)] == [(1, None), (6, None)]

    def test_streams_keep_their_numbers_over_stubs(self, journal: Journal) -> None:
        fill(journal)
        before = journal.streams()
        journal.compact(erasure(journal, forget={1: 7, 2: 7, 3: 7, 4: 7, 5: 7, 6: 7}))
        assert journal.streams() == before
        commit(journal, put("f", revision=4))
        assert [one.revision for one in journal.envelopes(0, 8, stream=NOTES)] == [1, 2, 3, 4]

    def test_what_is_forgotten_is_counted_once(self, journal: Journal) -> None:
        fill(journal)
        journal.compact(erasure(journal, seqs=[2], forget={1: 7}))
        again = journal.compact(erasure(journal, locs=[loc(1)], forget={1: 7, 2: 7}))
        assert (again.erased_rows, again.erased_events, again.forgotten_events) == (0, 0, 1)

    @needs(Capability.PERSISTENT)
    def test_event_id_of_a_forgotten_event_is_free_after_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        commit(journal, replace(blob(), event_id="e1"), blob(revision=2))
        journal.compact(erasure(journal, forget={1: 2}))
        again = journals.reopen(journal)
        assert again.find(WORDS, "e1") is None
        commit(again, replace(blob(revision=3), event_id="e1"))
        assert again.find(WORDS, "e1") == 3

    def test_log_with_stubs_can_be_imported_elsewhere(self, journals: Journals) -> None:
        source, target = journals.open("source"), journals.open("target")
        fill(source)
        source.compact(erasure(source, locs=[loc(3)], forget={1: 7, 2: 7}))
        target.import_exact(stored(source))
        assert target.head() == source.head()
        assert whole(stored(target)) == whole(stored(source))


def grow(journal: Journal, chance: random.Random) -> None:
    """Some batches more, of rows of several shapes and of words."""
    revisions = {one.stream: one.revision for one in journal.streams()}
    for _ in range(chance.randint(1, 4)):
        drafts: list[Draft] = []
        for _ in range(chance.randint(1, 3)):
            stream = chance.choice([NOTES, OTHER, WORDS])
            revision = revisions[stream] = revisions.get(stream, 0) + 1
            if stream == WORDS:
                data = bytes(chance.randrange(256) for _ in range(chance.choice([0, 3, 200])))
                drafts.append(blob(data, revision=revision))
                continue
            count = chance.choice([1, 1, 2, 5])
            drafts.append(
                put(
                    *[f"{stream[1]}-{revision}-{row}" for row in range(count)],
                    stream=stream,
                    revision=revision,
                    timestamps=[float(chance.randint(0, 9)) for _ in range(count)],
                    dim=chance.choice([0, 2]),
                    dtype=np.float32 if chance.random() < 0.5 else np.float64,
                    embedding_ids=[chance.choice([None, "m1", "m2"]) for _ in range(count)],
                )
            )
        commit(journal, *drafts)


def chosen(events: Sequence[StoredEvent], chance: random.Random) -> tuple[list[int], list[int]]:
    """Random rows and events to take out; some were taken out before."""
    share = chance.choice([0.2, 0.9])
    locs: list[int] = []
    seqs: list[int] = []
    for one in events:
        if isinstance(one.payload, Rows):
            rows = range(len(one.payload))
            locs += [loc(one.envelope.seq, row) for row in rows if chance.random() < share]
        elif chance.random() < share:
            seqs.append(one.envelope.seq)
    return locs, seqs
