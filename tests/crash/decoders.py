"""Every decoder of bytes from a disk, with samples of what it reads, and ways to spoil those.

A decoder is given bytes whose checksums are right, as they are when somebody has written them on
purpose, so nothing but the decoder stands between them and the caller.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from crc32c import crc32c

from fmemory.journals._jsonl.lines import (
    _HEADER_SALT,
    FORMAT_NAME,
    HeaderFields,
    decode_payload,
    encode_batch,
    encode_header,
    line_salt,
    parse_header,
    parse_line,
    payload_of,
)
from fmemory.journals._jsonl.scan import scan
from fmemory.journals._jsonl.values import seal
from fmemory_segments import Erasure, Rows, StoredEvent
from fmemory_segments._batch import decode_meta, payload_extent
from fmemory_segments._batch import decode_payload as decode_frame_payload
from fmemory_segments._block import decode_block
from fmemory_segments._deflate import deflate, inflate
from fmemory_segments._event_meta import BlockRows
from fmemory_segments._frame import (
    FrameDamage,
    FrameFlag,
    FrameHeader,
    FrameKind,
    frame_seed,
    pack_frame,
    pad8,
    unpack_header,
)
from fmemory_segments._header import SegmentHeader, pack_header
from fmemory_segments._header import unpack_header as unpack_segment
from fmemory_segments._manifest import (
    MANIFEST_HEAD,
    MANIFEST_MAGIC,
    ListedSegment,
    Manifest,
    pack_manifest,
    unpack_manifest,
)
from fmemory_segments._seal import SealBuilder, decode_seal, unpack_trailer
from fmemory_segments._tip import Tip, pack_slot, parse_tip
from fmemory_segments.event_bytes import BytesDamage, StoredMeta, meta_check, pack_event
from tests.segments.compacted_tools import compact_events, fold_frames
from tests.segments.event_strategies import FIRST_OFFSET, SALT, write_batches
from tests.segments.test_compacted import two_batches

STORE_ID = bytes(range(16))
ERASURE = Erasure(4, np.array([1 << 16 | 1], np.uint64), np.array([2], np.uint64))
LARGE = [
    b"\xdd\xff\xff\xff\xff",  # MessagePack: an array of 4,294,967,295 items
    b"\xdf\xff\xff\xff\xff",  # a map
    b"\xc6\xff\xff\xff\xff",  # bytes
    b"\xdb\xff\xff\xff\xff",  # a text
    b"\xcf" + b"\xff" * 8,
    b"\xff" * 4,
    b"\xff" * 8,
    struct.pack("<I", 1 << 31),
    struct.pack("<Q", 1 << 62),
    b"999999999999999999999",
    b"1e999",
    b"[" * 3_000,
    b"\x91" * 3_000,
]


@dataclass(frozen=True)
class Decoder:
    """A decoder under test.

    Attributes:
        name: What it decodes.
        samples: What a writer writes.
        decode: Decodes bytes and looks at everything that came out.
        errors: What it may raise, which its callers turn into an error of the log.
    """

    name: str
    samples: list[bytes]
    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()


def spoiled(choose: Random, sample: bytes) -> bytes:
    """A sample with a mistake in it, or random bytes."""
    data = bytearray(sample)
    at = choose.randrange(len(data) + 1)
    match choose.randrange(7):
        case 0:
            return choose.randbytes(choose.randrange(300))
        case 1:
            for _ in range(choose.randint(1, 3)):
                data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        case 2:
            del data[at:]
        case 3:
            del data[at : at + choose.randint(1, 16)]
        case 4:
            data[at:at] = data[at : at + choose.randint(1, 40)]
        case 5:
            large = choose.choice(LARGE)
            data[at : at + len(large)] = large
        case _:
            data[at:at] = choose.choice(LARGE)
    return bytes(data)


def events() -> list[StoredEvent]:
    """Events of every kind of payload."""
    return list(two_batches().events)


def decoders() -> list[Decoder]:
    """All of them."""
    return [*_frame_decoders(), *_small_decoders(), *_line_decoders()]


def _frame(
    kind: FrameKind, count: int, meta: bytes, data: bytes, flags: int = FrameFlag.BATCH_END
) -> FrameHeader:
    """The header of a frame with right checksums around any meta and data."""
    header, _ = pack_frame(
        kind,
        flags,
        event_count=count,
        prev_frame_bytes=0,
        first_seq=1,
        time_ns=100,
        synced_to=0,
        batch_offset=0,
        meta=meta,
        data_parts=[data],
        data_bytes=len(data),
        salt=SALT,
        offset=FIRST_OFFSET,
    )
    return header


def _joined(count: int, meta: bytes, data: bytes) -> bytes:
    """Count, meta and data of a frame as one string that a test may spoil anywhere."""
    return struct.pack("<II", count, len(meta)) + meta + data


def _parted(joined: bytes) -> tuple[int, bytes, bytes]:
    count, size = struct.unpack_from("<II", joined.ljust(8, b"\0"))
    return count, joined[8 : 8 + size], joined[8 + size :]


def with_a_nested_field(joined: bytes, depth: int, *, in_first: bool) -> bytes:
    """A frame whose meta, or the first entry of it, has one field more: arrays in arrays."""
    count, meta, data = _parted(joined)
    fields = msgspec.msgpack.decode(meta)
    target = fields[0] if in_first else fields
    target.append(msgspec.Raw(b"\x91" * depth + b"\xc0"))
    return _joined(count, msgspec.msgpack.encode(fields), data)


def _events_of(kind: FrameKind, *, deflated: bool = False) -> Callable[[bytes], object]:
    def decode(joined: bytes) -> object:
        count, meta, data = _parted(joined)
        flags = FrameFlag.BATCH_END
        if deflated:
            meta, flags = deflate([meta]), flags | FrameFlag.DEFLATED
        batch = decode_meta(meta, _frame(kind, count, meta, data, flags))
        padded = data.ljust(pad8(len(data)), b"\0")
        for event in batch.events:
            if not isinstance(event.place, BlockRows):
                at, size = payload_extent(event)
                decode_frame_payload(event, padded[at : at + size])
        return list(batch.envelopes())

    return decode


def _block_of(joined: bytes) -> object:
    count, meta, data = _parted(joined)
    return decode_block(_frame(FrameKind.BLOCK, count, meta, data), meta, data)


def _seal_of(joined: bytes) -> object:
    return _columns_of(FrameFlag.BATCH_END, *_parted(joined))


def _deflated_seal_of(joined: bytes) -> object:
    count, meta, data = _parted(joined)
    flags = FrameFlag.BATCH_END | FrameFlag.DEFLATED
    return _columns_of(flags, count, meta, deflate([data]))


def _columns_of(flags: int, count: int, meta: bytes, data: bytes) -> object:
    found = decode_seal(_frame(FrameKind.SEAL, count, meta, data, flags), meta, data)
    return [
        list(found.fold(0, 1 << 60)),
        list(found.stream_infos()),
        list(found.event_ids()),
        found.ids(),
    ]


def _frame_decoders() -> Iterator[Decoder]:
    written, frames = write_batches(events(), [2])
    seal_builder = SealBuilder(1)
    batches, heads = [], []
    for offset, batch in frames:
        seal_builder.add(offset, batch)
        header = batch.header
        start = offset - FIRST_OFFSET
        heads.append(written[start : start + 64])
        meta_end = start + 64 + header.meta_bytes
        data_start = start + header.data_start
        data = written[data_start : data_start + header.data_bytes]
        batches.append(_joined(header.event_count, written[start + 64 : meta_end], data))
    folded = fold_frames(events(), ERASURE)
    by_kind: dict[FrameKind, list[bytes]] = {FrameKind.LEDGER: [], FrameKind.BLOCK: []}
    for one in folded:
        by_kind[one.kind].append(_joined(one.event_count, one.meta, b"".join(one.parts)))
    content = seal_builder.pack(bytes(32))
    sealed = _joined(len(events()), content.meta, b"".join(content.parts))
    damage = (FrameDamage,)
    yield Decoder("frame header", heads[:1], _head_of)
    yield Decoder("BATCH", batches, _events_of(FrameKind.BATCH), damage)
    ledgers = by_kind[FrameKind.LEDGER]
    yield Decoder("LEDGER", ledgers, _events_of(FrameKind.LEDGER), damage)
    in_stream = _events_of(FrameKind.LEDGER, deflated=True)
    yield Decoder("deflated LEDGER", ledgers, in_stream, damage)
    yield Decoder("BLOCK", by_kind[FrameKind.BLOCK], _block_of, damage)
    yield Decoder("SEAL", [sealed], _seal_of, damage)
    yield Decoder("SEAL of a compacted segment", [_compacted_seal()], _seal_of, damage)
    yield Decoder("deflated SEAL", [_compacted_seal()], _deflated_seal_of, damage)
    stream = deflate([content.meta * 50])
    yield Decoder("deflated stream", [stream], lambda data: inflate(data, 1 << 14, "part"), damage)


def _compacted_seal() -> bytes:
    """Count, meta and data of the SEAL that ends a compacted segment, before it was deflated."""
    with TemporaryDirectory() as folder:
        file, _ = compact_events(Path(folder), events(), ERASURE)
        data = file.read_bytes()
    offset = unpack_trailer(data[-16:], len(data))
    assert offset is not None
    header = unpack_header(data[offset:], SALT, offset)
    assert header is not None
    start = offset + header.data_start
    meta = data[offset + 64 : offset + 64 + header.meta_bytes]
    columns = zlib.decompress(data[start : start + header.data_bytes])
    return _joined(header.event_count, meta, columns)


def _manifest_of(body: bytes) -> object:
    """The manifest with this body, whole as far as its checksum goes."""
    whole = MANIFEST_HEAD.pack(MANIFEST_MAGIC, len(body), 0) + body
    found = unpack_manifest(whole + sha256(whole).digest(), 3)
    return (found.names(), found.last_seq) if isinstance(found, Manifest) else found


def _head_of(data: bytes) -> object:
    """The header, with the checksum that its bytes want."""
    crc = crc32c(data[:60], frame_seed(SALT, FIRST_OFFSET))
    found = unpack_header(data[:60] + struct.pack("<I", crc), SALT, FIRST_OFFSET)
    return None if found is None else (found.is_supported, found.last_seq, found.data_start)


def _small_decoders() -> Iterator[Decoder]:
    header = SegmentHeader(STORE_ID, 1, 1, 0, 5, bytes(32), salt=SALT)
    slots = pack_slot(Tip(3, 2, 1, 300)).ljust(512, b"\0") + pack_slot(Tip(2, 1, 1, 200))
    yield Decoder("segment header", [pack_header(header)], unpack_segment)
    listed = ListedSegment("seg-00000000000000000001-000001.log", 1, 4, 900, bytes(32))
    manifest = Manifest(
        number=3,
        prev_number=2,
        prev_sha256=bytes(32),
        store_id=STORE_ID,
        created_ns=5,
        segments=(listed,),
        obsolete=("seg-00000000000000000001-000000.log",),
        frozen_seq=4,
    )
    body = pack_manifest(manifest)[MANIFEST_HEAD.size : -32]
    yield Decoder("manifest", [body], _manifest_of)
    yield Decoder("TIP", [slots], parse_tip)
    trailer = struct.pack("<Q8s", 128, b"\x89FMSEAL\n")
    yield Decoder("trailer", [trailer], lambda data: unpack_trailer(data, 4_096))
    packed = [
        pack_event(one.envelope, one.payload)
        for one in events()
        if not isinstance(one.payload, Rows) or one.payload.erased is None
    ]
    yield Decoder(
        "event of a table",
        [_joined(1, one.meta, one.data) for one in packed],
        _table_event_of,
        (BytesDamage,),
    )


def _table_event_of(joined: bytes) -> object:
    _, meta, data = _parted(joined)
    stored = StoredMeta(1, 5, meta, meta_check(1, 5, meta))
    return stored.envelope, stored.payload_bytes, stored.payload(data)


def _line_decoders() -> Iterator[Decoder]:
    encoded = encode_batch(events(), store_id=STORE_ID, chain=bytes(32), synced=0)
    lines = [line.rstrip(b"\n") for one in encoded for line in one.lines]
    chain, made = bytes(32).hex(), "2026-01-01T00:00:00Z"
    header = HeaderFields(FORMAT_NAME, 1, STORE_ID.hex(), 1, chain, made)
    yield Decoder("JSON line", lines, _line_of, (ValueError,))
    yield Decoder("JSON header", [encode_header(header).rstrip(b"\n")], _header_of)
    yield Decoder("JSON file", [b"\n".join([*lines, b""])], _file_of)


def _resealed(line: bytes, salt: int) -> bytes:
    """A spoiled line with the checksum that it wants."""
    body, found, _ = line.rpartition(b',"crc":"')
    return seal((body if found else line) + b"}", salt)


def _line_of(line: bytes) -> object:
    seq = re.search(rb'"seq":(\d{1,6})[,}]', line)
    salt = line_salt(STORE_ID, int(seq[1]) if seq else 1)
    whole = _resealed(line, salt)
    fields = parse_line(whole, salt)
    if fields is None:
        return None
    return fields.envelope([]), fields.timestamps(), payload_of([decode_payload(whole)])


def _header_of(line: bytes) -> object:
    return parse_header(_resealed(line, _HEADER_SALT))


def _file_of(data: bytes) -> object:
    lines = data.split(b"\n")
    whole = b"\n".join(_resealed(one, line_salt(STORE_ID, 1)) for one in lines)
    return [
        scan(one, base=0, next_seq=1, time_ns=0, store_id=STORE_ID, whole=False)
        for one in (data, whole)
    ]
