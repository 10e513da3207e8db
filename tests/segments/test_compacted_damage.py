"""No changed byte of a compacted segment goes unnoticed, and what is damaged has a name.

Goal: whoever reads gets what was written or an error, and `verify` names the event and the record.
Method: bytes of a small compacted file are changed, its frames are cut out, zeroed, exchanged and
forged with right checksums. `FMEMORY_TEST_ROUNDS=8` flips every bit of every byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import msgspec
import numpy as np
import pytest

from fmemory_segments import (
    Envelope,
    Head,
    Log,
    LogError,
    LogReason,
    PosixFileSystem,
    Rows,
    StoredEvent,
    verify_store,
)
from fmemory_segments._batch import BatchMeta
from fmemory_segments._block import BlockMeta
from fmemory_segments._compacted import FrameContent, pack_content
from fmemory_segments._compacted_file import Written
from fmemory_segments._compacted_seal import CompactedSealBuilder
from fmemory_segments._event_meta import BlockRows
from fmemory_segments._frame import FrameFlag, FrameKind, frame_bytes, pack_frame, unpack_header
from fmemory_segments._header import SegmentFlag, SegmentHeader, pack_header
from fmemory_segments._seal import TRAILER, SealMeta, pack_seal
from fmemory_segments.compaction import Erasure
from fmemory_segments.errors import LogCorrupt, UnsupportedFormat
from fmemory_segments.finding import Finding
from tests.segments.compacted_tools import (
    NOTHING,
    STORE_ID,
    blob,
    compacted_store,
    fold_frames,
    list_segments,
)
from tests.segments.event_strategies import SALT, chain_of, make_rows
from tests.segments.log_tools import RECORDS, ROUNDS, SESSION, FailingFileSystem

PUT = "records_put"
ERASURE = Erasure(6, np.array([1 << 16 | 1, 5 << 16 | 1], np.uint64), np.array([4], np.uint64))
ABC = ("a", "b", "c")
SLOT = Struct("<IIIIII")
EMBEDDING = 3
PAGE = 2
USAGE = 4


def events() -> list[StoredEvent]:
    """Puts of two shapes, session events, a deletion; some of it will be erased."""
    return [
        StoredEvent(
            Envelope(1, RECORDS, 1, PUT, 11, event_id="x", keys=tuple("abc")), make_rows(1, 3)
        ),
        StoredEvent(Envelope(2, SESSION, 1, "note.taken", 12, occurred_at_ns=5), blob(2, b"hello")),
        StoredEvent(Envelope(3, RECORDS, 2, PUT, 13, keys=("d",)), make_rows(3, 1, 2, "<f4")),
        StoredEvent(Envelope(4, SESSION, 2, "note.taken", 14), blob(4, b"secret")),
        StoredEvent(Envelope(5, RECORDS, 3, PUT, 15, keys=("e", "f")), make_rows(5, 2)),
        StoredEvent(Envelope(6, RECORDS, 4, "records_deleted", 16, keys=("b",)), blob(6, b"")),
    ]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of one compacted segment with several LEDGER and BLOCK frames."""
    path = tmp_path / "store"
    compacted_store(path, events(), ERASURE, ledger_bytes_target=300, block_bytes_target=100)
    return path


def segment_of(path: Path) -> Path:
    (segment,) = path.glob("seg-*.log")
    return segment


def damage(path: Path, pinned: Head | None = None) -> list[Finding]:
    found = verify_store(PosixFileSystem(), path, pinned)
    return [finding for finding in found if finding.damage]


