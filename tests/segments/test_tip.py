"""TIP says only what was true when it was written, and only moves forward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import PosixFileSystem
from fmemory_segments._tip import (
    SLOT_BYTES,
    SLOT_OFFSETS,
    TIP_BYTES,
    Tip,
    TipFile,
    damaged_slots,
    pack_slot,
    parse_tip,
    unpack_slot,
)

u64 = st.integers(0, (1 << 64) - 1)
tips = st.builds(Tip, st.integers(1, (1 << 64) - 1), u64, u64, u64, u64, u64)


@pytest.fixture
def tip(tmp_path: Path) -> Iterator[TipFile]:
    fs = PosixFileSystem()
    path = tmp_path / "TIP"
    opened = TipFile(fs, fs.open_file(path, write=True, create=True), path, write=True)
    yield opened
    opened.close()


@given(tips)
def test_slot_is_given_back(value: Tip) -> None:
    assert unpack_slot(pack_slot(value)) == value


@given(tips, st.integers(0, 8 * SLOT_BYTES - 1))
def test_slot_with_a_flipped_bit_says_nothing(value: Tip, bit: int) -> None:
    data = bytearray(pack_slot(value))
    data[bit // 8] ^= 1 << bit % 8
    assert unpack_slot(bytes(data)) is None


@given(tips, tips)
def test_slot_with_the_higher_counter_holds(one: Tip, other: Tip) -> None:
    data = bytearray(TIP_BYTES)
    for offset, value in zip(SLOT_OFFSETS, (one, other), strict=True):
        data[offset : offset + SLOT_BYTES] = pack_slot(value)
    assert parse_tip(bytes(data)).counter == max(one.counter, other.counter)


@pytest.mark.parametrize("data", [b"", bytes(64), bytes(TIP_BYTES), b"x" * TIP_BYTES])
def test_file_without_a_valid_slot_says_nothing(data: bytes) -> None:
    assert parse_tip(data) == Tip()


def test_damaged_slots_are_told_from_unwritten_ones() -> None:
    data = bytearray(TIP_BYTES)
    data[:SLOT_BYTES] = pack_slot(Tip(1, 5))
    assert damaged_slots(bytes(data)) == []
    data[600 - 100 + 20] = 1
    assert damaged_slots(bytes(data)) == [512]


def test_synced_seq_only_moves_forward(tip: TipFile) -> None:
    for seq in (3, 2, 7, 7, 1):
        tip.advance(synced_seq=seq, segment_base=1, synced_offset=8 * seq)
    assert tip.read() == Tip(2, 7, 1, 56)


def test_slots_are_written_in_turn(tip: TipFile, tmp_path: Path) -> None:
    for seq in (1, 2):
        tip.advance(synced_seq=seq, segment_base=1, synced_offset=0)
    data = (tmp_path / "TIP").read_bytes()
    seqs = [unpack_slot(data[at : at + SLOT_BYTES]) for at in SLOT_OFFSETS]
    assert sorted(slot.synced_seq for slot in seqs if slot) == [1, 2]


def test_nothing_in_doubt_counts_as_synced(tip: TipFile) -> None:
    tip.advance(synced_seq=4, segment_base=1, synced_offset=0)
    assert tip.suspect().suspect_from == 5
    assert tip.advance(synced_seq=9, segment_base=1, synced_offset=0).synced_seq == 4
    assert tip.suspect().suspect_from == 5
    settled = tip.settle(synced_seq=9, segment_base=5, synced_offset=128)
    assert (settled.synced_seq, settled.suspect_from, settled.segment_base) == (9, 0, 5)


def test_handles_see_what_others_wrote(tip: TipFile, tmp_path: Path) -> None:
    fs = PosixFileSystem()
    path = tmp_path / "TIP"
    reader = TipFile(fs, fs.open_file(path, write=False, create=False), path, write=False)
    assert reader.read() == Tip()
    tip.advance(synced_seq=4, segment_base=1, synced_offset=0)
    assert reader.read().synced_seq == 4
    reader.close()
