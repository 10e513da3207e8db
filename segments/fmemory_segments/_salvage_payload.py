"""The payload of an event as far as it is intact: damaged rows are taken out, the others live.

What is taken out gets a digest of zeros, which no content has: it says that there was something and
that nobody knows what. Segments and databases keep payloads alike, so both salvage them here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c
from msgspec.structs import replace

from fmemory_segments._batch import decode_payload, payload_extent
from fmemory_segments._event_meta import DTYPES, EventMeta, RowsPlace, unpack_bits, unpack_digests
from fmemory_segments._frame import Buffer, FrameDamage, pad8
from fmemory_segments._inspect import damaged_rows
from fmemory_segments._row_columns import decode_embedding_ids
from fmemory_segments.event import DIGEST_BYTES, NONCE_BYTES, Erased, Payload, Rows

LOST_DIGEST: Final = bytes(DIGEST_BYTES)
"""The digest of what was lost."""


class SalvagedPayload(NamedTuple):
    """What is left of a payload.

    Attributes:
        payload: With `LOST_DIGEST` where something was lost.
        rows: Numbers of the rows that were lost.
        problem: What was found damaged, for a message; empty = the payload is intact.
    """

    payload: Payload
    rows: tuple[int, ...] = ()
    problem: str = ""


def salvage_payload(meta: EventMeta, region: Buffer) -> SalvagedPayload:
    """What is left of the payload of an event whose meta is intact.

    Args:
        meta: Not of rows in BLOCK frames.
        region: The bytes at its `payload_extent`, or as many of them as there are.
    """
    size = payload_extent(meta)[1]
    is_short = len(region) < size
    whole = bytes(region[:size]).ljust(size, b"\0")
    try:
        if not is_short:
            return SalvagedPayload(decode_payload(meta, whole))
    except FrameDamage:
        pass
    if not isinstance(meta.place, RowsPlace):
        left = f" ({size} bytes, of which {len(region)} are left)" if is_short else ""
        problem = f"its data{left}"
        return SalvagedPayload(Erased(LOST_DIGEST), (), problem)
    wrong = tuple(damaged_rows(meta, memoryview(whole)))
    rows = without_rows(_unchecked_rows(meta.place, len(meta.keys), whole), wrong)
    problems = [f"{len(wrong)} of {len(meta.keys)} rows"] if wrong else []
    if crc32c(whole[: NONCE_BYTES * len(meta.keys)]) != meta.place.nonces_crc:
        # Notes and vectors have checksums of their own: they are right, only their digests are not.
        problems.append("its nonces")
    return SalvagedPayload(rows, wrong, " and ".join(problems))


def without_rows(rows: Rows, lost: Sequence[int]) -> Rows:
    """The same rows with some of them taken out, as if they had been erased: a digest of zeros."""
    if not lost:
        return rows
    count = len(rows)
    erased = np.zeros(count, np.bool_) if rows.erased is None else rows.erased.copy()
    digests = (
        np.zeros((count, DIGEST_BYTES), np.uint8) if rows.digests is None else rows.digests.copy()
    )
    erased[list(lost)] = True
    digests[list(lost)] = 0
    gone = frozenset(lost)
    offsets = rows.note_offsets.tolist()
    notes = [
        b"" if row in gone else rows.notes[offsets[row] : offsets[row + 1]] for row in range(count)
    ]
    nonces = bytearray(rows.nonces)
    vectors = rows.vectors.copy()
    for row in lost:
        nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)] = bytes(NONCE_BYTES)
        vectors[row] = 0
    return replace(
        rows,
        notes=b"".join(notes),
        note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
        vectors=vectors,
        embedding_ids=tuple(
            None if row in gone else one for row, one in enumerate(rows.embedding_ids)
        ),
        nonces=bytes(nonces),
        erased=erased,
        digests=digests,
    )


def _unchecked_rows(place: RowsPlace, count: int, region: bytes) -> Rows:
    offsets = np.frombuffer(place.note_offsets, "<u4")
    notes_start = NONCE_BYTES * count
    notes_end = notes_start + int(offsets[-1])
    vectors = np.frombuffer(region, DTYPES[place.dtype], count * place.dim, pad8(notes_end))
    erased = unpack_bits(place.erased, count)
    return Rows(
        timestamps=np.frombuffer(place.timestamps, "<f8"),
        notes=region[notes_start:notes_end],
        note_offsets=offsets,
        vectors=vectors.reshape(count, place.dim),
        embedding_ids=decode_embedding_ids(
            place.embedding_ids, place.embedding_numbers, count, "<u2"
        ),
        nonces=region[:notes_start],
        erased=erased,
        digests=unpack_digests(place.digests, erased),
    )
