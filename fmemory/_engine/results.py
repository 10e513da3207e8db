"""Results whose fields are right by construction: they skip the checks that arguments need.

A model checks itself when it is built, which costs a few microseconds: much beside a point read.
Copying a finished instance and setting its fields does not check again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import msgspec
from msgspec.structs import force_setattr

from fmemory._receipt import Receipt
from fmemory.record_models import GetResult, MemoryRecord, PutResult, ScanResult

Made = TypeVar("Made", bound=msgspec.Struct)


def maker_of(instance: Made) -> Callable[..., Made]:
    """A function that makes instances of a class, all fields given by name, without its checks."""
    new = _copies_of(instance)

    def make(**fields: object) -> Made:
        made = new()
        for name, value in fields.items():
            force_setattr(made, name, value)
        return made

    return make


def _copies_of(instance: Made) -> Callable[[], Made]:
    """What makes copies; the method is msgspec's own, though its types do not say so."""
    return cast("Callable[[], Made]", getattr(instance, "__copy__"))  # noqa: B009


_new_receipt = _copies_of(Receipt(seq=0, revision=0, event_count=0, durable=False))
_new_put = _copies_of(PutResult(written=0))
_new_get = _copies_of(GetResult(records=()))
_new_scan = _copies_of(ScanResult(records=()))


def receipt(seq: int, revision: int, event_count: int, *, durable: bool) -> Receipt:
    """A receipt of what the engine counted itself."""
    made = _new_receipt()
    force_setattr(made, "seq", seq)
    force_setattr(made, "revision", revision)
    force_setattr(made, "event_count", event_count)
    force_setattr(made, "durable", durable)
    return made


def put_result(written: int, of: Receipt) -> PutResult:
    """The result of a put."""
    made = _new_put()
    force_setattr(made, "written", written)
    force_setattr(made, "receipt", of)
    return made


def get_result(records: tuple[MemoryRecord, ...], missing: tuple[str, ...]) -> GetResult:
    """The result of a get."""
    made = _new_get()
    force_setattr(made, "records", records)
    if missing:
        force_setattr(made, "missing", missing)
    return made


def scan_result(records: list[MemoryRecord], cursor: str | None) -> ScanResult:
    """One page."""
    made = _new_scan()
    force_setattr(made, "records", tuple(records))
    force_setattr(made, "next_cursor", cursor)
    return made
