"""Damage of every kind gives exactly the old events, or a named error, or a finding.

Goal: no byte of a store can change and have a reader get other data, or fewer events in silence.
Method: a small store of two segments; every single bit flipped, every truncation length, every run
of 64 bytes zeroed; then it is read in every way there is. What would have to break: a byte that no
checksum covers, a checksum that is not looked at, a tail that is cut although it was acknowledged.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fmemory_segments import Log, LogError, LogReason, PosixFileSystem, verify_store
from fmemory_segments._tip import SLOT_BYTES
from fmemory_segments.errors import LogCorrupt
from tests.crash.settings import ROUNDS
from tests.segments.log_tools import (
    contents,
    damage_findings,
    events_only,
    files_of,
    opens,
    put,
    say,
    segments_of,
    small_store,
)

SEGMENT_BYTES_MAX = 900
# 9 comes past every byte with another bit each time; FMEMORY_CRASH_ROUNDS=2 leaves none out.
BIT_STEP = 1 if ROUNDS > 1 else 9
STEP = 1 if ROUNDS > 1 else 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "store"
    small_store(path, events=4, segment_bytes_max=SEGMENT_BYTES_MAX)
    active = segments_of(path)[-1]
    # Sweeps over 256 KiB of zeros would say the same a hundred thousand times.
    active.write_bytes(active.read_bytes().rstrip(b"\0") + bytes(72))
    return path


@pytest.fixture(scope="module")
def old(store: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    copy = tmp_path_factory.mktemp("old") / "store"
    shutil.copytree(store, copy)
    found = opens(copy, read_only=True)
    assert isinstance(found, list)
    return found


def names() -> list[str]:
    return ["first segment", "last segment", "TIP"]


def target_of(path: Path, name: str) -> Path:
    segments = segments_of(path)
    return {"first segment": segments[0], "last segment": segments[-1], "TIP": path / "TIP"}[name]


def judge(path: Path, old: list[object], what: str) -> None:
    """Old events, or a typed error, or a finding; nothing else."""
    found = opens(path, read_only=True)
    if isinstance(found, LogError):
        return
    if found == old:
        return
    head = found[1]
    assert isinstance(head, int)
    assert events_only(found, head) == events_only(old, head), f"{what}: other data"
    assert damage_findings(path), f"{what}: events up to {head} only, and nothing said so"


@pytest.mark.parametrize("name", names())
def test_every_flipped_bit_is_harmless_or_named(
    store: Path, old: list[object], tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    target = target_of(copy, name)
    content = target.read_bytes()
    for bit in range(0, 8 * len(content), BIT_STEP):
        if name == "TIP" and bit // 8 % 512 >= SLOT_BYTES:
            continue  # Between the slots there is nothing.
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        target.write_bytes(damaged)
        judge(copy, old, f"{name}, bit {bit}")


@pytest.mark.parametrize("name", names())
def test_every_truncation_is_harmless_or_named(
    store: Path, old: list[object], tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    target = target_of(copy, name)
    content = target.read_bytes()
    for size in range(0, len(content), STEP):
        target.write_bytes(content[:size])
        judge(copy, old, f"{name} of {size} bytes")


@pytest.mark.parametrize("name", names())
def test_every_zeroed_run_is_harmless_or_named(
    store: Path, old: list[object], tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    target = target_of(copy, name)
    content = target.read_bytes()
    for start in range(0, len(content), STEP):
        target.write_bytes(content[:start] + bytes(64) + content[start + 64 :])
        judge(copy, old, f"{name}, bytes {start} to {start + 63} zeroed")


@pytest.mark.parametrize("name", ["first segment", "last segment"])
def test_writer_changes_no_file_where_acknowledged_events_are_damaged(
    store: Path, old: list[object], tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    target = target_of(copy, name)
    content = target.read_bytes()
    for byte in range(0, len(content.rstrip(b"\0")), 4 * STEP):
        damaged = bytearray(content)
        damaged[byte] ^= 1 << byte % 8
        target.write_bytes(damaged)
        files = files_of(copy)
        found = opens(copy)
        if isinstance(found, LogError):
            assert files_of(copy) == files, f"{name}, byte {byte}"
        else:
            assert found == old, f"{name}, byte {byte}"
            shutil.rmtree(copy)
            shutil.copytree(store, copy)


def test_flipped_bits_never_hide_from_verify(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    for target in segments_of(copy):
        content = target.read_bytes()
        used = len(content.rstrip(b"\0"))
        for byte in range(0, used, STEP):
            damaged = bytearray(content)
            damaged[byte] ^= 0x10
            target.write_bytes(damaged)
            assert damage_findings(copy), f"{target.name}, byte {byte}"
        target.write_bytes(content)
    assert not damage_findings(copy)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_last_batch_cut_at_every_byte(tmp_path: Path, acknowledged: bool) -> None:
    """TIP as before the batch: the rest is set aside; TIP as after it: nothing is touched."""
    path = tmp_path / "store"
    small_store(path, events=4)
    before = opens(path, read_only=True)
    assert isinstance(before, list)
    tip = (path / "TIP").read_bytes()
    start = len(segments_of(path)[-1].read_bytes().rstrip(b"\0"))
    with Log.open(path) as log:
        start = log._core.active.end
        say(log, b"the last", b"batch")
        end = log._core.active.end
    if not acknowledged:
        (path / "TIP").write_bytes(tip)
    segment = segments_of(path)[-1]
    content = segment.read_bytes()
    for size in range(start + 1, end, STEP):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        (copy / segment.name).write_bytes(content[:size])
        files = files_of(copy)
        if acknowledged:
            with pytest.raises(LogCorrupt) as caught:
                Log.open(copy)
            assert caught.value.first_seq == before[1] + 1  # type: ignore[operator]
            assert files_of(copy) == files
        else:
            with Log.open(copy) as log:
                assert contents(log) == before
                report = log.recovery
                assert (report.offset, report.applied) == (start, True)
                assert report.torn_bytes == len(content[start:size].rstrip(b"\0"))
                assert report.quarantine is not None
                kept = (copy / "quarantine" / report.quarantine).read_bytes()
            assert kept == content[start : start + report.torn_bytes]
        shutil.rmtree(copy)


def test_later_frames_bear_witness_where_tip_is_gone(tmp_path: Path) -> None:
    """Without TIP a damaged frame is no torn tail if one behind it says that it was on disk."""
    small_store(tmp_path, events=6)
    (tmp_path / "TIP").unlink()
    with Log.open(tmp_path, read_only=True) as log:
        offset = log._core.active.index.frame_offset(2)
    segment = segments_of(tmp_path)[0]
    content = bytearray(segment.read_bytes())
    content[offset + 70] ^= 1
    segment.write_bytes(content)
    files = files_of(tmp_path)
    for read_only in (True, False):
        with pytest.raises(LogCorrupt) as caught:
            Log.open(tmp_path, read_only=read_only)
        assert (caught.value.reason, caught.value.offset) == (LogReason.META_CHECKSUM, offset)
    assert files_of(tmp_path).items() >= files.items()
    assert damage_findings(tmp_path) == ["meta_checksum"]


def test_segment_header_damage_changes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    small_store(path)
    segment = segments_of(path)[0]
    content = bytearray(segment.read_bytes())
    content[20] ^= 1
    segment.write_bytes(content)
    files = files_of(path)
    with pytest.raises(LogCorrupt) as caught:
        Log.open(path)
    assert caught.value.reason is LogReason.SEGMENT_HEADER
    assert files_of(path) == files


def test_segment_of_another_store_is_named(tmp_path: Path) -> None:
    small_store(tmp_path / "one", segment_bytes_max=SEGMENT_BYTES_MAX)
    small_store(tmp_path / "other", segment_bytes_max=SEGMENT_BYTES_MAX)
    ours, others = segments_of(tmp_path / "one"), segments_of(tmp_path / "other")
    ours[1].write_bytes(others[1].read_bytes())
    with pytest.raises(LogCorrupt) as caught:
        Log.open(tmp_path / "one")
    assert caught.value.reason is LogReason.FOREIGN_SEGMENT


@pytest.mark.parametrize("number", [0, 1, 2])
def test_removed_segment_is_named(tmp_path: Path, number: int) -> None:
    path = tmp_path / "store"
    with Log.open(path, segment_bytes_max=SEGMENT_BYTES_MAX) as log:
        for event in range(12):
            put(log, event, 2)
    segments = segments_of(path)
    assert len(segments) >= 3
    segments[number if number < 2 else -1].unlink()
    with pytest.raises(LogCorrupt) as caught:
        Log.open(path)
    assert caught.value.reason in (LogReason.MISSING_SEGMENT, LogReason.ACKNOWLEDGED_LOSS)
    reasons = {finding.reason for finding in verify_store(PosixFileSystem(), path)}
    assert reasons & {LogReason.MISSING_SEGMENT, LogReason.ACKNOWLEDGED_LOSS}
