"""Salvaging a JSON Lines store: every event whose lines prove that they are as they were written.

A line is believed when its checksum is right. One that is not is believed all the same where the
chain value of its event proves it: a checksum was damaged, or one bit was flipped and put right.
Where only records of a put were changed, the checksums that these carry stand in for their bytes:
if the checksum of the line then comes out right, the rest of it is as it was. docs/repair.md owns
the rules, docs/jsonl.md the lines. Nothing is written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from crc32c import crc32c

from fmemory.journals._jsonl.lines import parse_header
from fmemory.journals._jsonl.salvage_lines import Line, LineReader, Unsure, assembled
from fmemory.journals._jsonl.scan import judge, scan, seq_of
from fmemory.journals._jsonl.store import (
    README_NAME,
    TIP_NAME,
    check_version,
    events_name,
    list_folder,
)
from fmemory.journals._jsonl.values import CRC_TAIL_BYTES
from fmemory_segments import FileSystem
from fmemory_segments._crc_inverse import seed_of
from fmemory_segments._tip import TIP_BYTES, damaged_slots, parse_tip
from fmemory_segments._walk import read_exactly
from fmemory_segments.event import ZERO_CHAIN
from fmemory_segments.filesystem import FileKind
from fmemory_segments.salvage import Found, Salvaged, Trouble, Witness

HEADER_BYTES_MAX: Final = 4096
SECTOR_BYTES: Final = 4096
VOTES_MIN: Final = 2
LINES_ASKED_MAX: Final = 64
LINE_ASKED_BYTES_MAX: Final = 65_536
_STORE_ID = re.compile(rb"\bstore ([0-9a-f]{32})\b")


class JsonlSalvage:
    """What can be read of a folder of JSON Lines, whether it opens or not."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        self._fs = fs
        self._folder = folder
        self._synced_seq = 0
        self._chain: bytes | None = ZERO_CHAIN
        self._seq = 0
        self._time_ns = 0

    def found(self, *, payloads: bool = True) -> Iterator[Found]:
        """Events by seq, with what is wrong and what the store says of itself between.

        Args:
            payloads: Also read as a whole without them: a line proves all of itself.

        Raises:
            LogReadFailed: The folder cannot be listed.

        Cost: O(bytes); memory of one file.
        """
        del payloads
        self._chain, self._seq, self._time_ns = ZERO_CHAIN, 0, 0
        yield from self._witnesses()
        names = list_folder(self._fs, self._folder)
        for name in names.foreign:
            yield Trouble("a file that is not of the store was left alone", name, lost=False)
        store_id = self._store_id(names.events)
        id_crc = self._id_crc(names.events) if store_id is None else crc32c(store_id)
        for number, first_seq in enumerate(names.events):
            is_last = number == len(names.events) - 1
            yield from self._file(first_seq, store_id, id_crc, is_last=is_last)

    def _witnesses(self) -> Iterator[Trouble | Witness]:
        path = self._folder / TIP_NAME
        if self._fs.kind(path) is not FileKind.FILE:
            return
        data, unread = self._bytes(TIP_NAME, TIP_BYTES)
        yield from unread
        for offset in damaged_slots(data):
            yield Trouble("a slot of the witness is damaged", TIP_NAME, offset, lost=False)
        tip = parse_tip(data)
        self._synced_seq = tip.synced_seq
        if not tip.counter and data.strip(b"\0"):
            problem = "the witness of what was acknowledged is damaged"
            yield Trouble(problem, TIP_NAME, 0, lost=False, hides_end=True)
        if self._synced_seq:
            yield Witness(self._synced_seq, None, TIP_NAME)

    # Which store this is

    def _store_id(self, files: list[int]) -> bytes | None:
        """The store's id, as most headers say, or what tells people of the folder."""
        votes: Counter[bytes] = Counter()
        for first_seq in files:
            data, _ = self._bytes(events_name(first_seq), HEADER_BYTES_MAX)
            header = parse_header(_first_line(data))
            if header is not None:
                check_version(header, self._folder / events_name(first_seq))
                votes[bytes.fromhex(header.store_id)] += 1
        if votes:
            return votes.most_common(1)[0][0]
        if self._fs.kind(self._folder / README_NAME) is FileKind.FILE:
            data, _ = self._bytes(README_NAME, HEADER_BYTES_MAX)
            if found := _STORE_ID.search(data):
                return bytes.fromhex(found[1].decode())
        return None

    def _id_crc(self, files: list[int]) -> int | None:
        """The CRC of the store's id that its lines were sealed with, where two of them agree."""
        votes: Counter[int] = Counter()
        for first_seq in files:
            data, _ = self._bytes(events_name(first_seq), None)
            for line in data.split(b"\n")[1:LINES_ASKED_MAX]:
                seq, crc = seq_of(line), _crc_of(line)
                if seq is not None and crc is not None and len(line) < LINE_ASKED_BYTES_MAX:
                    salt = seed_of(line[:-CRC_TAIL_BYTES], crc)
                    votes[seed_of(seq.to_bytes(8, "little"), salt)] += 1
            best = votes.most_common(1)
            if best and best[0][1] >= VOTES_MIN:
                return best[0][0]
        return None

    # A file

    def _file(
        self, first_seq: int, store_id: bytes | None, id_crc: int | None, *, is_last: bool
    ) -> Iterator[Found]:
        name = events_name(first_seq)
        data, unread = self._bytes(name, None)
        yield from unread
        line = _first_line(data)
        header = parse_header(line)
        if header is None:
            yield Trouble("the file's header is damaged", name, 0, lost=False)
        elif store_id is not None and bytes.fromhex(header.store_id) != store_id:
            problem = "the file belongs to another store and was left out"
            yield Trouble(problem, name, 0, hides_end=is_last)
            return
        if id_crc is None:
            problem = "nothing tells which store the file belongs to"
            yield Trouble(problem, name, 0, first_seq, hides_end=is_last)
            return
        if header is not None and header.first_seq > 1:
            prev_chain = bytes.fromhex(header.prev_chain)
            yield Witness(header.first_seq - 1, prev_chain, name)
            if self._seq != header.first_seq - 1 or self._chain is None:
                self._chain = prev_chain
                self._seq = header.first_seq - 1
        lines, troubles = LineReader(name, id_crc).lines(data)
        end = len(data)
        if is_last and store_id is not None:
            torn = self._torn(name, data, lines, store_id, first_seq)
            if torn is not None:
                yield torn
                end = torn.offset or 0
        yield from (one for one in troubles if (one.offset or 0) < end)
        yield from self._events(name, [one for one in lines if one.offset < end])

    def _torn(
        self, name: str, data: bytes, lines: list[Line], store_id: bytes, first_seq: int
    ) -> Trouble | None:
        """Where an append was cut short that nobody was told of."""
        end, seq, time_ns = len(_first_line(data)) + 1, first_seq, 0
        for line in lines:
            if line.fields.batch[0] == line.fields.batch[1]:
                end, seq = line.end, line.fields.seq + 1
        found = scan(
            data[end:], base=end, next_seq=seq, time_ns=time_ns, store_id=store_id, whole=True
        )
        if found.stop is None:
            return None
        stop = judge(
            found.stop, data[end:], base=end, synced_seq=self._synced_seq, store_id=store_id
        )
        if stop.is_damage:
            return None
        problem = (
            f"{len(data) - stop.start} bytes are of an append that was cut short and nobody was"
            " told of"
        )
        return Trouble(problem, name, stop.start, stop.batch_seq, lost=False)

    def _events(self, name: str, lines: list[Line]) -> Iterator[Found]:
        """The events of a file, by seq."""
        by_seq: dict[int, list[Line]] = {}
        for line in lines:
            by_seq.setdefault(line.fields.seq, []).append(line)
        for seq in sorted(by_seq):
            before = self._chain if seq == self._seq + 1 else None
            found = assembled(name, by_seq[seq], before)
            if isinstance(found, Unsure):
                yield found.trouble
                continue
            self._seq, self._chain = seq, found.chain
            yield Salvaged(found.event, name, found.offset, found.harm)
            if found.chain is not None:
                yield Witness(seq, found.chain, name)

    def _bytes(self, name: str, size: int | None) -> tuple[bytes, list[Trouble]]:
        """Bytes of a file, zeros where the system cannot read."""
        try:
            fd = self._fs.open_file(self._folder / name, write=False, create=False)
        except OSError as error:
            return b"", [Trouble(f"the file cannot be read: {error}", name, 0)]
        try:
            whole = self._fs.size(fd) if size is None else min(size, self._fs.size(fd))
            try:
                return read_exactly(self._fs.pread, fd, whole, 0), []
            except OSError as error:
                problem = f"the system cannot read parts of it: {error}"
                return self._around(fd, whole), [Trouble(problem, name, lost=False)]
        finally:
            self._fs.close(fd)

    def _around(self, fd: int, size: int) -> bytes:
        parts = []
        for at in range(0, size, SECTOR_BYTES):
            count = min(SECTOR_BYTES, size - at)
            try:
                part = read_exactly(self._fs.pread, fd, count, at)
            except OSError:
                part = b""
            parts.append(part.ljust(count, b"\0"))
        return b"".join(parts)


def _first_line(data: bytes) -> bytes:
    return data.partition(b"\n")[0]


def _crc_of(line: bytes) -> int | None:
    """The CRC that stands at the end of a line; None if none does."""
    digits = line[-10:-2]
    return int(digits, 16) if re.fullmatch(rb"[0-9a-f]{8}", digits) else None
