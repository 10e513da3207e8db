"""A manifest is whole or known not to be, and a store never opens by half of one.

Goal: the pointer to what holds cannot be torn, emptied, doubled or lost as pointer files of other
stores were, without the store opening as it was or refusing by name. Method: every byte, length
and combination of files of a small compacted store. What would have to break: a checksum that does
not cover a byte, a length that is believed, a fallback to files that are not all there.
"""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import Log, LogReason, PosixFileSystem
from fmemory_segments._catalog import list_store
from fmemory_segments._manifest import (
    MANIFEST_HEAD,
    MANIFEST_MAGIC,
    ListedSegment,
    Manifest,
    SegmentName,
    pack_manifest,
    unpack_manifest,
)
from fmemory_segments.errors import LogCorrupt
from tests.segments.compaction_tools import erasure_at, everything, open_log
from tests.segments.log_tools import (
    WatchedFileSystem,
    damage_findings,
    files_of,
    put,
    say,
    segments_of,
)

FS = PosixFileSystem()


def manifest_of(lengths: list[int], obsolete: int = 0, number: int = 3) -> Manifest:
    """A manifest of segments with so many events each."""
    segments, base_seq = [], 1
    for at, length in enumerate(lengths):
        name = str(SegmentName(base_seq, at + 1))
        segments.append(ListedSegment(name, base_seq, base_seq + length - 1, 999, bytes(32)))
        base_seq += length
    return Manifest(
        number=number,
        prev_number=number - 1,
        prev_sha256=bytes(32),
        store_id=bytes(range(16)),
        created_ns=7,
        segments=tuple(segments),
        obsolete=tuple(str(SegmentName(at + 1, 0)) for at in range(obsolete)),
        frozen_seq=1,
    )


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=9), st.integers(0, 9))
def test_a_manifest_comes_back_as_it_was(lengths: list[int], obsolete: int) -> None:
    manifest = manifest_of(lengths, obsolete)
    assert unpack_manifest(pack_manifest(manifest), 3) == manifest


def test_a_manifest_with_any_bit_changed_is_not_whole() -> None:
    whole = pack_manifest(manifest_of([3, 4], 2))
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        assert isinstance(unpack_manifest(bytes(changed), 3), str), at


def test_a_manifest_of_any_other_length_is_not_whole() -> None:
    """A pointer file once held its name twice: what follows a manifest is part of the check."""
    whole = pack_manifest(manifest_of([3, 4], 2))
    for size in range(len(whole)):
        assert isinstance(unpack_manifest(whole[:size], 3), str)
    for behind in (b"\0", b"\n", whole, bytes(4_096)):
        assert isinstance(unpack_manifest(whole + behind, 3), str)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_words_and_never_an_error(data: bytes, has_checksum: bool) -> None:
    if has_checksum:
        data = MANIFEST_HEAD.pack(MANIFEST_MAGIC, len(data), 0) + data
        data += sha256(data).digest()
    assert isinstance(unpack_manifest(data, 1), str)


@pytest.mark.parametrize("claimed", [0, 1, 1 << 31, (1 << 32) - 1])
def test_a_length_that_lies_costs_no_memory(claimed: int) -> None:
    data = MANIFEST_HEAD.pack(MANIFEST_MAGIC, claimed, 0) + bytes(64)
    tracemalloc.start()
    assert isinstance(unpack_manifest(data, 1), str)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


CONTRADICTIONS: list[Callable[[Manifest], Manifest]] = [
    lambda one: msgspec.structs.replace(one, number=4),
    lambda one: msgspec.structs.replace(one, prev_number=3),
    lambda one: msgspec.structs.replace(one, segments=()),
    lambda one: msgspec.structs.replace(one, segments=one.segments[1:]),
    lambda one: msgspec.structs.replace(one, segments=one.segments[::-1]),
    lambda one: msgspec.structs.replace(one, segments=(one.segments[0], one.segments[2])),
    lambda one: msgspec.structs.replace(one, segments=(one.segments[0], *one.segments)),
    lambda one: msgspec.structs.replace(one, obsolete=("../../etc/passwd",)),
    lambda one: msgspec.structs.replace(one, obsolete=("LOCK",)),
    lambda one: msgspec.structs.replace(one, obsolete=(one.segments[0].name,)),
    lambda one: msgspec.structs.replace(
        one, segments=(msgspec.structs.replace(one.segments[0], name="../seg"), *one.segments[1:])
    ),
    lambda one: msgspec.structs.replace(
        one, segments=(msgspec.structs.replace(one.segments[0], last_seq=9), *one.segments[1:])
    ),
]


