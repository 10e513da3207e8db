"""The meta entry of one event: what BATCH and LEDGER frames keep of it, and where its payload lies.

docs/format.md sections 4 and 6 own the fields. An entry survives erasure of the payload. Decoding
builds nothing but the structs below; whether the places lie inside the frame's data is checked by
`_batch` and `_block`, which know the frame.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from fmemory_segments.event import BoolArray, Envelope, Rows, Stream, UInt8Array, VectorArray

DTYPE_FLOAT32 = 1
DTYPE_FLOAT64 = 2
FLOAT32 = np.dtype("<f4")
FLOAT64 = np.dtype("<f8")
DTYPE_CODES: dict[np.dtype[np.generic], int] = {FLOAT32: DTYPE_FLOAT32, FLOAT64: DTYPE_FLOAT64}
DTYPES: dict[int, np.dtype[np.floating]] = {DTYPE_FLOAT32: FLOAT32, DTYPE_FLOAT64: FLOAT64}
ITEM_BYTES = (0, 4, 8, 0)
DIM_MAX = (1 << 30) - 1

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class BlobPlace(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A payload of bytes: nonce and bytes at `offset` of the frame's data."""

    offset: Natural
    length: Natural
    crc: Natural


class RowsPlace(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A payload of records: nonces, notes and matrix at `offset` of the frame's data."""

    offset: Natural
    dim: Natural
    dtype: Natural
    nonces_crc: Natural
    timestamps: bytes
    note_offsets: bytes
    row_crcs: bytes
    embedding_ids: tuple[str | None, ...]
    embedding_numbers: bytes = b""
    erased: bytes = b""
    digests: bytes = b""


class ErasedPlace(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A payload of which only the digest is left."""

    digest: bytes


class BlockRows(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A payload of records whose rows lie in BLOCK frames."""

    dim: Natural
    dtype: Natural
    timestamps: bytes
    erased: bytes = b""
    digests: bytes = b""


Place: TypeAlias = BlobPlace | RowsPlace | ErasedPlace | BlockRows


class EventMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An envelope without what the frame's header says, and the place of the payload."""

    stream: Stream
    revision: Natural
    type: str
    place: Place
    keys: tuple[str, ...] = ()
    count: int = 0
    recorded_after_ns: Natural = 0
    occurred_at_ns: int | None = None
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    event_id: str | None = None

    @property
    def has_rows(self) -> bool:
        """True for a record event."""
        return isinstance(self.place, RowsPlace | BlockRows)

    def envelope(self, seq: int, frame_time_ns: int) -> Envelope:
        """The envelope, given the event's seq and the `time_ns` of its frame."""
        return Envelope(
            seq,
            self.stream,
            self.revision,
            self.type,
            frame_time_ns + self.recorded_after_ns,
            self.occurred_at_ns,
            self.actor,
            self.run_id,
            self.reason,
            self.event_id,
            self.keys,
            self.count,
        )


def pack_bits(erased: BoolArray | None) -> bytes:
    """One bit a row, lowest bit first; empty where no row is erased."""
    if erased is None or not erased.any():
        return b""
    return np.packbits(erased, bitorder="little").tobytes()


def unpack_bits(bits: bytes, count: int) -> BoolArray | None:
    """bool, shape (count,), or None for no bits at all."""
    if not bits:
        return None
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little")
    return flags.view(np.bool_)


def pack_digests(rows: Rows) -> bytes:
    """The digests of the erased rows, 32 bytes each, back to back."""
    if rows.erased is None or rows.digests is None or not rows.erased.any():
        return b""
    return rows.digests[rows.erased].tobytes()


def unpack_digests(digests: bytes, erased: BoolArray | None) -> UInt8Array | None:
    """uint8, shape (n, 32): the digest of each erased row, zeros for the others."""
    if erased is None:
        return None
    table = np.zeros((len(erased), 32), np.uint8)
    table[erased] = np.frombuffer(digests, np.uint8).reshape(-1, 32)
    return table


def matrix_bytes(vectors: VectorArray) -> memoryview:
    """The bytes of a C-contiguous array, uncopied."""
    if vectors.size == 0:
        return memoryview(b"")
    return vectors.data.cast("B")


def bits_fit(erased: bytes, digests: bytes, count: int) -> bool:
    """True if bitmap and digests are as long as this number of rows wants, and agree."""
    if not erased:
        return not digests
    bits = int.from_bytes(erased, "little")
    return (
        len(erased) == (count + 7) // 8
        and bits >> count == 0
        and len(digests) == 32 * bits.bit_count()
        and bits != 0
    )
