"""One put that stands in two files, damaged in one of them: the rows of both together."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from fmemory_segments._salvage_payload import LOST_DIGEST
from fmemory_segments._salvage_types import Harm, Salvaged
from fmemory_segments.event import DIGEST_BYTES, NONCE_BYTES, Rows, StoredEvent


def completed_rows(best: Salvaged, other: Salvaged) -> Salvaged:
    """A put with its lost rows taken from another file of the same put.

    What the first has erased stays erased; only what it lost is taken.
    """
    mine, its = best.event.payload, other.event.payload
    assert isinstance(mine, Rows)
    assert isinstance(its, Rows)
    keys = best.event.envelope.keys
    taken = [row for row in _lost(mine) if row not in _lost(its)]
    if mine.vectors.shape != its.vectors.shape or mine.vectors.dtype != its.vectors.dtype:
        return best
    rows = _with_rows(mine, its, frozenset(taken))
    left = tuple(keys[row] for row in _lost(rows))
    harm: tuple[Harm, ...] = ()
    if left:
        harm = (Harm(f"{len(left)} of {len(keys)} rows", left),)
    elif best.harm and not taken:
        harm = best.harm if other.harm else ()
        rows = mine if other.harm else its
    return Salvaged(StoredEvent(best.event.envelope, rows), best.file, best.offset, harm)


def _lost(rows: Rows) -> list[int]:
    """Numbers of the rows that a salvage lost."""
    if rows.erased is None or rows.digests is None:
        return []
    return [
        row
        for row in np.flatnonzero(rows.erased).tolist()
        if rows.digests[row].tobytes() == LOST_DIGEST
    ]


def _with_rows(mine: Rows, its: Rows, taken: frozenset[int]) -> Rows:
    count = len(mine)
    sources = [its if row in taken else mine for row in range(count)]
    notes, nonces, embedding_ids = [], [], []
    erased = np.zeros(count, np.bool_)
    digests = np.zeros((count, DIGEST_BYTES), np.uint8)
    vectors = mine.vectors.copy()
    for row, source in enumerate(sources):
        low, high = source.note_offsets[row : row + 2].tolist()
        notes.append(source.notes[low:high])
        nonces.append(source.nonces[NONCE_BYTES * row : NONCE_BYTES * (row + 1)])
        embedding_ids.append(source.embedding_ids[row])
        vectors[row] = source.vectors[row]
        if source.erased is not None and source.digests is not None and source.erased[row]:
            erased[row] = True
            digests[row] = source.digests[row]
    return replace(
        mine,
        notes=b"".join(notes),
        note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
        vectors=vectors,
        embedding_ids=tuple(embedding_ids),
        nonces=b"".join(nonces),
        erased=erased if erased.any() else None,
        digests=digests if erased.any() else None,
    )
