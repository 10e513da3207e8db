"""Living rows on their way into BLOCK frames: gathered by stream and shape, sorted, cut.

A row takes its own bytes and some thirty more until its block is made, however small the events
are that it comes from. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from fmemory_segments._block import PackedBlock, pack_block
from fmemory_segments._event_meta import DTYPES, ITEM_BYTES, matrix_bytes
from fmemory_segments._places import Int64Array
from fmemory_segments.event import LOC_ROW_BITS, NONCE_BYTES, Rows, Stream, UInt64Array

ROW_META_BYTES: Final = 8 + 4 + 4 + 4


class LivingRows:
    """The living rows of one stream, dim and dtype.

    Args:
        stream: Their stream.
        dim: Length of their vectors.
        dtype: 1 float32, 2 float64.
    """

    def __init__(self, stream: Stream, dim: int, dtype: int) -> None:
        self._stream = stream
        self._dim = dim
        self._dtype = dtype
        self._locs = bytearray()
        self._timestamps = bytearray()
        self._notes = bytearray()
        self._note_bytes = bytearray()
        self._nonces = bytearray()
        self._vectors = bytearray()
        self._embeddings = bytearray()
        self._embedding_ids: dict[str | None, int] = {}

    def add(self, seq: int, rows: Rows, living: Int64Array | None) -> None:
        """Take in rows of an event.

        Args:
            living: Their numbers, ascending; None = all of them.
        """
        chosen = rows if living is None else _take(rows, living)
        count = len(chosen)
        if count == 1 and living is None:
            self._locs += (seq << LOC_ROW_BITS).to_bytes(8, "little")
            self._note_bytes += len(chosen.notes).to_bytes(4, "little")
        else:
            numbers = np.arange(count) if living is None else living
            self._locs += (numbers + (seq << LOC_ROW_BITS)).astype("<u8").tobytes()
            self._note_bytes += np.diff(chosen.note_offsets).astype("<u4").tobytes()
        self._timestamps += chosen.timestamps.tobytes()
        self._notes += chosen.notes
        self._nonces += chosen.nonces
        self._vectors += matrix_bytes(chosen.vectors)
        table = self._embedding_ids
        self._embeddings += b"".join(
            [
                table.setdefault(value, len(table)).to_bytes(4, "little")
                for value in chosen.embedding_ids
            ]
        )

    def blocks(self, bytes_target: int) -> Iterator[PackedBlock]:
        """The rows as BLOCK frames, sorted by (timestamp, loc).

        Args:
            bytes_target: A block gets larger only for one row that is larger alone.

        Cost: O(bytes); about 2 µs a row.
        """
        locs: UInt64Array = np.frombuffer(self._locs, "<u8")
        timestamps = np.frombuffer(self._timestamps, "<f8")
        vectors = np.frombuffer(self._vectors, DTYPES[self._dtype]).reshape(len(locs), self._dim)
        sizes = np.frombuffer(self._note_bytes, "<u4").astype(np.int64)
        ends = np.cumsum(sizes)
        embeddings = np.frombuffer(self._embeddings, "<u4")
        embedding_ids = list(self._embedding_ids)
        names = np.array([len((value or "").encode()) for value in embedding_ids])
        width = NONCE_BYTES + self._dim * ITEM_BYTES[self._dtype] + ROW_META_BYTES
        order = np.lexsort((locs, timestamps))
        notes, nonces = memoryview(self._notes), memoryview(self._nonces)
        for start, end in pairwise(_cuts((sizes + names[embeddings] + width)[order], bytes_target)):
            chosen = order[start:end]
            spans = zip((ends - sizes)[chosen].tolist(), ends[chosen].tolist(), strict=True)
            yield pack_block(
                self._stream,
                Rows(
                    timestamps=timestamps[chosen],
                    notes=b"".join([notes[low:high] for low, high in spans]),
                    note_offsets=np.append(0, np.cumsum(sizes[chosen])).astype("<u4"),
                    vectors=vectors[chosen],
                    embedding_ids=tuple(
                        [embedding_ids[number] for number in embeddings[chosen].tolist()]
                    ),
                    nonces=b"".join(
                        [
                            nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)]
                            for row in chosen.tolist()
                        ]
                    ),
                ),
                locs[chosen],
            )


def _take(rows: Rows, living: Int64Array) -> Rows:
    """These rows alone."""
    offsets = rows.note_offsets.tolist()
    bodies = [rows.notes[offsets[row] : offsets[row + 1]] for row in living.tolist()]
    nonces = [rows.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)] for row in living.tolist()]
    return Rows(
        timestamps=rows.timestamps[living],
        notes=b"".join(bodies),
        note_offsets=np.cumsum([0, *map(len, bodies)]).astype("<u4"),
        vectors=rows.vectors[living],
        embedding_ids=tuple([rows.embedding_ids[row] for row in living.tolist()]),
        nonces=b"".join(nonces),
    )


def _cuts(sizes: Int64Array, target: int) -> list[int]:
    """Where to cut a sequence of sizes so that no part but a single one is above the target.

    >>> _cuts(np.array([3, 3, 9, 1]), 6)
    [0, 2, 3, 4]
    """
    ends = np.cumsum(sizes)
    cuts, taken = [0], 0
    while cuts[-1] < len(sizes):
        cut = max(int(np.searchsorted(ends, taken + target, "right")), cuts[-1] + 1)
        cuts.append(cut)
        taken = int(ends[cut - 1])
    return cuts
