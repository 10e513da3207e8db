"""Reading: envelopes, payloads, rows, folds, idempotency keys and streams agree."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from fmemory.journal import Blob, Draft, Envelope, Journal, RowRun, Rows, Stream
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._journal_base import (
    NOTES,
    OTHER,
    WORDS,
    Journals,
    JournalSuiteBase,
    blob,
    commit,
    matrix,
    note_fields,
    put,
    refusal,
    row_ids,
    vector_of,
)
from fmemory_segments import payload_digest
from fmemory_segments.event import LOC_ROW_BITS


def fill(journal: Journal) -> None:
    """Nine events in four batches over three streams; seqs 1 to 9."""
    commit(journal, put("a", "b"), blob(b"one"))
    commit(journal, put("c", revision=2), put("x", stream=OTHER), put("d", revision=3))
    commit(journal, blob(b"two", revision=2))
    commit(journal, put("e", "f", revision=4), put("y", stream=OTHER, revision=2), blob(revision=3))


FILLED_SEQS = 9


def seqs(envelopes: Iterable[Envelope]) -> list[int]:
    return [one.seq for one in envelopes]


class EnvelopesPart(JournalSuiteBase):
    """`envelopes`: by seq, with bounds, in both directions."""

    @pytest.mark.parametrize(("after", "upto"), [(0, 9), (3, 9), (0, 4), (3, 5), (5, 5), (9, 9)])
    def test_envelopes_hold_after_exclusive_and_upto_inclusive(
        self, journal: Journal, after: int, upto: int
    ) -> None:
        fill(journal)
        assert seqs(journal.envelopes(after, upto)) == list(range(after + 1, upto + 1))

    def test_backwards_is_the_reverse(self, journal: Journal) -> None:
        fill(journal)
        forwards = seqs(journal.envelopes(2, 8))
        assert seqs(journal.envelopes(2, 8, backwards=True)) == forwards[::-1]

    @pytest.mark.parametrize("backwards", [False, True])
    @pytest.mark.parametrize("limit", [1, 4, 50])
    def test_limit_takes_the_first_of_the_direction(
        self, journal: Journal, limit: int, backwards: bool
    ) -> None:
        fill(journal)
        whole = seqs(journal.envelopes(0, 9, backwards=backwards))
        assert seqs(journal.envelopes(0, 9, backwards=backwards, limit=limit)) == whole[:limit]

    def test_stream_filter_gives_that_stream_only(self, journal: Journal) -> None:
        fill(journal)
        assert seqs(journal.envelopes(0, 9, stream=OTHER)) == [4, 8]

    def test_stream_filter_and_limit_backwards_give_the_newest(self, journal: Journal) -> None:
        fill(journal)
        newest = list(journal.envelopes(0, 9, stream=NOTES, backwards=True, limit=1))
        assert [(one.seq, one.revision) for one in newest] == [(7, 4)]

    def test_stream_filter_compares_label_by_label(self, journal: Journal) -> None:
        commit(journal, *(blob(stream=one) for one in (("a", "b"), ("a.b",), ("a",))))
        assert seqs(journal.envelopes(0, 3, stream=("a",))) == [3]

    def test_envelopes_of_an_unknown_stream_are_none(self, journal: Journal) -> None:
        fill(journal)
        assert seqs(journal.envelopes(0, 9, stream=("nowhere",))) == []

    def test_envelopes_are_pinned_by_upto_while_the_log_grows(self, journal: Journal) -> None:
        fill(journal)
        reading = journal.envelopes(0, 9)
        first = next(reading)
        commit(journal, blob(revision=4))
        assert [first.seq, *seqs(reading)] == list(range(1, 10))

    def test_paused_reading_holds_no_lock(self, journal: Journal) -> None:
        fill(journal)
        reading = journal.envelopes(0, 9)
        next(reading)
        made = journal.commit(lambda _txn: [blob(revision=4)], timeout_s=1.0)
        assert made is not None

    def test_reading_an_empty_journal_gives_nothing(self, journal: Journal) -> None:
        assert seqs(journal.envelopes(0, 0)) == []


class PayloadsPart(JournalSuiteBase):
    """`payloads`: by seq, in the order asked for."""

    def test_payloads_come_in_the_order_asked_for(self, journal: Journal) -> None:
        commit(journal, *(blob(bytes([65 + i]), revision=1 + i) for i in range(4)))
        found = [one.data for one in journal.payloads([3, 1, 4]) if isinstance(one, Blob)]
        assert found == [b"C", b"A", b"D"]

    def test_payload_asked_for_twice_comes_twice(self, journal: Journal) -> None:
        commit(journal, blob(b"A"), blob(b"B", revision=2))
        found = [one.data for one in journal.payloads([2, 1, 2]) if isinstance(one, Blob)]
        assert found == [b"B", b"A", b"B"]

    @pytest.mark.parametrize("size", [1, 5_000, 300_000])
    def test_payloads_read_together_are_those_read_alone(self, journal: Journal, size: int) -> None:
        for number in range(12):
            text = bytes([97 + number]) * (size + number)
            commit(journal, blob(text, revision=number + 1), put(f"r{number}", revision=number + 1))
        alone = {seq: journal.payloads([seq])[0] for seq in range(1, 25)}
        for seqs in ([*range(1, 25)], [*range(1, 25, 2)], [24, 1, 2, 3, 20, 19], [5, 5, 6]):
            for seq, payload in zip(seqs, journal.payloads(seqs), strict=True):
                assert payload_digest(payload) == payload_digest(alone[seq])

    def test_no_seqs_give_no_payloads(self, journal: Journal) -> None:
        fill(journal)
        assert journal.payloads([]) == []

    @pytest.mark.parametrize("seq", [0, 10])
    def test_payload_of_an_event_that_is_not_there_is_refused(
        self, journal: Journal, seq: int
    ) -> None:
        fill(journal)
        refusal(lambda: journal.payloads([1, seq]))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_rows_payload_is_what_was_put(
        self, journal: Journal, dtype: type[np.float32] | type[np.float64]
    ) -> None:
        draft = put("a", "b", timestamps=[2.5, -1.0], dtype=dtype, embedding_ids=["m", None])
        commit(journal, draft)
        kept, given = journal.payloads([1])[0], draft.payload
        assert isinstance(kept, Rows)
        assert isinstance(given, Rows)
        assert kept.vectors.dtype == given.vectors.dtype
        assert np.array_equal(kept.vectors, given.vectors)
        assert (bytes(kept.notes), kept.embedding_ids) == (given.notes, given.embedding_ids)
        assert kept.note_offsets.tolist() == given.note_offsets.tolist()
        assert kept.timestamps.tolist() == [2.5, -1.0]


class RowsPart(JournalSuiteBase):
    """`rows`: by place, in the order asked for, in memory of their own."""

    def test_row_has_its_place_from_seq_and_number(self, journal: Journal) -> None:
        fill(journal)
        assert row_ids(journal, [7 << LOC_ROW_BITS | 1]) == ["f"]

    def test_rows_come_in_the_order_asked_for(self, journal: Journal) -> None:
        fill(journal)
        places = [loc(7, 0), loc(1, 1), loc(4, 0), loc(1, 0)]
        assert row_ids(journal, places) == ["e", "b", "x", "a"]

    def test_row_asked_for_twice_comes_twice(self, journal: Journal) -> None:
        fill(journal)
        assert row_ids(journal, [loc(1, 1), loc(1, 1)]) == ["b", "b"]

    def test_no_places_give_an_empty_page(self, journal: Journal) -> None:
        fill(journal)
        page = journal.rows(np.empty(0, np.uint64))
        assert (len(page.blocks), page.embedding_ids) == (0, [])

    def test_vectors_come_in_the_order_asked_for(self, journal: Journal) -> None:
        fill(journal)
        page = journal.rows(locs(loc(7, 1), loc(1, 0), loc(4, 0)))
        assert matrix(page.blocks) == [vector_of("f"), vector_of("a"), vector_of("x")]

    def test_notes_are_one_array_of_id_text_and_metadata(self, journal: Journal) -> None:
        fill(journal)
        page = journal.rows(locs(loc(1, 0), loc(1, 1)))
        assert msgspec.msgpack.decode(page.notes) == note_fields("a") + note_fields("b")

    def test_notes_not_wanted_are_not_given(self, journal: Journal) -> None:
        fill(journal)
        page = journal.rows(locs(loc(1, 0)), notes=False)
        assert (bytes(page.notes), matrix(page.blocks)) == (b"", [vector_of("a")])

    def test_vectors_not_wanted_are_not_given(self, journal: Journal) -> None:
        fill(journal)
        page = journal.rows(locs(loc(1, 0)), vectors=False)
        assert (msgspec.msgpack.decode(page.notes), page.blocks) == (note_fields("a"), [])

    def test_embedding_ids_follow_their_rows(self, journal: Journal) -> None:
        commit(journal, put("a", "b", "c", embedding_ids=["m", None, "n"]))
        page = journal.rows(locs(loc(1, 2), loc(1, 1), loc(1, 0)))
        assert page.embedding_ids == ["n", None, "m"]

    def test_blocks_keep_type_and_width_of_neighbours(self, journal: Journal) -> None:
        commit(
            journal, put("a", dtype=np.float32), put("b", revision=2), put("c", revision=3, dim=2)
        )
        page = journal.rows(locs(loc(1, 0), loc(2, 0), loc(3, 0)))
        shapes = [(block.dtype.name, block.shape[1]) for block in page.blocks for _row in block]
        assert shapes == [("float32", 3), ("float64", 3), ("float64", 2)]

    def test_rows_without_vector_have_width_zero(self, journal: Journal) -> None:
        commit(journal, put("a", "b", dim=0))
        page = journal.rows(locs(loc(1, 0), loc(1, 1)))
        assert sum(len(block) for block in page.blocks) == 2
        assert {block.shape[1] for block in page.blocks} == {0}

    def test_changing_a_page_changes_nothing_stored(self, journal: Journal) -> None:
        fill(journal)
        place = locs(loc(1, 0), loc(1, 1))
        for block in journal.rows(place).blocks:
            block[:] = 99.0
        assert matrix(journal.rows(place).blocks) == [vector_of("a"), vector_of("b")]

    def test_many_scattered_rows_are_the_right_ones(self, journal: Journal) -> None:
        for batch in range(20):
            commit(journal, put(*(f"{batch}-{i}" for i in range(10)), revision=1 + batch))
        wanted = [(3 * i % 20, 7 * i % 10) for i in range(120)]
        places = [loc(1 + batch, row) for batch, row in wanted]
        assert row_ids(journal, places) == [f"{batch}-{row}" for batch, row in wanted]


class FoldPart(JournalSuiteBase):
    """`fold`: the same events as `envelopes`, puts as columns."""

    def test_puts_come_as_runs_and_all_else_as_envelopes(self, journal: Journal) -> None:
        fill(journal)
        kinds = {item.type for item in journal.fold(0, 9) if isinstance(item, Envelope)}
        assert kinds == {"word.said"}

    @pytest.mark.parametrize(("after", "upto"), [(0, 9), (2, 9), (0, 4), (3, 7), (9, 9)])
    def test_fold_agrees_with_envelopes_in_every_stream(
        self, journal: Journal, after: int, upto: int
    ) -> None:
        fill(journal)
        for stream in (NOTES, OTHER, WORDS):
            items = [one for one in journal.fold(after, upto) if one.stream == stream]
            read = journal.envelopes(after, upto, stream=stream)
            assert last_revision_and_keys(items) == last_revision_and_keys(read)

    @pytest.mark.parametrize("stream", [NOTES, OTHER, WORDS, ("nowhere",)])
    def test_fold_of_one_stream_is_its_part_of_the_whole(
        self, journal: Journal, stream: Stream
    ) -> None:
        fill(journal)
        part = list(journal.fold(1, 8, stream))
        whole = [one for one in journal.fold(1, 8) if one.stream == stream]
        assert {one.stream for one in part} <= {stream}
        assert last_revision_and_keys(part) == last_revision_and_keys(whole)

    def test_runs_hold_ids_and_times_of_the_payloads(self, journal: Journal) -> None:
        fill(journal)
        for run in runs_of(journal):
            for place, record_id, timestamp in zip(
                run.locs.tolist(), run.ids, run.timestamps.tolist(), strict=True
            ):
                payload = journal.payloads([place >> LOC_ROW_BITS])[0]
                assert isinstance(payload, Rows)
                assert payload.timestamps[place & 0xFFFF] == timestamp
                assert row_ids(journal, [place]) == [record_id]

    def test_places_in_a_run_ascend(self, journal: Journal) -> None:
        fill(journal)
        for run in runs_of(journal):
            assert all(a < b for a, b in pairwise(run.locs.tolist()))

    def test_run_counts_its_events_and_names_its_seqs(self, journal: Journal) -> None:
        fill(journal)
        for run in runs_of(journal):
            found = sorted({place >> LOC_ROW_BITS for place in run.locs.tolist()})
            assert (run.first_seq, run.last_seq) == (found[0], found[-1])
            assert run.event_count == len(found)

    def test_run_never_spans_another_event_of_its_stream(self, journal: Journal) -> None:
        deleted = Draft(NOTES, 2, "records_deleted", Blob(b""), keys=("a",), count=1)
        commit(journal, put("a"), deleted, put("a", revision=3))
        shapes = [type(item).__name__ for item in journal.fold(0, 3, NOTES)]
        assert shapes == ["RowRun", "Envelope", "RowRun"]

    def test_fold_in_two_parts_is_the_fold_of_the_whole(self, journal: Journal) -> None:
        fill(journal)
        for middle in range(FILLED_SEQS + 1):
            parts = [*journal.fold(0, middle, NOTES), *journal.fold(middle, 9, NOTES)]
            whole = list(journal.fold(0, 9, NOTES))
            assert last_revision_and_keys(parts) == last_revision_and_keys(whole)

    @needs(Capability.PERSISTENT)
    def test_fold_after_a_reopen_is_the_same(self, journals: Journals) -> None:
        journal = journals.open()
        fill(journal)
        before = [last_revision_and_keys(journal.fold(0, 9, one)) for one in (NOTES, OTHER, WORDS)]
        journal = journals.reopen(journal)
        after = [last_revision_and_keys(journal.fold(0, 9, one)) for one in (NOTES, OTHER, WORDS)]
        assert after == before

    @needs(Capability.SHARED)
    def test_fold_shows_what_another_handle_committed(self, journals: Journals) -> None:
        here, there = journals.open(), journals.open()
        fill(there)
        ids = [one for run in runs_of(here, here.refresh()) for one in run.ids]
        assert sorted(ids) == ["a", "b", "c", "d", "e", "f", "x", "y"]


class FindPart(JournalSuiteBase):
    """`find`: idempotency keys, stream by stream."""

    def test_find_gives_the_seq_of_the_key(self, journal: Journal) -> None:
        commit(journal, blob(), keyed("k", revision=2))
        assert journal.find(WORDS, "k") == 2

    def test_find_gives_none_for_an_unknown_key(self, journal: Journal) -> None:
        commit(journal, keyed("k"))
        assert journal.find(WORDS, "other") is None

    def test_find_looks_into_its_stream_only(self, journal: Journal) -> None:
        commit(journal, keyed("k"))
        assert journal.find(("words", "k"), "k") is None

    def test_same_key_may_stand_in_two_streams(self, journal: Journal) -> None:
        commit(journal, keyed("k"), keyed("k", stream=OTHER))
        assert (journal.find(WORDS, "k"), journal.find(OTHER, "k")) == (1, 2)

    @needs(Capability.PERSISTENT)
    def test_find_knows_keys_after_a_reopen(self, journals: Journals) -> None:
        journal = journals.open()
        commit(journal, keyed("k"))
        assert journals.reopen(journal).find(WORDS, "k") == 1

    @needs(Capability.SHARED)
    def test_find_knows_keys_of_another_handle(self, journals: Journals) -> None:
        here, there = journals.open(), journals.open()
        commit(there, keyed("k"))
        here.refresh()
        assert here.find(WORDS, "k") == 1


class StreamsPart(JournalSuiteBase):
    """`streams`: by recency, in pages, by prefix."""

    def test_most_recently_written_stream_comes_first(self, journal: Journal) -> None:
        fill(journal)
        assert [one.stream for one in journal.streams()] == [WORDS, OTHER, NOTES]

    def test_write_to_an_old_stream_moves_it_first(self, journal: Journal) -> None:
        commit(journal, blob(stream=("a",)), blob(stream=("b",)))
        commit(journal, blob(stream=("a",), revision=2))
        assert [one.stream for one in journal.streams()] == [("a",), ("b",)]

    def test_stream_info_counts_its_events(self, journal: Journal) -> None:
        fill(journal)
        info = {one.stream: one for one in journal.streams()}[NOTES]
        found = (info.revision, info.event_count, info.first_seq, info.last_seq)
        assert found == (4, 4, 1, 7)

    def test_stream_info_has_the_time_of_its_last_event(self, journal: Journal) -> None:
        fill(journal)
        last = {one.seq: one.recorded_at_ns for one in journal.envelopes(0, 9)}
        assert {one.last_recorded_at_ns == last[one.last_seq] for one in journal.streams()} == {
            True
        }

    def test_prefix_compares_label_by_label(self, journal: Journal) -> None:
        names: list[Stream] = [("user1",), ("user1", "a"), ("user10",), ("user1.a",)]
        commit(journal, *(blob(stream=name) for name in names))
        found = [one.stream for one in journal.streams(("user1",))]
        assert found == [("user1", "a"), ("user1",)]

    @pytest.mark.parametrize("label", ["%", "_", "a_b", "a%", "*", "[a]", '"', "\\", ",", "a\x00"])
    def test_prefix_is_no_pattern(self, journal: Journal, label: str) -> None:
        names: list[Stream] = [(label,), (label, "x"), (label, "x", "y"), ("aXb",), ("ab", "x")]
        commit(journal, *(blob(stream=name) for name in names))
        found = [one.stream for one in journal.streams((label,))]
        assert found == [(label, "x", "y"), (label, "x"), (label,)]
        found = [one.stream for one in journal.streams((label, "x"))]
        assert found == [(label, "x", "y"), (label, "x")]

    def test_pages_by_before_are_the_whole_list(self, journal: Journal) -> None:
        commit(journal, *(blob(stream=("s", str(i))) for i in range(10)))
        whole = [one.stream for one in journal.streams(("s",))]
        pages: list[Stream] = []
        before: int | None = None
        while page := journal.streams(("s",), before, 3):
            pages += [one.stream for one in page]
            before = page[-1].last_seq
        assert pages == whole
        assert len(pages) == 10

    def test_limit_bounds_the_list(self, journal: Journal) -> None:
        fill(journal)
        assert [one.stream for one in journal.streams((), None, 2)] == [WORDS, OTHER]

    def test_new_journal_has_no_streams(self, journal: Journal) -> None:
        assert journal.streams() == []

    @needs(Capability.PERSISTENT)
    def test_streams_after_a_reopen_are_the_same(self, journals: Journals) -> None:
        journal = journals.open()
        fill(journal)
        before = journal.streams()
        assert journals.reopen(journal).streams() == before


def loc(seq: int, row: int) -> int:
    return seq << LOC_ROW_BITS | row


def locs(*places: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(places, dtype=np.uint64)


def keyed(event_id: str, *, stream: Stream = WORDS, revision: int = 1) -> Draft:
    return Draft(stream, revision, "word.said", Blob(b"x"), event_id=event_id)


def runs_of(journal: Journal, upto: int = FILLED_SEQS) -> list[RowRun]:
    return [item for item in journal.fold(0, upto) if isinstance(item, RowRun)]


def last_revision_and_keys(
    items: Iterable[Envelope | RowRun],
) -> tuple[int | None, list[str]]:
    """What folding items of one stream amounts to: the last revision and all keys in order."""
    revision: int | None = None
    keys: list[str] = []
    for item in items:
        if isinstance(item, Envelope):
            assert revision is None or item.revision == revision + 1
            revision = item.revision
            keys += item.keys
        else:
            assert revision is None or item.first_revision == revision + 1
            revision = item.first_revision + item.event_count - 1
            keys += item.ids
    return revision, keys
