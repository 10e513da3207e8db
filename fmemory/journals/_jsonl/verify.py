"""Checking a JSON Lines store: every line, every record, every chain value. Nothing is changed.

A line that was changed is named by file, line number, offset and seq, and, as each record of a put
carries a checksum of its own, by the ids of the records that were changed. What follows a bad line
is checked too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from fmemory.journals._jsonl.file_bytes import Data, FileBytes, count_of
from fmemory.journals._jsonl.lines import (
    IndexFields,
    decode_payload,
    ids_of,
    line_salt,
    parse_line,
    parse_loosely,
    payload_of,
)
from fmemory.journals._jsonl.scan import BLANK, NUL, Found, Stop, judge, scan, seq_of
from fmemory.journals._jsonl.store import (
    TIP_NAME,
    events_name,
    list_folder,
    open_events,
)
from fmemory.journals._jsonl.values import RowFields, is_sealed
from fmemory_segments import (
    FileSystem,
    Finding,
    LogReason,
    Pinned,
    PinnedHeads,
    StreamIndex,
    chain_step,
    event_digest,
    payload_digest,
)
from fmemory_segments._catalog import reading
from fmemory_segments._stream_index import RevisionGap
from fmemory_segments._tip import TIP_BYTES, Tip, damaged_slots, parse_tip
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import LogCorrupt
from fmemory_segments.event import ZERO_CHAIN

_decode_row: Final = msgspec.json.Decoder(RowFields).decode


def verify_folder(fs: FileSystem, folder: Path, pinned: Pinned = None) -> list[Finding]:
    """What is wrong with a store, in the order of its files.

    Args:
        pinned: A head that was kept elsewhere, or several.

    Raises:
        LogReadFailed: The system could not read.
        UnsupportedFormat: A newer version wrote a file; nothing is known of what is in it.

    Cost: O(bytes): everything is parsed and hashed.
    """
    return _Check(fs, folder, pinned).findings()


class _Check:
    """One check of a store."""

    def __init__(self, fs: FileSystem, folder: Path, pinned: Pinned) -> None:
        self._fs = fs
        self._folder = folder
        self._pins = PinnedHeads(pinned)
        self._found: list[Finding] = []
        self._store_id = b""
        self._next_seq = 1
        self._time_ns = 0
        # None where a damaged event hides what its successor goes on from.
        self._chain: bytes | None = ZERO_CHAIN
        self._streams = StreamIndex()
        self._is_whole = True

    def findings(self) -> list[Finding]:
        tip = self._tip()
        names = list_folder(self._fs, self._folder)
        for name in names.foreign:
            self._tell(
                LogReason.FOREIGN_FILE,
                f"{name} is not a file of the store and was left alone",
                file=name,
                damage=False,
            )
        for number, first_seq in enumerate(names.events):
            self._file(first_seq, tip, is_last=number == len(names.events) - 1)
        head = self._next_seq - 1
        if head < tip.synced_seq:
            self._tell(
                LogReason.ACKNOWLEDGED_LOSS,
                f"expected events up to seq {tip.synced_seq}, as {TIP_NAME} says were on disk, got "
                f"a log that ends at {head}; restore what is missing",
                first_seq=head + 1,
                last_seq=tip.synced_seq,
            )
        return self._found + self._pins.findings(head)

    def _tip(self) -> Tip:
        path = self._folder / TIP_NAME
        with reading(path):
            if self._fs.kind(path) is None:
                return Tip()
            fd = self._fs.open_file(path, write=False, create=False)
            try:
                data = read_exactly(self._fs.pread, fd, TIP_BYTES, 0)
            finally:
                self._fs.close(fd)
        for offset in damaged_slots(data):
            self._tell(
                LogReason.WITNESS,
                f"a slot of {TIP_NAME} is damaged; it is written anew by the next sync",
                file=TIP_NAME,
                offset=offset,
                damage=False,
            )
        return parse_tip(data)

    def _file(self, first_seq: int, tip: Tip, *, is_last: bool) -> None:
        name = events_name(first_seq)
        if first_seq != self._next_seq:
            self._tell(
                LogReason.MISSING_SEGMENT,
                f"files: expected one that begins with seq {self._next_seq}, got {first_seq} "
                f"({name}); put back what is missing",
                file=name,
                first_seq=self._next_seq,
                last_seq=first_seq - 1,
            )
            self._skip_to(first_seq)
        store_id = self._store_id or None
        try:
            opened = open_events(self._fs, self._folder, first_seq, write=False, store_id=store_id)
        except LogCorrupt as error:
            self._tell(error.reason, str(error), file=name, offset=0, first_seq=first_seq)
            self._is_whole = False
            return
        self._store_id = opened.store_id
        if self._chain is not None and opened.prev_chain != self._chain:
            self._tell(
                LogReason.CHAIN,
                f"chain: expected {self._chain.hex()[:16]}… before seq {first_seq}, got "
                f"{opened.prev_chain.hex()[:16]}… ({name}, line 1)",
                file=name,
                offset=0,
                first_seq=first_seq,
            )
        with reading(self._folder / name):
            size = self._fs.size(opened.file.fd)
            data = FileBytes(partial(self._read, opened.file.fd), 0, size)
            self._lines(name, data, opened.header_bytes, tip, is_last=is_last)

    def _read(self, fd: int, offset: int, size: int) -> bytes:
        return read_exactly(self._fs.pread, fd, size, offset)

    def _lines(self, name: str, data: Data, start: int, tip: Tip, *, is_last: bool) -> None:
        """Check the lines of a file; go on behind each that is bad."""
        at = start
        while at < len(data):
            found = scan(
                data,
                base=0,
                start=at,
                next_seq=self._next_seq,
                time_ns=self._time_ns,
                store_id=self._store_id,
                whole=True,
            )
            for one in found.events:
                self._event(name, data, one.lines, one.chain)
                self._stream(name, one.lines[0][0], one)
                self._next_seq = one.envelope.seq + 1
                self._time_ns = one.envelope.recorded_at_ns
            if found.stop is None:
                return
            judged = judge(
                found.stop,
                data,
                base=0,
                synced_seq=tip.synced_seq,
                store_id=self._store_id,
            )
            if not judged.is_damage:
                self._tail(name, found.stop, data[found.stop.start :], is_last=is_last)
                return
            at = self._damage(name, data, judged)

    def _damage(self, name: str, data: Data, stop: Stop) -> int:
        """Tell of bad lines up to the next batch; where that begins."""
        self._chain, self._is_whole = None, False
        at = self._bad_line(name, data, stop.offset, stop.seq, stop.reason, stop.evidence)
        seq = stop.seq
        while at < len(data):
            end = _line_end(data, at)
            line = data[at:end]
            found = seq_of(line)
            seq = seq if found is None else found
            fields = parse_line(line, line_salt(self._store_id, seq))
            if fields is None:
                reason, evidence = LogReason.FRAME_CHECKSUM, "a line with its checksum, got another"
                self._bad_line(name, data, at, seq, reason, evidence)
            elif fields.batch[0] == 1 and (seq > stop.seq or seq == self._next_seq):
                self._skip_to(seq)
                return at
            at = end + 1
        self._next_seq = max(self._next_seq, seq + 1)
        return at

    def _bad_line(
        self, name: str, data: Data, offset: int, seq: int, reason: LogReason, evidence: str
    ) -> int:
        """Tell of a line, or of the records in it that were changed; the offset behind it."""
        end = _line_end(data, offset)
        keys = _changed_records(data[offset:end], seq, self._store_id)
        for key in keys or (None,):
            record = f"record {key!r}: " if key is not None else ""
            self._tell(
                LogReason.ROW_CHECKSUM if key is not None else reason,
                f"{record}expected {evidence} {_where(name, data, offset, seq)}; put the line "
                "back as it was",
                file=name,
                offset=offset,
                first_seq=seq,
                last_seq=seq,
                key=key,
            )
        return end + 1

    def _skip_to(self, seq: int) -> None:
        if seq != self._next_seq:
            self._chain, self._is_whole = None, False
            self._next_seq = seq

    def _tail(self, name: str, stop: Stop, tail: bytes, *, is_last: bool) -> None:
        """Tell of an end that no damage explains."""
        number_of = f"{len(tail)} bytes"
        is_blank = not tail.strip(BLANK)
        if is_blank or is_last:
            what = "blank lines" if is_blank else "a batch that was never whole"
            self._tell(
                LogReason.TORN_TAIL,
                f"{name} ends with {number_of} of {what}; the next writer sets them aside",
                file=name,
                offset=stop.start,
                first_seq=stop.batch_seq,
                damage=False,
            )
            return
        nuls = f", {tail.count(NUL)} of them NUL" if NUL in tail else ""
        self._tell(
            stop.reason,
            f"expected {stop.evidence} ({name}, byte {stop.offset}); {number_of} follow{nuls}",
            file=name,
            offset=stop.offset,
            first_seq=stop.batch_seq,
        )
        self._chain, self._is_whole = None, False

    def _event(
        self, name: str, data: Data, lines: tuple[tuple[int, int, int], ...], chain: bytes
    ) -> None:
        """Check the records and the chain value of an event whose lines are whole."""
        texts = [data[offset : offset + size] for offset, size, _ in lines]
        seq = self._next_seq
        try:
            indexed = [_indexed(text) for text in texts]
            seq = indexed[0].seq
            payload = payload_of([decode_payload(text) for text in texts])
            envelope = indexed[0].envelope(ids_of(indexed))
            digest = event_digest(envelope, payload_digest(payload))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            self._tell(
                LogReason.FRAME_CONTENT,
                f"expected a payload, got {error} {_where(name, data, lines[0][0], seq)}",
                file=name,
                offset=lines[0][0],
                first_seq=seq,
                last_seq=seq,
            )
            self._chain = chain
            return
        if self._chain is not None and chain_step(self._chain, digest) != chain:
            self._tell(
                LogReason.CHAIN,
                "expected the chain value of this event, got another: the line was rewritten with "
                f"a new checksum {_where(name, data, lines[0][0], seq)}",
                file=name,
                offset=lines[0][0],
                first_seq=seq,
                last_seq=seq,
            )
            self._is_whole = False
        self._chain = chain
        self._pins.see(seq, chain)

    def _stream(self, name: str, offset: int, one: Found) -> None:
        try:
            self._streams.apply_envelope(one.envelope)
        except RevisionGap as gap:
            if self._is_whole:
                seq = one.envelope.seq
                self._tell(
                    LogReason.FRAME_ORDER,
                    f"expected revision {gap.expected} of stream {gap.stream}, got {gap.revision} "
                    f"({name}, byte {offset}, seq {seq})",
                    file=name,
                    offset=offset,
                    first_seq=seq,
                    last_seq=seq,
                )

    def _tell(
        self,
        reason: LogReason,
        message: str,
        *,
        damage: bool = True,
        file: str | None = None,
        offset: int | None = None,
        first_seq: int | None = None,
        last_seq: int | None = None,
        key: str | None = None,
    ) -> None:
        self._found.append(Finding(reason, message, damage, file, offset, first_seq, last_seq, key))


def _line_end(data: Data, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _where(name: str, data: Data, offset: int, seq: int) -> str:
    line = 1 + count_of(data, b"\n", offset)
    return f"({name}, line {line}, byte {offset}, seq {seq})"


def _indexed(text: bytes) -> IndexFields:
    fields = parse_loosely(text)
    if fields is None:
        raise ValueError("fields: expected those of an event")
    return fields


def _changed_records(line: bytes, seq: int, store_id: bytes) -> list[str]:
    """Ids of the records of a bad line whose own checksums are wrong, as far as can be told."""
    try:
        fields = decode_payload(line)
        if seq_of(line) != seq or not isinstance(fields.rows, list):
            return []
        salt = line_salt(store_id, seq)
        return [_decode_row(one).id for one in fields.rows if not is_sealed(bytes(one), salt)]
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return []
