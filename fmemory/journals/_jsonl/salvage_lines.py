"""Lines of a damaged file: which of them can be believed, and events made of those. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from fmemory.journals._jsonl.lines import (
    IndexFields,
    PayloadFields,
    decode_payload,
    ids_of,
    parse_line,
    parse_loosely,
    payload_of,
    rows_payload,
)
from fmemory.journals._jsonl.scan import BLANK, seq_of
from fmemory.journals._jsonl.values import CRC_FIELD, CRC_TAIL_BYTES, Row, is_sealed, row_of, seal
from fmemory_segments import Payload, StoredEvent, chain_step, event_digest, payload_digest
from fmemory_segments._crc_inverse import flipped_bit, with_bit_flipped
from fmemory_segments._salvage_payload import LOST_DIGEST
from fmemory_segments.event import DIGEST_BYTES, NONCE_BYTES
from fmemory_segments.salvage import Harm, Trouble

REPAIRED_BYTES_MAX: Final = 65_536
"""In longer lines no flipped bit is looked for: it takes too long, and is found by chance."""
LENGTH_CHANGE_MAX: Final = 64
KEYS_NAMED_MAX: Final = 5

_CANNOT: Final = (ValueError, KeyError, RecursionError, msgspec.MsgspecError)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that may be believed.

    Attributes:
        fields: What an index needs of it.
        text: The line as it was, without its newline.
        offset: Where it stands.
        end: Offset behind it and its newline.
        is_sure: Its checksum proves it; else the chain value of its event must.
        lost: Numbers of its records that were changed.
    """

    fields: IndexFields
    text: bytes
    offset: int
    end: int
    is_sure: bool = True
    lost: frozenset[int] = frozenset()


class Assembled(NamedTuple):
    """An event that is as it was written, but for what `harm` says."""

    event: StoredEvent
    offset: int
    harm: tuple[Harm, ...]
    chain: bytes | None


class Unsure(NamedTuple):
    """An event that nothing proves."""

    trouble: Trouble


