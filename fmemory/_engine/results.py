"""Results whose fields are right by construction: they skip the checks that arguments need.

A model checks itself when it is built, which costs a few microseconds: much beside a point read.
Copying a finished instance and setting its fields does not check again.
"""

from __future__ import annotations

from copy import copy

from msgspec.structs import force_setattr

from fmemory._receipt import Receipt
from fmemory.record_models import GetResult, MemoryRecord, PutResult, ScanResult

_RECEIPT = Receipt(seq=0, revision=0, event_count=0, durable=False)
_PUT = PutResult(written=0)
_GET = GetResult(records=())
_SCAN = ScanResult(records=())


def receipt(seq: int, revision: int, event_count: int, *, durable: bool) -> Receipt:
    """A receipt of what the engine counted itself."""
    made = copy(_RECEIPT)
    force_setattr(made, "seq", seq)
    force_setattr(made, "revision", revision)
    force_setattr(made, "event_count", event_count)
    force_setattr(made, "durable", durable)
    return made


def put_result(written: int, of: Receipt) -> PutResult:
    """The result of a put."""
    made = copy(_PUT)
    force_setattr(made, "written", written)
    force_setattr(made, "receipt", of)
    return made


def get_result(records: list[MemoryRecord], missing: tuple[str, ...]) -> GetResult:
    """The result of a get."""
    made = copy(_GET)
    force_setattr(made, "records", tuple(records))
    force_setattr(made, "missing", missing)
    return made


def scan_result(records: list[MemoryRecord], cursor: str | None) -> ScanResult:
    """One page."""
    made = copy(_SCAN)
    force_setattr(made, "records", tuple(records))
    force_setattr(made, "next_cursor", cursor)
    return made