def answers(path: Path) -> list[object]:
    """What every way to read says, each on its own: comparable, errors by their class."""
    found: list[object] = []
    locs = [
        event.envelope.seq << 16 | row
        for event in events()
        if isinstance(event.payload, Rows)
        for row in range(len(event.payload))
    ]
    living = np.array([loc for loc in locs if loc not in ERASURE.locs] * 3, np.uint64)

    def ask(question: Callable[[Log], object]) -> None:
        try:
            found.append(repr(question(log)))
        except (LogCorrupt, UnsupportedFormat):
            found.append(LogCorrupt)
        except LogError as error:
            found.append(type(error))

    with Log.open(path, read_only=True) as log:
        ask(lambda log: list(log.fold(0, 9)))
        ask(lambda log: list(log.envelopes(0, 9)))
        ask(lambda log: log.rows(living))
        ask(lambda log: (log.streams(), log.find(RECORDS, "x"), list(log.erased(0, 9))))
        ask(Log.usage)
        for seq in range(1, 7):
            ask(lambda log, seq=seq: (log.payloads([seq]), log.head(seq)))  # type: ignore[misc]
        for loc in locs:
            ask(lambda log, loc=loc: log.row(loc))  # type: ignore[misc]
    return found


def test_every_changed_byte_is_found_by_verify(store: Path) -> None:
    segment = segment_of(store)
    content = segment.read_bytes()
    assert damage(store) == []
    for bit in range(min(ROUNDS, 8)):
        for at in range(0, len(content), 1 if ROUNDS > 1 else 3):
            changed = bytearray(content)
            changed[at] ^= 1 << (at + bit) % 8
            segment.write_bytes(changed)
            assert damage(store), at


def test_no_changed_byte_makes_a_read_answer_something_else(store: Path) -> None:
    segment = segment_of(store)
    content = segment.read_bytes()
    wanted = answers(store)
    for at in range(0, len(content), max(1, 12 - ROUNDS)):
        changed = bytearray(content)
        changed[at] ^= 0x10
        segment.write_bytes(changed)
        try:
            found = answers(store)
        except (LogCorrupt, UnsupportedFormat):
            continue
        for one, other in zip(found, wanted, strict=True):
            assert one in (other, LogCorrupt), at


@pytest.mark.parametrize("step", [1, 16])
def test_a_file_of_any_other_length_is_damage(store: Path, step: int) -> None:
    segment = segment_of(store)
    content = segment.read_bytes()
    lengths = range(0, len(content), 97) if step > 1 else range(len(content) - 40, len(content))
    for length in lengths:
        segment.write_bytes(content[:length])
        assert damage(store), length
        with pytest.raises(LogCorrupt):
            Log.open(store, read_only=True)
    segment.write_bytes(content + bytes(8))
    assert damage(store)


def frames_of(path: Path) -> list[tuple[int, int]]:
    """Offset and size of each LEDGER and BLOCK frame."""
    with Log.open(path, read_only=True) as log:
        (segment,) = log._core.segments
        offsets = segment.index.frame_offsets.tolist()
        return [
            (start, end - start)
            for start, end in zip(offsets, [*offsets[1:], segment.frames_end], strict=True)
        ]


def test_every_changed_byte_of_a_row_names_event_and_record(store: Path) -> None:
    segment = segment_of(store)
    content = segment.read_bytes()
    keys = {event.envelope.seq: event.envelope.keys for event in events()}
    seen = set()
    with Log.open(store, read_only=True) as log:
        index = log._core.segments[0].index
        places = {loc: index.place(loc) for loc in (1 << 16, 1 << 16 | 2, 3 << 16, 5 << 16)}
    for loc, place in places.items():
        spans = [(place.note_offset, place.note_bytes)]
        spans.append((place.vector_offset, place.dim * (4 if place.dtype == 1 else 8)))
        for start, size in spans:
            for at in range(start, start + size):
                changed = bytearray(content)
                changed[at] ^= 0x20
                segment.write_bytes(changed)
                (finding,) = damage(store)
                assert finding.reason is LogReason.ROW_CHECKSUM
                assert (finding.first_seq, finding.last_seq) == (loc >> 16, loc >> 16)
                assert finding.key == keys[loc >> 16][loc & 0xFFFF]
                seen.add(loc)
    assert seen == set(places)


