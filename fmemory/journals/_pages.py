"""What journals that keep events one by one share: sizes of drafts, pages of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fmemory._engine.work import payload_bytes
from fmemory.errors import ContractError, Reason
from fmemory.journal import Draft, Rows
from fmemory_segments.event import (
    EVENT_BYTES_MAX,
    LOC_ROW_BITS,
    ROWS_MAX,
    UInt64Array,
    VectorArray,
)

ROW_MASK = (1 << LOC_ROW_BITS) - 1


def check_draft(draft: Draft) -> None:
    """Refuse an event that is larger than one may be.

    Raises:
        ContractError: Nothing was written.
    """
    payload = draft.payload
    if isinstance(payload, Rows) and len(payload) > ROWS_MAX:
        raise ContractError(
            f"expected at most {ROWS_MAX} rows in one event, got {len(payload)}; nothing was"
            " written; append several events",
            reason=Reason.TOO_LARGE,
        )
    if payload_bytes(payload) > EVENT_BYTES_MAX:
        raise ContractError(
            f"expected a payload of at most {EVENT_BYTES_MAX} bytes, got"
            f" {payload_bytes(payload)}; nothing was written; split it",
            reason=Reason.TOO_LARGE,
        )


def row_spans(locs: UInt64Array) -> Iterator[tuple[int, int, int]]:
    """Neighbouring rows of one event: seq, first row, row after the last."""
    values = locs.tolist()
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or values[end] != values[end - 1] + 1 or not values[end] & ROW_MASK:
            seq, first = values[start] >> LOC_ROW_BITS, values[start] & ROW_MASK
            yield seq, first, first + end - start
            start = end


def merged(blocks: list[VectorArray]) -> list[VectorArray]:
    """Copies, with neighbours of one dtype and dim put together."""
    groups: list[list[VectorArray]] = []
    for block in blocks:
        last = groups[-1][-1] if groups else None
        if last is not None and last.dtype == block.dtype and last.shape[1] == block.shape[1]:
            groups[-1].append(block)
        else:
            groups.append([block])
    return [np.concatenate(group) for group in groups]
