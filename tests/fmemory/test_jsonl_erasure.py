"""Data taken out of a JSON Lines store are in none of its files, and all else is as it was.

Goal: a compaction takes what it is told from every file of the folder and nothing else, while other
handles and processes go on. Method: random histories and erasures over several files, compared item
by item in the handle that compacts, in handles opened before, and in new ones; the folder's bytes
are searched for words and numbers that only the erased items held. What would have to break: a line
that is rewritten with its neighbour, an offset into the old file, a copy that is left somewhere.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fmemory.errors import LogCorrupt, ReadOnlyStore, StoreBusy, StoreFull
from fmemory.journal import DataErased, Erased, Journal, Rows
from fmemory.journals import JsonlJournal
from fmemory.journals._jsonl.rewrite import read_back
from fmemory.testing._journal_base import blob, commit, counted, put, stored
from fmemory_segments import LOC_ROW_BITS, PosixFileSystem
from tests.fmemory.erasure_tools import (
    Before,
    Writer,
    check_erased,
    choose_some,
    erasure_of,
    fill,
    remember,
    traces_of,
)
from tests.fmemory.jsonl_tools import damage, files_of, forget, lines_of, open_store, snapshot

FILE_BYTES_MAX = 6_000
JOIN_S = 30.0
READ_BACK = "fmemory.journals._jsonl.compact.read_back"


def filled(
    path: Path, seed: int, batches: int = 25
) -> tuple[JsonlJournal, Before, random.Random, Writer]:
    """A store of several files, and what it holds."""
    journal = open_store(path, file_bytes_max=FILE_BYTES_MAX)
    choose = random.Random(seed)
    writer = Writer(choose)
    fill(journal, writer, batches)
    assert len(files_of(path)) > 2
    return journal, remember(journal), choose, writer


def check_bytes(path: Path, before: Before, locs: set[int], seqs: set[int]) -> None:
    """No trace of what was erased is in any file of the folder; all else is there."""
    everything = b"".join(snapshot(path).values())
    gone, kept = traces_of(before, locs, seqs)
    assert [form for forms in gone for form in forms if form in everything] == []
    assert [forms for forms in kept if not any(form in everything for form in forms)] == []


@pytest.mark.parametrize("seed", range(5))
def test_random_erasures_take_what_they_name_from_every_handle_and_file(
    tmp_path: Path, seed: int
) -> None:
    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, seed)
    reader, writer = open_store(store, read_only=True), open_store(store)
    locs: set[int] = set()
    seqs: set[int] = set()
    for compactor in (journal, writer):
        erasure = choose_some(before, choose)
        named_locs, named_seqs = set(erasure.locs.tolist()), set(erasure.seqs.tolist())
        done = compactor.compact(erasure)
        assert done.erased_rows == len(named_locs - locs)
        assert done.erased_events == len(named_seqs - seqs)
        assert (done.upto, done.pending, done.notices) == (erasure.upto, (), ())
        locs |= named_locs
        seqs |= named_seqs
        check_bytes(store, before, locs, seqs)
        for handle in (journal, reader, writer):
            check_erased(handle, before, locs, seqs)
            assert handle.verify(journal.head()) == []
            assert handle.sizes() == journal.sizes()
            assert handle.usage() == journal.usage()
        assert done.bytes_after == journal.sizes().stored_bytes
        assert done.bytes_before is not None
        assert done.bytes_after is not None
        assert done.bytes_after < done.bytes_before
        again = open_store(store)
        check_erased(again, before, locs, seqs)
        again.close()
    for handle in (journal, reader, writer):
        handle.close()


def test_what_is_named_twice_counts_once_and_changes_no_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, 11)
    erasure = choose_some(before, choose)
    assert journal.compact(erasure).erased_rows == len(erasure.locs)
    files = {one.name: (one.read_bytes(), one.stat().st_ino) for one in files_of(store)}
    done = journal.compact(erasure)
    assert (done.erased_rows, done.erased_events) == (0, 0)
    assert done.bytes_before == done.bytes_after
    assert {one.name: (one.read_bytes(), one.stat().st_ino) for one in files_of(store)} == files
    journal.close()


def test_only_the_lines_of_erased_events_differ(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, 12)
    old = {one.name: one.read_bytes().splitlines() for one in files_of(store)}
    erasure = choose_some(before, choose)
    journal.compact(erasure)
    new = {one.name: one.read_bytes().splitlines() for one in files_of(store)}
    seqs = {loc >> LOC_ROW_BITS for loc in erasure.locs.tolist()} | set(erasure.seqs.tolist())
    changed = [
        line for name in old for line, now in zip(old[name], new[name], strict=True) if line != now
    ]
    assert old.keys() == new.keys()
    assert sorted(int(line[7:].partition(b",")[0]) for line in changed) == sorted(seqs)
    journal.close()


def test_events_behind_the_erasure_are_left_alone(tmp_path: Path) -> None:
    journal, before, _, _ = filled(tmp_path / "store", 13)
    upto = len(before.envelopes) // 2
    done = journal.compact(erasure_of(upto, before.locs, before.seqs))
    locs = {one for one in before.locs if one >> LOC_ROW_BITS <= upto}
    seqs = {one for one in before.seqs if one <= upto}
    assert (done.erased_rows, done.erased_events) == (len(locs), len(seqs))
    check_erased(journal, before, locs, seqs)
    journal.close()


def test_erased_events_can_be_imported_by_another_store(tmp_path: Path) -> None:
    journal, before, choose, _ = filled(tmp_path / "store", 14)
    erasure = choose_some(before, choose)
    journal.compact(erasure)
    target = open_store(tmp_path / "target", file_bytes_max=FILE_BYTES_MAX)
    target.import_exact(stored(journal))
    check_erased(target, before, set(erasure.locs.tolist()), set(erasure.seqs.tolist()))
    assert (target.head(), target.verify()) == (journal.head(), [])
    assert target.compact(erasure).erased_rows == 0
    target.close()
    journal.close()


def test_record_of_a_put_that_takes_several_lines_goes_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal = open_store(store)
    ids = [f"r{number}" for number in range(300)]
    commit(journal, put(*ids, dim=1000), blob())
    assert len(lines_of(store)) == 4
    other = open_store(store, read_only=True)
    old = other.row((1 << LOC_ROW_BITS) + 299)
    done = journal.compact(erasure_of(2, [(1 << LOC_ROW_BITS) + one for one in (0, 150)], []))
    assert done.erased_rows == 2
    for handle in (journal, other):
        (payload,) = handle.payloads([1])
        assert isinstance(payload, Rows)
        assert payload.erased is not None
        assert np.flatnonzero(payload.erased).tolist() == [0, 150]
        body, vector, embedding_id = handle.row((1 << LOC_ROW_BITS) + 299)
        assert (body, vector.tolist(), embedding_id) == (old[0], old[1].tolist(), old[2])
        with pytest.raises(DataErased):
            handle.row((1 << LOC_ROW_BITS) + 150)
        assert handle.verify() == []
    assert b"text of r150" not in files_of(store)[0].read_bytes()
    journal.close()
    other.close()


def test_neither_a_file_nor_an_event_is_in_memory_whole(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal = open_store(store)
    commit(journal, put(*[f"r{number}" for number in range(8_000)], dim=250))
    (file,) = files_of(store)
    size = file.stat().st_size
    tracemalloc.start()
    try:
        journal.compact(
            erasure_of(1, [(1 << LOC_ROW_BITS) + one for one in range(0, 8_000, 90)], [])
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < min(12 << 20, size), peak
    journal.close()


def test_store_is_written_and_read_on_after_a_compaction_by_all_handles(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, choose, writer = filled(store, 15)
    other = open_store(store, file_bytes_max=FILE_BYTES_MAX)
    reader = open_store(store, read_only=True)
    erasure = choose_some(before, choose)
    locs, seqs = set(erasure.locs.tolist()), set(erasure.seqs.tolist())
    journal.compact(erasure)
    fill(other, writer, 6)
    fill(journal, writer, 6)
    for handle in (journal, other, reader):
        check_erased(handle, before, locs, seqs)
        assert handle.head() == journal.head()
    journal.compact(erasure_of(journal.refresh(), before.locs, before.seqs))
    fill(other, writer, 3)
    for handle in (reader, other, journal):
        check_erased(handle, before, set(before.locs), set(before.seqs))
        assert handle.head() == journal.head()
        assert handle.verify() == []
        handle.close()


def test_iteration_that_began_before_a_compaction_goes_on(tmp_path: Path) -> None:
    journal, before, choose, _ = filled(tmp_path / "store", 16)
    reader = open_store(tmp_path / "store", read_only=True)
    envelopes, folded = reader.envelopes(0, 1 << 40), reader.fold(0, 1 << 40)
    first = next(envelopes)
    next(folded)
    journal.compact(choose_some(before, choose))
    assert [first, *envelopes] == before.envelopes
    assert 1 + sum(1 for _ in folded) == len(before.folded)
    reader.close()
    journal.close()


def test_what_others_append_while_a_file_is_written_anew_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    journal, other = open_store(store), open_store(store)
    commit(journal, put("a", "b"), blob())
    before = remember(journal)

    def append_first(*arguments: object) -> None:
        commit(other, blob(b"meanwhile", revision=other.refresh()), put("c", revision=2))
        read_back(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(READ_BACK, append_first)
    loc = 1 << LOC_ROW_BITS
    assert journal.compact(erasure_of(2, [loc], [2])).erased_rows == 1
    for handle in (journal, other, open_store(store)):
        check_erased(handle, before, {loc}, {2})
        assert handle.refresh() == 4
        assert handle.row(4 << LOC_ROW_BITS)[0].startswith(b"\xa1c")
        assert handle.verify() == []
    assert journal.health().durable_seq == 4


def test_file_that_was_put_in_the_place_of_another_meanwhile_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    journal, before, _, _ = filled(store, 17)
    file = files_of(store)[0]
    counts = [0]

    def replace_first(*arguments: object) -> None:
        counts[0] += 1
        if counts[0] == 1:
            data = file.read_bytes()
            file.unlink()
            file.write_bytes(data)
        read_back(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(READ_BACK, replace_first)
    loc = before.locs[0]
    assert journal.compact(erasure_of(1 << 20, [loc], [])).erased_rows == 1
    check_erased(journal, before, {loc}, set())
    journal.close()


def test_clone_without_a_witness_is_compacted(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, 18)
    journal.close()
    forget(store)
    journal = open_store(store)
    erasure = choose_some(before, choose)
    journal.compact(erasure)
    journal.close()
    forget(store)
    (store / "events.lock").unlink()
    reader = open_store(store, read_only=True)
    check_erased(reader, before, set(erasure.locs.tolist()), set(erasure.seqs.tolist()))
    reader.close()


def test_quarantine_and_half_made_files_go_with_what_was_erased(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, 19)
    with files_of(store)[-1].open("ab") as file:
        file.write(b'{"seq":99,"batch":[1,2],"secret":"torn word"}')
    fill(journal, Writer(choose, {one.stream: one.revision for one in journal.streams()}, 900), 1)
    (kept,) = (store / "quarantine").iterdir()
    for name in ("new-0123456789abcdef", "rewritten-0123456789abcdef"):
        (store / "tmp").mkdir(exist_ok=True)
        (store / "tmp" / name).write_bytes(b"torn word")
    done = journal.compact(erasure_of(len(before.envelopes), before.locs[:1], []))
    assert [kept.name in one for one in done.notices] == [True]
    assert done.pending == ()
    assert b"torn word" not in b"".join(snapshot(store).values())
    journal.close()


def test_quarantine_stays_where_nothing_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, _, _ = filled(store, 20)
    (store / "quarantine").mkdir()
    kept = store / "quarantine" / f"events-{1:020}-{7:012}-01234567.tail"
    kept.write_bytes(b"torn")
    done = journal.compact(erasure_of(len(before.envelopes), [], []))
    assert (done.erased_rows, done.notices, kept.read_bytes()) == (0, (), b"torn")
    journal.close()


def test_quarantined_file_that_cannot_be_removed_is_pending(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, _, _ = filled(store, 21)
    kept = store / "quarantine" / f"events-{1:020}-{7:012}-01234567.tail"
    kept.mkdir(parents=True)
    done = journal.compact(erasure_of(len(before.envelopes), before.locs[:1], []))
    assert [kept.name in one for one in done.pending] == [True]
    journal.close()


def test_full_disk_is_known_before_anything_is_written(tmp_path: Path) -> None:
    class Full(PosixFileSystem):
        def free_bytes(self, path: Path) -> int:
            del path
            return 1_000

    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, 22)
    erasure = choose_some(before, choose)
    journal.close()
    files = {one: one.read_bytes() for one in files_of(store)}
    journal = open_store(store, fs=Full())
    with pytest.raises(StoreFull):
        journal.compact(erasure)
    assert {one: one.read_bytes() for one in files_of(store)} == files
    assert journal.health().state == "ok"
    check_erased(journal, before, set(), set())
    journal.close()


def test_reader_refuses(tmp_path: Path) -> None:
    journal, before, choose, _ = filled(tmp_path / "store", 23)
    journal.close()
    reader = open_store(tmp_path / "store", read_only=True)
    with pytest.raises(ReadOnlyStore):
        reader.compact(choose_some(before, choose))
    reader.close()


def test_second_compaction_is_busy_and_writers_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    journal, other = open_store(store), open_store(store)
    commit(journal, put("a"), blob())
    refused = []

    def meanwhile(*arguments: object) -> None:
        with pytest.raises(StoreBusy) as caught:
            other.compact(erasure_of(2, [1 << LOC_ROW_BITS], []), timeout_s=0)
        refused.append(caught.value)
        other.commit(counted(), timeout_s=0)
        open_store(store).close()
        read_back(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(READ_BACK, meanwhile)
    assert journal.compact(erasure_of(2, [1 << LOC_ROW_BITS], [])).erased_rows == 1
    assert len(refused) == 1
    assert other.compact(erasure_of(2, [1 << LOC_ROW_BITS], []), timeout_s=0).erased_rows == 0
    assert (journal.refresh(), journal.verify()) == (3, [])


def test_damaged_line_is_not_copied(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal = open_store(store)
    commit(journal, put("a"), blob(b"\xa3cup"), put("b", revision=2))
    (file,) = files_of(store)
    file.write_bytes(file.read_bytes().replace(b"cup", b"cap"))
    edited = file.read_bytes()
    with pytest.raises(LogCorrupt):
        journal.compact(erasure_of(3, [1 << LOC_ROW_BITS], []))
    assert file.read_bytes() == edited
    assert list((store / "tmp").iterdir()) == []


def test_verify_still_finds_an_edit_of_what_was_left(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, 24)
    erasure = choose_some(before, choose)
    journal.compact(erasure)
    journal.close()
    file = files_of(store)[0]
    data = file.read_bytes()
    at = data.index(b'"erased":"') + len(b'"erased":"')
    file.write_bytes(data[:at] + (b"1" if data[at : at + 1] != b"1" else b"2") + data[at + 1 :])
    assert len(damage(store)) >= 1


def test_file_replaced_by_one_with_other_events_is_refused_when_it_is_read(tmp_path: Path) -> None:
    store, twin = tmp_path / "store", tmp_path / "twin"
    journal, before, _, _ = filled(store, 25)
    other = open_store(twin)
    commit(other, put("other"))
    file = files_of(store)[0]
    file.unlink()
    file.write_bytes(files_of(twin)[0].read_bytes())
    with pytest.raises(LogCorrupt):
        journal.row(before.locs[0])
    journal.close()
    other.close()


def in_process(work: Callable[..., None], *arguments: object) -> multiprocessing.Process:
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    return process  # type: ignore[return-value]


def append_many(path: str, count: int, ready: object) -> None:
    journal = open_store(Path(path), file_bytes_max=FILE_BYTES_MAX)
    for number in range(count):
        journal.commit(counted(("many",), b"%d" % number))
        if number == 3:
            ready.set()  # type: ignore[attr-defined]
    journal.close()


def test_other_process_appends_while_files_are_compacted_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    journal, before, choose, _ = filled(store, 26, 40)
    ready = multiprocessing.get_context("spawn").Event()
    process = in_process(append_many, str(store), 150, ready)
    reader = open_store(store, read_only=True)
    assert ready.wait(JOIN_S)
    locs: set[int] = set()
    seqs: set[int] = set()
    while process.is_alive() or not locs:
        erasure = choose_some(before, choose)
        journal.compact(erasure)
        locs |= set(erasure.locs.tolist())
        seqs |= set(erasure.seqs.tolist())
        check_erased(reader, before, locs, seqs)
    process.join(JOIN_S)
    assert process.exitcode == 0
    for handle in (journal, reader):
        check_erased(handle, before, locs, seqs)
        said = [one.seq for one in handle.envelopes(0, handle.refresh(), stream=("many",))]
        assert [
            one.data for one in handle.payloads(said) if not isinstance(one, (Rows, Erased))
        ] == [b"%d" % number for number in range(150)]
        assert handle.verify() == []
        handle.close()


def test_threads_of_the_compacting_handle_read_and_write_on(tmp_path: Path) -> None:
    journal, before, choose, _ = filled(tmp_path / "store", 27)
    living = before.locs[: len(before.locs) // 2]
    dead = [one for one in before.locs if one not in living]
    wanted = [journal.row(loc)[0] for loc in living]
    stop, failures = threading.Event(), []

    def work(use: Callable[[Journal], None]) -> None:
        try:
            while not stop.is_set():
                use(journal)
        except BaseException as error:
            failures.append(error)

    def read(one: Journal) -> None:
        assert [one.row(loc)[0] for loc in living] == wanted
        one.payloads(range(1, 20))

    def write(one: Journal) -> None:
        one.commit(counted(("threads",)), durability="os")

    threads = [threading.Thread(target=work, args=(one,)) for one in (read, read, write)]
    for thread in threads:
        thread.start()
    for loc in dead:
        if choose.random() < 0.5:
            assert journal.compact(erasure_of(1 << 30, [loc], [])).erased_rows == 1
    stop.set()
    for thread in threads:
        thread.join(JOIN_S)
    assert failures == []
    assert journal.verify() == []
    journal.close()