def test_a_changed_payload_names_its_event(store: Path) -> None:
    segment = segment_of(store)
    content = segment.read_bytes()
    with Log.open(store, read_only=True) as log:
        blobs = {seq: log._core.segments[0].index.blob(seq) for seq in (2, 6)}
    for seq, place in blobs.items():
        assert place is not None
        changed = bytearray(content)
        changed[place.offset + 3] ^= 1
        segment.write_bytes(changed)
        (finding,) = damage(store)
        assert (finding.reason, finding.first_seq) == (LogReason.DATA_CHECKSUM, seq)


@pytest.mark.parametrize("part", ["head", "meta", "zeros"])
def test_each_unreadable_frame_names_its_events(store: Path, part: str) -> None:
    segment = segment_of(store)
    content = segment.read_bytes()
    with Log.open(store, read_only=True) as log:
        index = log._core.segments[0].index
        seqs = [index.seqs_of_frame(number) for number in range(index.frame_count)]
    for (offset, size), (first, last) in zip(frames_of(store), seqs, strict=True):
        changed = bytearray(content)
        if part == "zeros":
            changed[offset : offset + size] = bytes(size)
        else:
            changed[offset + (20 if part == "head" else 70)] ^= 1
        segment.write_bytes(changed)
        (finding, *_) = damage(store)
        assert (finding.first_seq, finding.last_seq) == (first, last), offset
        assert finding.offset == offset
        segment.write_bytes(content)


def test_frames_of_another_place_are_damage(store: Path) -> None:
    segment = segment_of(store)
    content = segment.read_bytes()
    frames = frames_of(store)
    for one, size in frames:
        for other, other_size in frames:
            if one != other and size == other_size:
                changed = bytearray(content)
                changed[one : one + size] = content[other : other + size]
                segment.write_bytes(changed)
                assert damage(store)


# A forger who knows the format


def forge(
    path: Path,
    contents: list[FrameContent],
    *,
    chain: bytes | None = None,
    seal_from: list[FrameContent] | None = None,
) -> Path:
    """A store of one compacted segment with these frames and a SEAL, all checksums right.

    Args:
        seal_from: The SEAL says what these frames would want instead.
    """
    path.mkdir()
    (path / "LOCK").touch()
    header = SegmentHeader(STORE_ID, 1, 1, 1, 0, bytes(32), SALT, SegmentFlag.COMPACTED)
    content = pack_header(header)
    builder = CompactedSealBuilder(1)
    prev_frame_bytes = 0
    for said, real in zip(seal_from or contents, contents, strict=True):
        offset = len(content)
        frame, buffers = pack_content(
            real, synced_to=0, prev_frame_bytes=prev_frame_bytes, salt=SALT, offset=offset
        )
        if isinstance(said.says, BlockMeta):
            builder.add_block(offset, frame, said.says)
        else:
            wanted = frame._replace(first_seq=said.first_seq, event_count=said.event_count)
            builder.add(offset, BatchMeta(wanted, said.says))
        prev_frame_bytes = frame_bytes(frame)
        content += b"".join(buffers)
    builder.finish()
    _, buffers = pack_seal(
        builder,
        chain or chain_of(events()),
        synced_to=0,
        prev_frame_bytes=prev_frame_bytes,
        salt=SALT,
        offset=len(content),
    )
    content += b"".join(buffers)
    (path / "seg-00000000000000000001-000001.log").write_bytes(content)
    list_segments(path, [0], [Written(6, chain or chain_of(events()), len(content), 0, 0)])
    return path


def contents() -> list[FrameContent]:
    return fold_frames(events(), ERASURE, 100)


def test_a_forged_copy_of_the_same_frames_is_fine(tmp_path: Path) -> None:
    path = forge(tmp_path / "forged", contents())
    assert damage(path, Head(6, chain_of(events()))) == []


