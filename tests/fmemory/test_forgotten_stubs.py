"""Events that are forgotten leave a stub, in memory and in JSON Lines, and the chain goes on.

Goal: of such an event its place in log and stream, its time and its digest are left, in every
handle, and nothing else in any file. Method: random histories of which some events are forgotten,
others lose data, compared with what they held. What would have to break: a stub whose digest is not
that of the event, a line of a put of several that keeps its records, a handle that keeps the old
envelope.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from fmemory.journal import DataErased, Erased, Erasure, Journal, Rows
from fmemory.journals import MemoryJournal
from fmemory.testing._journal_base import blob, commit, put, stored
from fmemory_segments import FORGOTTEN, LOC_ROW_BITS, StoredEvent, event_digest, payload_digest
from tests.fmemory.erasure_tools import Before, Writer, fill, remember
from tests.fmemory.jsonl_tools import files_of, lines_of, open_store, snapshot


def forgetting(before: Before, seqs: list[int]) -> Erasure:
    """An erasure that forgets these events, which event 1,000 is said to have deleted."""
    locs = [one for one in before.locs if one >> LOC_ROW_BITS in seqs]
    return Erasure(
        len(before.envelopes),
        np.array(locs, np.uint64),
        np.array([one for one in seqs if one in before.seqs], np.uint64),
        np.array(seqs, np.uint64),
        np.full(len(seqs), 1_000, np.uint64),
    )


def check_forgotten(journal: Journal, before: Before, seqs: list[int]) -> None:
    """These events are stubs, the others whole, and each chain value is what it was."""
    count = len(before.envelopes)
    assert [journal.head(seq) for seq in range(count + 1)] == before.heads
    assert journal.streams() == before.streams
    envelopes, payloads = list(journal.envelopes(0, count)), journal.payloads(range(1, count + 1))
    for old, payload, stub, left in zip(
        before.envelopes, before.payloads, envelopes, payloads, strict=True
    ):
        if old.seq not in seqs:
            assert stub == old
            assert payload_digest(left) == payload_digest(payload)
            continue
        assert (stub.type, stub.count, stub.keys, stub.actor) == (FORGOTTEN, 1_000, (), None)
        assert (stub.seq, stub.stream, stub.revision, stub.recorded_at_ns) == (
            old.seq,
            old.stream,
            old.revision,
            old.recorded_at_ns,
        )
        assert left == Erased(event_digest(old, payload_digest(payload)))
        if isinstance(payload, Rows):
            with pytest.raises(DataErased):
                journal.row(old.seq << LOC_ROW_BITS)
            with pytest.raises(DataErased):
                journal.rows(np.array([old.seq << LOC_ROW_BITS], np.uint64))
    told = [one.seq for one in journal.erased(0, count) if one.rows is None]
    assert told == seqs
    assert journal.verify(journal.head()) == []


@pytest.mark.parametrize("seed", range(3))
def test_forgotten_events_in_memory_are_stubs(seed: int) -> None:
    journal, choose = MemoryJournal(), random.Random(seed)
    fill(journal, Writer(choose), 15)
    before = remember(journal)
    seqs = sorted(choose.sample(range(1, len(before.envelopes)), 8))
    erasure = forgetting(before, seqs)
    done = journal.compact(erasure)
    assert (done.forgotten_events, done.erased_rows) == (8, len(erasure.locs))
    assert done.erased_events == len(erasure.seqs)
    check_forgotten(journal, before, seqs)
    again = journal.compact(erasure)
    assert (again.forgotten_events, again.erased_rows, again.erased_events) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_forgotten_events_in_json_lines_are_stubs_for_every_handle(
    tmp_path: Path, seed: int
) -> None:
    store, choose = tmp_path / "store", random.Random(seed)
    journal = open_store(store, file_bytes_max=6_000)
    fill(journal, Writer(choose), 20)
    before = remember(journal)
    reader, other = open_store(store, read_only=True), open_store(store)
    seqs = sorted(choose.sample(range(1, len(before.envelopes)), 8))
    erasure = forgetting(before, seqs)
    first = Erasure(erasure.upto, erasure.locs[::2], erasure.seqs[::2])
    journal.compact(first)
    done = other.compact(erasure)
    assert done.forgotten_events == 8
    assert done.erased_rows == len(erasure.locs) - len(first.locs)
    assert done.erased_events == len(erasure.seqs) - len(first.seqs)
    for handle in (journal, reader, other, open_store(store)):
        check_forgotten(handle, before, seqs)
        handle.close()
    everything = b"".join(snapshot(store).values())
    ids = [key for seq in seqs for key in before.envelopes[seq - 1].keys]
    assert [one for one in ids if f'"{one}"'.encode() in everything] == []


def test_put_of_several_lines_is_forgotten_line_by_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal = open_store(store)
    commit(journal, put(*[f"r{number}" for number in range(300)], dim=1_000), blob())
    before = remember(journal)
    count = len(lines_of(store))
    assert journal.compact(forgetting(before, [1])).forgotten_events == 1
    check_forgotten(journal, before, [1])
    assert len(lines_of(store)) == count
    assert files_of(store)[0].stat().st_size < 3_000
    target = open_store(tmp_path / "target")
    target.import_exact([StoredEvent(*(one.envelope, one.payload)) for one in stored(journal)])
    check_forgotten(target, before, [1])
    target.close()
    journal.close()