class LineReader:
    """The lines of one file.

    Args:
        name: Of the file.
        id_crc: CRC of the store's id, which seeds the checksums of all lines.
    """

    def __init__(self, name: str, id_crc: int) -> None:
        self._name = name
        self._id_crc = id_crc
        self._seq = 0

    def lines(self, data: bytes) -> tuple[list[Line], list[Trouble]]:
        """Lines that may be believed, in order, and what the others are."""
        lines: list[Line] = []
        troubles: list[Trouble] = []
        for offset, end, text in _split(data):
            line = self._line(text, offset, end)
            if line is not None:
                lines.append(line)
                self._seq = line.fields.seq
            elif offset and text.strip(BLANK):
                troubles.append(self._trouble(text, offset))
        return lines, troubles

    def _line(self, text: bytes, offset: int, end: int) -> Line | None:
        named = seq_of(text)
        seqs = dict.fromkeys(
            seq for seq in (named, self._seq, self._seq + 1) if seq is not None and seq < 1 << 63
        )
        for seq in seqs:
            fields = parse_line(text, self._salt(seq))
            if fields is not None and fields.seq == seq:
                return Line(fields, text, offset, end)
        if not offset or not text.strip(BLANK):
            return None
        unsure: Line | None = None
        for seq in seqs:
            line = self._with_bit_repaired(text, seq, offset, end)
            if line is not None and line.is_sure:
                return line
            unsure = unsure or line
            line = self._with_rows_lost(text, seq, offset, end)
            if line is not None:
                return line
        fields = parse_loosely(text)
        if unsure is None and fields is not None:
            unsure = Line(fields, text, offset, end, is_sure=False)
        return unsure

    def _with_rows_lost(self, text: bytes, seq: int, offset: int, end: int) -> Line | None:
        """The line, if the checksums of its records stand in for those that were changed."""
        fields, crc, salt = parse_loosely(text), _crc_of(text), self._salt(seq)
        if fields is None or crc is None or fields.seq != seq:
            return None
        rows = _places_of_rows(text)
        lost = [number for number, (_, row) in enumerate(rows) if not is_sealed(row, salt)]
        if not lost or len(rows) != len(fields.rows if isinstance(fields.rows, list) else ()):
            return None
        changes = range(-LENGTH_CHANGE_MAX, LENGTH_CHANGE_MAX + 1) if len(lost) == 1 else (0,)
        for change in sorted(changes, key=abs):
            if _crc_with_rows(text, rows, frozenset(lost), salt, change) == crc:
                return Line(fields, text, offset, end, lost=frozenset(lost))
        return None

    def _with_bit_repaired(self, text: bytes, seq: int, offset: int, end: int) -> Line | None:
        """The line with one bit put right.

        A record that has the checksum it carries only with that bit proves it; else the chain
        value of the event must.
        """
        crc = _crc_of(text)
        if crc is None or len(text) > REPAIRED_BYTES_MAX:
            return None
        body, salt = text[:-CRC_TAIL_BYTES], self._salt(seq)
        bit = flipped_bit(body, crc, salt)
        if bit is None:
            return None
        repaired = seal(with_bit_flipped(body, bit) + b"}", salt)
        fields = parse_line(repaired, salt)
        if fields is None or fields.seq != seq:
            return None
        is_proved = any(
            start <= bit >> 3 < start + len(row) and is_sealed(row, salt)
            for start, row in _places_of_rows(repaired)
        )
        return Line(fields, repaired, offset, end, is_sure=is_proved)

    def _trouble(self, text: bytes, offset: int) -> Trouble:
        """What to say of a line that nothing proves; its seq is believed only if it is the next."""
        seq = seq_of(text)
        if seq not in (self._seq, self._seq + 1):
            return Trouble("a line is damaged", self._name, offset)
        self._seq = max(self._seq, seq or 0)
        return Trouble("a line is damaged", self._name, offset, seq, seq)

    def _salt(self, seq: int) -> int:
        salt: int = crc32c(seq.to_bytes(8, "little"), self._id_crc)
        return salt


def assembled(name: str, lines: Sequence[Line], before: bytes | None) -> Assembled | Unsure:
    """An event of its lines, as far as they prove it.

    Args:
        name: Of the file.
        lines: All that carry its seq, in any order, some perhaps twice.
        before: Chain value before the event, where it is known.
    """
    seq, offset = lines[0].fields.seq, lines[0].offset
    parts: dict[int, Line] = {}
    for line in sorted(lines, key=lambda one: not one.is_sure):
        parts.setdefault(line.fields.part[0], line)
    whole = [parts[number] for number in sorted(parts)]
    wanted = whole[0].fields.part[1]
    if sorted(parts) != list(range(1, wanted + 1)):
        problem = f"{wanted - len(parts)} of the {wanted} lines of an event are damaged or missing"
        return Unsure(Trouble(problem, name, offset, seq, seq))
    try:
        stood = _lost_keys(whole)
        _rename_lost(whole)
        indexed = [line.fields for line in whole]
        envelope = indexed[0].envelope(ids_of(indexed))
        payload = _payload(whole)
        claimed = bytes.fromhex(indexed[-1].chain)
        digest = event_digest(envelope, payload_digest(payload))
    except _CANNOT as error:
        return Unsure(Trouble(f"a line cannot be understood: {error}", name, offset, seq, seq))
    if not all(line.is_sure for line in whole) and (
        before is None or chain_step(before, digest) != claimed
    ):
        return Unsure(Trouble("a line is damaged", name, offset, seq, seq))
    keys = _lost_keys(whole)
    harm: tuple[Harm, ...] = ()
    if keys:
        named = ", ".join(map(repr, stood[:KEYS_NAMED_MAX])) + ", …" * (len(keys) > KEYS_NAMED_MAX)
        harm = (Harm(f"{len(keys)} of {len(envelope.keys)} rows (where {named} stands)", keys),)
    chain = claimed if len(claimed) == DIGEST_BYTES else None
    return Assembled(StoredEvent(envelope, payload), offset, harm, chain)