def test_a_row_that_is_in_no_block_is_named(tmp_path: Path) -> None:
    found = contents()
    number = next(at for at, one in enumerate(found) if one.kind == FrameKind.BLOCK)
    lost = found.pop(number)
    assert isinstance(lost.says, BlockMeta)
    path = forge(tmp_path / "forged", found)
    with Log.open(path, read_only=True) as log, pytest.raises(LogCorrupt):
        log.payloads(range(1, 7))
    named = {(one.first_seq, one.key) for one in damage(path) if one.key}
    keys = {event.envelope.seq: event.envelope.keys for event in events()}
    assert named == {
        (loc >> 16, keys[loc >> 16][loc & 0xFFFF]) for loc in lost.says.row_locs.tolist()
    }


def test_a_row_that_is_in_two_blocks_is_named(tmp_path: Path) -> None:
    found = contents()
    block = next(one for one in found if one.kind == FrameKind.BLOCK)
    assert isinstance(block.says, BlockMeta)
    path = forge(tmp_path / "forged", [*found, block])
    named = {one.first_seq for one in damage(path) if one.key}
    assert named == {loc >> 16 for loc in block.says.row_locs.tolist()}


def test_an_erased_row_that_is_in_a_block_is_named(tmp_path: Path) -> None:
    erased, whole = contents(), fold_frames(events(), NOTHING, 100)
    ledgers = [one for one in erased if one.kind == FrameKind.LEDGER]
    blocks = [one for one in whole if one.kind == FrameKind.BLOCK]
    path = forge(tmp_path / "forged", [*ledgers, *blocks])
    named = {(one.first_seq, one.key) for one in damage(path) if one.key}
    assert named == {(1, "b"), (5, "f")}


def test_an_edited_row_with_right_checksums_is_found_by_the_chain(tmp_path: Path) -> None:
    edited = events()
    edited[2] = StoredEvent(edited[2].envelope, make_rows(99, 1, 2, "<f4"))
    path = forge(tmp_path / "forged", fold_frames(edited, ERASURE, 100))
    assert [one.reason for one in damage(path)] == [LogReason.CHAIN]
    other = forge(tmp_path / "other", fold_frames(edited, ERASURE, 100), chain=chain_of(edited))
    assert damage(other) == []
    pinned = damage(other, Head(6, chain_of(events())))
    assert [one.reason for one in pinned] == [LogReason.PINNED_HEAD]


def test_an_erasure_that_nobody_made_keeps_the_chain(tmp_path: Path) -> None:
    """Whether it was allowed is for the layer above to say: the log shows what is erased."""
    everything = Erasure(6, np.array([3 << 16], np.uint64), np.zeros(0, np.uint64))
    path = forge(tmp_path / "forged", fold_frames(events(), everything, 100))
    assert damage(path, Head(6, chain_of(events()))) == []
    with Log.open(path, read_only=True) as log:
        assert [one.seq for one in log.erased(0, 9)] == [3]


def test_a_seal_of_other_columns_is_damage(tmp_path: Path) -> None:
    real = contents()
    said = [said_otherwise(one) if isinstance(one.says, BlockMeta) else one for one in real]
    path = forge(tmp_path / "forged", real, seal_from=said)
    assert [one.reason for one in damage(path)] == [LogReason.SEAL]
    with Log.open(path, read_only=True) as log, pytest.raises(LogCorrupt):
        log.row(1 << 16)


def said_otherwise(content: FrameContent) -> FrameContent:
    """The same frame, said to have other row checksums."""
    says = content.says
    assert isinstance(says, BlockMeta)
    crcs = (np.frombuffer(says.row_crcs, "<u4") + np.uint32(1)).tobytes()
    changed = msgspec.structs.replace(says, row_crcs=crcs)
    return dataclasses.replace(content, says=changed)


