"""Taking data out of lines. No I/O; docs/jsonl.md owns the format.

An event keeps its lines and their numbers, so a line says what it said but for what is gone: a diff
shows the lines of the events that were erased and no other. The chain value stands as it was.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from fmemory.journals._erasure import end_of, named_rows, names_event
from fmemory.journals._jsonl.lines import (
    LineFields,
    decode_payload,
    payload_of,
)
from fmemory.journals._jsonl.scan import Found
from fmemory.journals._jsonl.values import erased_row_text, row_of, seal, with_escapes
from fmemory_segments import (
    FORGOTTEN,
    Envelope,
    Erasure,
    chain_step,
    event_digest,
    payload_digest,
)
from fmemory_segments._event_meta import DTYPE_CODES
from fmemory_segments.digest import row_digest, rows_digest
from fmemory_segments.event import BoolArray

_to_json: Final = msgspec.json.Encoder().encode
_decode_line: Final = msgspec.json.Decoder(LineFields).decode


def still_named(found: Found, erasure: Erasure) -> BoolArray | bool:
    """What an erasure names of an event and is there yet: which records, or whether the payload."""
    seq = found.envelope.seq
    if seq > erasure.upto:
        return False
    if found.timestamps is None:
        return found.erased is False and names_event(erasure, seq)
    named = named_rows(erasure, seq, len(found.timestamps))
    if not isinstance(found.erased, bool):
        named &= ~found.erased
    return named if named.any() else False


def to_forget(found: Found, erasure: Erasure) -> int | None:
    """The event that deleted this one, if it is to be forgotten and was not yet."""
    seq = found.envelope.seq
    if seq > erasure.upto or found.envelope.type == FORGOTTEN:
        return None
    return end_of(erasure, seq)


def living_of(found: Found) -> tuple[int, int]:
    """How much data an event holds: records, and 1 where it is one without records."""
    if found.timestamps is None:
        return 0, int(found.erased is False)
    gone = 0 if isinstance(found.erased, bool) else int(found.erased.sum())
    return len(found.timestamps) - gone, 0


def is_named(found: Found, erasure: Erasure) -> bool:
    """Whether an erasure names anything of an event, there or not."""
    seq = found.envelope.seq
    if end_of(erasure, seq) is not None:
        return True
    if found.timestamps is None:
        return names_event(erasure, seq)
    return bool(named_rows(erasure, seq, len(found.timestamps)).any())


def erase_payload(line: bytes, salt: int) -> bytes:
    """The one line of an event without records, without its data; no newline in or out.

    Raises:
        ValueError: The line holds no payload.
    """
    digest = payload_digest(payload_of([decode_payload(line)]))
    fields = _decode_line(line)
    fields.data, fields.base64, fields.nonce = UNSET, UNSET, ""
    fields.erased = digest.hex()
    return seal(with_escapes(_to_json(fields)), salt)


def erase_rows(line: bytes, named: BoolArray, salt: int) -> bytes:
    """A line of a put without the data of the records that are named, shape (records of the line,).

    Raises:
        ValueError: The line holds no records.
    """
    payload, fields = decode_payload(line), _decode_line(line)
    if isinstance(payload.rows, UnsetType):
        raise ValueError("rows: expected records, got none")
    texts = [
        erased_row_text(bytes(text), payload.number_type, payload.dim, salt)
        if is_gone
        else bytes(text)
        for text, is_gone in zip(payload.rows, named.tolist(), strict=True)
    ]
    fields.rows = msgspec.Raw(b"[" + b",".join(texts) + b"]")
    return seal(with_escapes(_to_json(fields)), salt)


def forget_line(line: bytes, end: int, digest: bytes, salt: int) -> bytes:
    """A line of an event that is forgotten: its place in log, batch and stream, and its time.

    Args:
        end: The event that deleted it.
        digest: Of the event, for its first line.
    """
    old = _decode_line(line)
    new = LineFields(old.seq, old.batch, old.part, old.synced, old.time, chain=old.chain)
    if old.time:  # Only the first line of an event says when.
        new.type, new.stream, new.revision = FORGOTTEN, old.stream, old.revision
        new.count, new.erased = end, digest.hex()
    return seal(with_escapes(_to_json(new)), salt)


class Digest:
    """The digest of an event, from its lines one after the other: only one is in memory."""

    def __init__(self) -> None:
        self._rows: list[bytes] = []
        self._times: list[bytes] = []
        self._payload: bytes | None = None

    def add(self, line: bytes) -> None:
        """Take in the next line.

        Raises:
            ValueError: It holds no payload.
        """
        if self._payload is not None:
            return  # Its first line said all.
        fields = decode_payload(line)
        if isinstance(fields.rows, UnsetType):
            self._payload = payload_digest(payload_of([fields]))
            return
        dtype = fields.number_type
        for text in fields.rows:
            row = row_of(text, dtype, fields.dim)
            self._times.append(row.timestamp)
            self._rows.append(
                row.digest
                or row_digest(
                    row.nonce,
                    row.body,
                    row.embedding_id,
                    DTYPE_CODES[dtype],
                    fields.dim,
                    row.vector,
                )
            )

    def chain(self, previous: bytes, envelope: Envelope) -> bytes:
        """The chain value after the event."""
        return chain_step(previous, self.event(envelope))

    def event(self, envelope: Envelope) -> bytes:
        """The digest of the event."""
        payload = self._payload
        if payload is None:
            payload = rows_digest(len(self._rows), b"".join(self._times), b"".join(self._rows))
        return event_digest(envelope, payload)
