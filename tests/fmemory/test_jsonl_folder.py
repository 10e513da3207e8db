"""What may lie at the path of a JSON Lines store, and what several handles see of each other.

Goal: every place is answered by a typed error that says what to do, or by a store that works, and
nothing that is not ours is changed. Method: real folders, real processes and system limits. What
would have to break: an open that repairs, creates or overwrites what it should leave alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fmemory
from fmemory import (
    FilesystemMemoryBackend,
    ForkedStore,
    LogCorrupt,
    NotFound,
    Reason,
    StorageError,
    UnsupportedPlatform,
)
from fmemory.testing._journal_base import blob, commit, put
from fmemory_segments import PosixFileSystem
from tests.fmemory.jsonl_tools import (
    contents,
    damage,
    files_of,
    open_store,
    opened,
    small_store,
    snapshot,
)


def test_store_tells_a_person_what_it_is(tmp_path: Path) -> None:
    journal = open_store(tmp_path / "store")
    text = (tmp_path / "store" / "README.txt").read_text()
    header = json.loads(files_of(tmp_path / "store")[0].read_text())
    assert journal.store_id.hex() in text
    assert (header["format"], header["version"]) == ("fmemory-jsonl", 1)
    assert header["store_id"] == journal.store_id.hex()
    journal.close()


def test_git_is_told_to_leave_locks_out_and_lines_alone(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    assert "events.lock" in (tmp_path / "store" / ".gitignore").read_text().split()
    assert "-text" in (tmp_path / "store" / ".gitattributes").read_text().split()


def test_store_without_the_files_that_git_ignores_is_whole(tmp_path: Path) -> None:
    old = small_store(tmp_path / "store")
    target = tmp_path / "clone"
    shutil.copytree(
        tmp_path / "store",
        target,
        ignore=shutil.ignore_patterns("events.lock", "events.tip", "tmp"),
    )
    assert opened(target, read_only=True) == old
    assert opened(target) == old


@pytest.mark.parametrize("read_only", [False, True])
def test_store_of_segments_is_refused_with_how_to_open_it(tmp_path: Path, read_only: bool) -> None:
    fmemory.open(tmp_path / "store").close()
    before = snapshot(tmp_path / "store")
    with pytest.raises(StorageError) as caught:
        FilesystemMemoryBackend(tmp_path / "store", read_only=read_only)
    assert caught.value.reason is Reason.NOT_A_STORE
    assert f"fmemory.open({str(tmp_path / 'store')!r})" in str(caught.value)
    assert snapshot(tmp_path / "store") == before


def test_segments_refuse_a_store_of_json_lines(tmp_path: Path) -> None:
    small_store(tmp_path / "store")
    before = snapshot(tmp_path / "store")
    with pytest.raises(StorageError) as caught:
        fmemory.SegmentMemoryBackend(tmp_path / "store")
    assert caught.value.reason is Reason.NOT_A_STORE
    assert snapshot(tmp_path / "store") == before


@pytest.mark.parametrize("name", ["notes.txt", "README.txt", "memory.sqlite3", "a.jsonl"])
def test_folder_with_other_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(StorageError) as caught:
        FilesystemMemoryBackend(tmp_path)
    assert (caught.value.reason, snapshot(tmp_path)) == (Reason.NOT_A_STORE, {name: b"mine"})


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(StorageError) as caught:
        FilesystemMemoryBackend(tmp_path / "notes")
    assert caught.value.reason is Reason.NOT_A_STORE


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
@pytest.mark.parametrize("is_there", [False, True])
def test_missing_store_that_may_not_be_created_is_not_found(
    tmp_path: Path, options: dict[str, bool], is_there: bool
) -> None:
    if is_there:
        (tmp_path / "store").mkdir()
    with pytest.raises(NotFound) as caught:
        FilesystemMemoryBackend(tmp_path / "store", **options)  # type: ignore[arg-type]
    assert (caught.value.reason, snapshot(tmp_path)) == (Reason.STORE_NOT_FOUND, {})


def test_network_file_system_is_refused_unless_allowed(tmp_path: Path) -> None:
    class Network(PosixFileSystem):
        def mount_type(self, path: Path) -> str:
            del path
            return "nfs4"

    with pytest.raises(UnsupportedPlatform) as caught:
        FilesystemMemoryBackend(tmp_path / "store", file_system=Network())
    assert caught.value.reason is Reason.NETWORK_FILE_SYSTEM
    FilesystemMemoryBackend(tmp_path / "store", file_system=Network(), allow_network=True).close()


def test_foreign_and_empty_files_are_left_alone_and_told_of(tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = small_store(store)
    foreign = {
        "notes.txt": b"mine",
        "events-00000000000000000001.jsonl.orig": b"{}",
        "events-00000000000000000042.jsonl": b"",
    }
    for name, data in foreign.items():
        (store / name).write_bytes(data)
    journal = open_store(store)
    assert contents(journal) == old
    notices = " ".join(journal.health().notices)
    assert all(name in notices for name in foreign)
    assert {one.file for one in journal.verify() if not one.damage} == set(foreign)
    journal.close()
    assert {name: (store / name).read_bytes() for name in foreign} == foreign


def test_empty_file_with_the_next_name_does_not_hinder_a_new_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    small_store(store)
    (store / "events-00000000000000000009.jsonl").write_bytes(b"")
    journal = open_store(store, file_bytes_max=1_000)
    commit(journal, blob(stream=("after",)))
    found = contents(journal)
    journal.close()
    assert (len(found), len(files_of(store)), opened(store)) == (9, 2, found)


def test_read_only_opening_changes_no_file(tmp_path: Path) -> None:
    old = small_store(tmp_path / "store", file_bytes_max=1_500)
    before = snapshot(tmp_path / "store")
    journal = open_store(tmp_path / "store", read_only=True)
    assert (contents(journal), journal.verify()) == (old, [])
    journal.close()
    assert snapshot(tmp_path / "store") == before


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    small_store(tmp_path / "store")
    modes = {one.stat().st_mode & 0o777 for one in (tmp_path / "store").rglob("*.jsonl")}
    assert modes == {0o600}


def test_files_are_named_by_their_first_seq_and_go_on_from_each_other(tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = small_store(store, file_bytes_max=1_500)
    names = [one.name for one in files_of(store)]
    firsts = [json.loads(one.read_bytes().splitlines()[1])["seq"] for one in files_of(store)]
    assert len(names) > 2
    assert names == [f"events-{first:020}.jsonl" for first in firsts]
    assert opened(store) == old


def test_missing_file_in_the_middle_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    small_store(store, file_bytes_max=1_500)
    files_of(store)[1].unlink()
    assert isinstance(opened(store), LogCorrupt)
    assert "missing_segment" in [one.reason.value for one in damage(store)]


def test_missing_last_file_is_known_to_the_witness(tmp_path: Path) -> None:
    store = tmp_path / "store"
    small_store(store, file_bytes_max=1_500)
    files_of(store)[-1].unlink()
    assert isinstance(opened(store), LogCorrupt)
    assert [one.reason.value for one in damage(store)] == ["acknowledged_loss"]


def test_older_state_opens_once_the_witness_is_removed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = small_store(store, file_bytes_max=1_500)
    removed = files_of(store)[-1]
    first_seq = json.loads(removed.read_bytes().splitlines()[0])["first_seq"]
    removed.unlink()
    (store / "events.tip").unlink()
    assert opened(store) == old[: first_seq - 1]


def test_torn_end_of_a_file_that_has_a_successor_is_damage(tmp_path: Path) -> None:
    store = tmp_path / "store"
    small_store(store, file_bytes_max=1_500)
    first = files_of(store)[0]
    first.write_bytes(first.read_bytes() + b'{"seq":')
    assert isinstance(opened(store), LogCorrupt)


def test_other_handles_see_events_over_new_files(tmp_path: Path) -> None:
    writer = open_store(tmp_path / "store", file_bytes_max=1_500)
    reader = open_store(tmp_path / "store", read_only=True)
    for number in range(12):
        commit(writer, put(f"r{number}", revision=number + 1))
        assert reader.refresh() == number + 1
    assert len(files_of(tmp_path / "store")) > 3
    assert contents(reader) == contents(writer)
    reader.close()
    writer.close()


def test_half_written_batch_of_another_process_is_not_seen(tmp_path: Path) -> None:
    store = tmp_path / "store"
    writer = open_store(store)
    commit(writer, blob())
    reader = open_store(store, read_only=True)
    before = files_of(store)[0].read_bytes()
    commit(writer, blob(revision=2), blob(revision=3), durability="os")
    whole = files_of(store)[0].read_bytes()
    for size in range(len(before), len(whole)):
        files_of(store)[0].write_bytes(whole[:size])
        assert reader.refresh() == 1, size
    files_of(store)[0].write_bytes(whole)
    assert reader.refresh() == 3
    reader.close()
    writer.close()


def test_reader_does_not_report_what_a_writer_may_be_writing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    open_store(store).close()
    reader = open_store(store, read_only=True)
    for number in range(3):
        with files_of(store)[0].open("ab") as file:
            file.write(b"{" if number == 0 else b" ")
        assert reader.refresh() == 0
    assert reader.health().notices == ()
    reader.close()


def test_writer_sets_aside_what_another_process_left_half_written(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal = open_store(store)
    commit(journal, blob())
    with files_of(store)[0].open("ab") as file:
        file.write(b'{"seq":2,"batch":[1,')
    assert commit(journal, blob(revision=2)).last_seq == 2
    assert journal.recovery.torn_bytes == 20
    found = contents(journal)
    journal.close()
    assert opened(store) == found


def test_handle_carried_over_a_fork_refuses_and_the_parent_goes_on(tmp_path: Path) -> None:
    journal = open_store(tmp_path / "store")
    commit(journal, blob())
    child = os.fork()
    if child == 0:
        try:
            commit(journal, blob(revision=2))
        except ForkedStore:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert commit(journal, blob(revision=2)).last_seq == 2
    journal.close()


KILLED = """
import sys
from fmemory import FilesystemMemoryBackend, NewEvent
memory = FilesystemMemoryBackend(sys.argv[1])
number = 0
while True:
    number += 1
    receipt = memory.append(("s",), [NewEvent("a.b", {"n": number}), NewEvent("a.c", "x" * 5000)])
    print(receipt.seq, flush=True)
"""


def test_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    for round_number in range(3):
        arguments = [sys.executable, "-c", KILLED, str(tmp_path / "store")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            seen = [int(process.stdout.readline()) for _ in range(10 + 7 * round_number)]
            process.send_signal(signal.SIGKILL)
            seen += [int(one) for one in process.stdout.read().split(b"\n")[:-1]]
        with FilesystemMemoryBackend(tmp_path / "store") as memory:
            events = list(memory.events())
            assert len(events) >= seen[-1]
            assert len(events) % 2 == 0
            assert memory.verify() == ()