def test_frames_in_another_order_are_damage(tmp_path: Path) -> None:
    found = contents()
    ledgers = [one for one in found if one.kind == FrameKind.LEDGER]
    assert len(ledgers) > 2
    for order in ([1, 0, 2], [0, 2, 1]):
        path = tmp_path / "".join(map(str, order))
        rest = found[3:]
        changed = [found[number] for number in order]
        forged = forge(path, [*changed, *rest], seal_from=found)
        assert LogReason.FRAME_ORDER in [one.reason for one in damage(forged)]


# A SEAL that contradicts itself, and a disk that does not answer


@pytest.mark.parametrize("column", range(6))
@pytest.mark.parametrize("value", [0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_a_seal_with_a_forged_slot_is_found_and_gives_no_other_single_row(
    tmp_path: Path, column: int, value: int
) -> None:
    """Pages and embedding ids rest on the SEAL's places, as in batches; `verify` compares them."""
    path = forge(tmp_path / "forged", contents())
    wanted = answers(path)
    segment = segment_of(path)
    content = segment.read_bytes()
    for number in range(9):
        forged = with_slot(content, number, column, value)
        segment.write_bytes(forged)
        assert bool(damage(path)) == (forged != content)
        try:
            found = answers(path)
        except LogCorrupt:
            continue
        if column == EMBEDDING:
            continue
        for question, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert one in (other, LogCorrupt) or question in (PAGE, USAGE), (number, question)


def with_slot(content: bytes, number: int, column: int, value: int) -> bytes:
    """The file with another number in one slot of the SEAL, all checksums right."""
    offset = TRAILER.unpack(content[-16:])[0]
    header = unpack_header(content[offset:], SALT, offset)
    assert header is not None
    meta = content[offset + 64 : offset + 64 + header.meta_bytes]
    data = bytearray(content[offset + header.data_start : offset + frame_bytes(header)])
    seal = msgspec.msgpack.decode(meta, type=SealMeta)
    sections = [size + 7 & -8 for size in seal.sections()]
    at = sum(sections[:2]) + SLOT.size * (number % seal.slot_count) + 4 * column
    data[at : at + 4] = value.to_bytes(4, "little")
    _, buffers = pack_frame(
        FrameKind.SEAL,
        FrameFlag.BATCH_END,
        event_count=header.event_count,
        prev_frame_bytes=header.prev_frame_bytes,
        first_seq=header.first_seq,
        time_ns=header.time_ns,
        synced_to=header.synced_to,
        batch_offset=0,
        meta=meta,
        data_parts=[bytes(data)],
        data_bytes=len(data),
        salt=SALT,
        offset=offset,
    )
    return content[:offset] + b"".join(buffers) + content[-16:]


def test_an_unreadable_file_is_told_as_such(store: Path) -> None:
    counting = FailingFileSystem()
    verify_store(counting, store)
    for number in range(4, counting.count):
        failing = FailingFileSystem(lambda _, count, number=number: count >= number)  # type: ignore[misc]
        try:
            found = verify_store(failing, store)
        except LogError as error:
            assert error.reason is LogReason.READ_FAILED
            continue
        assert LogReason.READ_FAILED in {one.reason for one in found}, number


def test_a_seal_with_fewer_rows_than_the_ledger_is_damage(tmp_path: Path) -> None:
    real = fold_frames(events(), ERASURE)
    said = list(real)
    ledger = said[0]
    assert isinstance(ledger.says, list)
    place = ledger.says[0].place
    assert isinstance(place, BlockRows)
    place = msgspec.structs.replace(place, timestamps=place.timestamps[:16])
    first = msgspec.structs.replace(ledger.says[0], keys=("a", "b"), place=place)
    said[0] = dataclasses.replace(ledger, says=[first, *ledger.says[1:]])
    path = forge(tmp_path / "forged", real, seal_from=said)
    assert LogReason.SEAL in [one.reason for one in damage(path)]
    with Log.open(path, read_only=True) as log:
        for ask in (lambda: log.payloads([1]), lambda: log.head(1)):
            with pytest.raises(LogCorrupt) as raised:
                ask()
            assert raised.value.first_seq == 1