@pytest.mark.parametrize("change", CONTRADICTIONS)
def test_a_manifest_that_contradicts_itself_is_refused_though_its_checksum_is_right(
    change: Callable[[Manifest], Manifest],
) -> None:
    manifest = manifest_of([3, 4, 5], 0)
    assert isinstance(unpack_manifest(pack_manifest(manifest), 3), Manifest)
    assert isinstance(unpack_manifest(pack_manifest(change(manifest)), 3), str)


# A store and its manifests


class KeepsAll(WatchedFileSystem):
    """Removes no segment: what a compaction replaced stays there."""

    def remove(self, path: Path) -> None:
        if path.suffix == ".log":
            raise PermissionError(1, "Operation not permitted")
        super().remove(path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that was compacted twice; what the second one replaced is still there."""
    path = tmp_path / "store"
    with open_log(path) as log:
        for number in range(12):
            put(log, number, 2)
            say(log, b"word %d" % number)
        log.compact(erasure_at(24))
    with open_log(path, fs=KeepsAll()) as log:
        say(log, b"more")
        done = log.compact(erasure_at(25, seqs=[2]))
        assert len(done.pending) == 2
        say(log, b"last")
    return path


def newest(path: Path) -> Path:
    return sorted(path.glob("manifest-*"))[-1]


def contents_of(path: Path) -> list[object]:
    with open_log(path, read_only=True) as log:
        return everything(log)


def empty(content: bytes) -> bytes:
    del content
    return b""


def zeros(content: bytes) -> bytes:
    return bytes(len(content))


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def doubled(content: bytes) -> bytes:
    return content + content


@pytest.mark.parametrize("change", [empty, zeros, cut, doubled])
def test_a_broken_manifest_falls_back_while_all_files_of_the_one_before_are_there(
    store: Path, change: Callable[[bytes], bytes]
) -> None:
    """Pointer files elsewhere were found empty or full of NULs after power cuts."""
    obsolete = {str(name) for name in list_store(FS, store).obsolete}
    newest(store).write_bytes(change(newest(store).read_bytes()))
    before = files_of(store)
    listing = list_store(FS, store)
    assert listing.manifest is not None
    assert listing.manifest.number == 1
    assert list(listing.broken) == [newest(store).name]
    with open_log(store, read_only=True) as log:
        assert log.refresh() == 26
    with open_log(store) as log:
        assert log.refresh() == 26
        assert any(newest(store).name in notice for notice in log.health().notices)
    # Nothing is removed: a good copy of the manifest may come back.
    assert set(before) <= set(files_of(store))
    assert obsolete <= set(files_of(store))
    with open_log(store) as log:
        say(log, b"goes on")
        expected = everything(log, erasure_at(27, seqs=[2]))
        log.compact(erasure_at(27, seqs=[2]))
        assert everything(log) == expected
        assert log.stats().manifest_no == 3
    assert not damage_findings(store)


@pytest.mark.parametrize("change", [empty, zeros, cut, doubled])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_broken_manifest_is_refused_where_a_file_of_the_one_before_is_gone(
    store: Path, change: Callable[[bytes], bytes], read_only: bool
) -> None:
    with open_log(store) as log:
        assert log.refresh() == 26
    newest(store).write_bytes(change(newest(store).read_bytes()))
    before = files_of(store)
    with pytest.raises(LogCorrupt) as caught:
        open_log(store, read_only=read_only)
    assert caught.value.reason is LogReason.MANIFEST
    assert caught.value.path == newest(store)
    assert files_of(store) == before


def test_a_store_without_its_manifests_never_opens_by_what_is_left(store: Path) -> None:
    with open_log(store):
        pass
    for manifest in store.glob("manifest-*"):
        manifest.unlink()
    before = files_of(store)
    for read_only in (True, False):
        with pytest.raises(LogCorrupt) as caught:
            open_log(store, read_only=read_only)
        assert caught.value.reason is LogReason.MANIFEST
    assert files_of(store) == before


def test_a_manifest_whose_rename_was_lost_leaves_the_generation_before(store: Path) -> None:
    """A store once could not start, as the rename of its pointer had not reached the disk."""
    expected = contents_of(store)
    newest(store).unlink()
    (store / "TIP").unlink()
    found = contents_of(store)
    assert found[1:3] == expected[1:3]
    with open_log(store) as log:
        say(log, b"goes on")
    # The new segments were never listed, so they are what a compaction left behind.
    assert not list_store(FS, store).debris
    assert not damage_findings(store)


def test_a_generation_that_went_back_is_told_and_no_file_removed(store: Path) -> None:
    """All events are there, but what was erased may be, too."""
    newest(store).unlink()
    before = set(files_of(store))
    assert damage_findings(store) == ["manifest"]
    with open_log(store) as log:
        assert log.refresh() == 26
        assert any("manifest 2 is missing" in notice for notice in log.health().notices)
        assert set(files_of(store)) == before
        log.compact(erasure_at(26, seqs=[2]))
        assert newest(store).name == "manifest-000000000003.mf"
    assert not damage_findings(store)


def test_the_manifest_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with open_log(other) as log:
        say(log, b"other", b"words")
        log.compact(erasure_at(2))
    shutil.copy(newest(other), store / "manifest-000000000001.mf")
    newest(store).unlink()
    with pytest.raises(LogCorrupt):
        open_log(store)


@pytest.mark.parametrize("field", ["last_seq", "chain"])
def test_a_segment_that_is_not_the_one_listed_is_refused(store: Path, field: str) -> None:
    manifest = list_store(FS, store).manifest
    assert manifest is not None
    first = manifest.segments[0]
    wrong = {"last_seq": first.last_seq + 1, "chain": bytes(32)}[field]
    listed = msgspec.structs.replace(first, **{field: wrong})
    changed = msgspec.structs.replace(manifest, segments=(listed, *manifest.segments[1:]))
    if len(manifest.segments) > 1 and field == "last_seq":
        changed = msgspec.structs.replace(changed, segments=(listed,))
    newest(store).write_bytes(pack_manifest(changed))
    with pytest.raises(LogCorrupt) as caught:
        open_log(store)
    assert caught.value.reason in (LogReason.MANIFEST, LogReason.MISSING_SEGMENT)
    assert "manifest" in damage_findings(store)


def test_a_listed_segment_that_is_gone_is_named(store: Path) -> None:
    manifest = list_store(FS, store).manifest
    assert manifest is not None
    gone = store / manifest.segments[0].name
    gone.unlink()
    for read_only in (True, False):
        with pytest.raises(LogCorrupt) as caught:
            open_log(store, read_only=read_only)
        assert caught.value.reason is LogReason.MISSING_SEGMENT
        assert caught.value.path == gone
    assert "missing_segment" in damage_findings(store)


# What may be removed


def test_a_writer_that_opens_removes_what_was_replaced_and_nothing_else(store: Path) -> None:
    listing = list_store(FS, store)
    assert listing.obsolete
    (store / "notes.txt").write_text("mine")
    (store / "tmp" / "notes.txt").write_text("mine too")
    (store / "tmp" / "compact-0123456789abcdef").write_bytes(b"half")
    (store / "tmp" / "new-0123456789abcdef").write_bytes(b"half")
    stranger = store / "seg-00000000000000000002-000000.log"
    stranger.write_bytes(segments_of(store)[0].read_bytes())
    expected = contents_of(store)
    before = set(files_of(store))
    with open_log(store, read_only=True):
        assert set(files_of(store)) == before
    with open_log(store) as log:
        assert everything(log) == expected
    removed = before - set(files_of(store))
    assert removed == {
        *map(str, listing.obsolete),
        "tmp/compact-0123456789abcdef",
        "tmp/new-0123456789abcdef",
    }
    assert stranger.exists()


def test_debris_of_a_compaction_is_removed_by_the_next_writer_and_told_by_verify(
    store: Path,
) -> None:
    with open_log(store):
        pass
    name = segments_of(store)[0].name
    debris = store / name.replace("-000002", "-000007")
    content = (store / name).read_bytes()
    from fmemory_segments._header import pack_header, unpack_header

    header = unpack_header(content)
    assert header is not None
    debris.write_bytes(pack_header(header._replace(generation=7)) + content[128:])
    assert damage_findings(store) == []
    with open_log(store, read_only=True) as log:
        assert [finding.file for finding in log.verify()] == [debris.name]
        assert debris.exists()
    with open_log(store):
        assert not debris.exists()


def test_only_the_last_two_manifests_are_kept(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        for number in range(5):
            say(log, b"word %d" % number)
            log.compact(erasure_at(number + 1))
    assert [file.name for file in sorted(tmp_path.glob("manifest-*"))] == [
        "manifest-000000000004.mf",
        "manifest-000000000005.mf",
    ]
    manifest = list_store(FS, tmp_path).manifest
    assert manifest is not None
    before = (tmp_path / "manifest-000000000004.mf").read_bytes()
    assert manifest.prev_sha256 == sha256(before).digest()