def _rename_lost(lines: Sequence[Line]) -> None:
    """Give the records that were lost ids and times of their own: nothing proves what stands there.

    An id that was changed into another's would take that record's place.
    """
    first = 0
    for line in lines:
        rows = line.fields.rows
        if isinstance(rows, list):
            for number in line.lost:
                rows[number].id = f"lost-{line.fields.seq}-{first + number}"
                rows[number].timestamp, rows[number].timestamp_hex = 0.0, ""
            first += len(rows)


def _payload(lines: Sequence[Line]) -> Payload:
    """The payload; records that were changed become erased ones with a digest of zeros."""
    payloads = [decode_payload(line.text) for line in lines]
    if not any(line.lost for line in lines):
        return payload_of(payloads)
    dtype, dim = payloads[0].number_type, payloads[0].dim
    rows: list[Row] = []
    for line, fields in zip(lines, payloads, strict=True):
        times = line.fields.timestamps()
        for number, text in enumerate(_rows_of(fields)):
            if number in line.lost:
                rows.append(_lost_row(line.fields, number, times[number], dim * dtype.itemsize))
            else:
                rows.append(row_of(text, dtype, dim))
    return rows_payload(rows, dtype, dim)


def _lost_row(fields: IndexFields, number: int, timestamp: float, vector_bytes: int) -> Row:
    assert isinstance(fields.rows, list)
    return Row(
        fields.rows[number].id,
        pack("<d", timestamp),
        b"",
        bytes(vector_bytes),
        None,
        bytes(NONCE_BYTES),
        LOST_DIGEST,
    )


def _lost_keys(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(
        line.fields.rows[number].id
        for line in lines
        if isinstance(line.fields.rows, list)
        for number in sorted(line.lost)
    )


def _rows_of(fields: PayloadFields) -> list[msgspec.Raw]:
    return fields.rows if isinstance(fields.rows, list) else []


def _places_of_rows(text: bytes) -> list[tuple[int, bytes]]:
    """Offset and bytes of each record of a line."""
    try:
        rows = [bytes(one) for one in _rows_of(decode_payload(text))]
    except _CANNOT:
        return []
    found: list[tuple[int, bytes]] = []
    at = text.find(b'"rows":[')
    for row in rows:
        at = text.find(row, at)
        found.append((at, row))
        at += len(row)
    return found


def _crc_with_rows(
    text: bytes, rows: list[tuple[int, bytes]], lost: frozenset[int], salt: int, change: int
) -> int | None:
    """The CRC of a line if its lost records had the checksums that they carry.

    Args:
        change: How much longer the one that was lost is taken to have been.
    """
    crc, at = salt, 0
    for number in sorted(lost):
        start, row = rows[number]
        of_row = _crc_of(row)
        size = len(row) - CRC_TAIL_BYTES + change
        if of_row is None or size < 0:
            return None
        crc = crc32c(text[at:start], crc)
        # CRCs are linear: with another seed a text's CRC differs as that of as many zeros does.
        zeros = bytes(size)
        crc = of_row ^ crc32c(zeros, crc) ^ crc32c(zeros, salt)
        crc = crc32c(row[-CRC_TAIL_BYTES:], crc)
        at = start + len(row)
    found: int = crc32c(text[at:-CRC_TAIL_BYTES], crc)
    return found


def _crc_of(text: bytes) -> int | None:
    """The CRC that an object carries as its last field; None if it carries none."""
    tail = text[-CRC_TAIL_BYTES:]
    digits = tail[len(CRC_FIELD) : -2]
    if not tail.startswith(CRC_FIELD) or not tail.endswith(b'"}'):
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


def _split(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Lines with their offset and the offset behind their newline."""
    at = 0
    while at < len(data):
        newline = data.find(b"\n", at)
        end = len(data) if newline < 0 else newline
        yield at, end + 1, data[at:end].removesuffix(b"\r")
        at = end + 1
