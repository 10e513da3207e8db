"""One file of events written anew in `tmp/`, without the data that are to go, and read back.

Line by line: neither the file nor an event is ever in memory whole. Every line is checked before it
is copied, so that damage is never given a new name, and the copy is read back from the disk: each
line in its place, and the chain value of each event that was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from fmemory.journals._jsonl.core import Core, Entry, EventsFile
from fmemory.journals._jsonl.erase import (
    Digest,
    erase_payload,
    erase_rows,
    forget_line,
    living_of,
    still_named,
    to_forget,
)
from fmemory.journals._jsonl.lines import line_salt, parse_line
from fmemory.journals._jsonl.scan import Batch, Found, Misplaced
from fmemory.journals._jsonl.values import is_sealed
from fmemory_segments import Erased, Erasure, LogReason, StoredEvent, forgotten
from fmemory_segments._catalog import write_all, write_failed
from fmemory_segments._files import OpenFile
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import LogWriteFailed
from fmemory_segments.event import BoolArray

COPY_BYTES: Final = 1 << 20
_CANNOT: Final = (ValueError, msgspec.MsgspecError, Misplaced, KeyError)


@dataclass(slots=True)
class Written:
    """A file in `tmp/` that may take the place of another.

    Attributes:
        path: Where it lies.
        file: Open for reading and writing.
        end: Its size.
        found: Its events.
        changed: Seqs of those that were changed.
        erased_rows: Records whose data are not in it any more.
        erased_events: Events without records whose data are not.
        forgotten_events: Events that are stubs now.
    """

    path: Path
    file: OpenFile
    end: int
    found: list[Found]
    changed: set[int]
    erased_rows: int = 0
    erased_events: int = 0
    forgotten_events: int = 0


class _Output:
    """Bytes that are written one after the other, many at a time."""

    def __init__(self, core: Core, fd: int, path: Path) -> None:
        self._core = core
        self._fd = fd
        self._path = path
        self._waiting = bytearray()
        self.end = 0

    def add(self, data: bytes) -> None:
        self._waiting += data
        self.end += len(data)
        if len(self._waiting) >= COPY_BYTES:
            self.flush()

    def flush(self) -> None:
        try:
            write_all(self._core.fs, self._fd, bytes(self._waiting), self.end - len(self._waiting))
        except OSError as error:
            raise write_failed(error, self._path) from error
        self._waiting.clear()


class _Source:
    """A file that is read from its beginning to its end, many bytes at a time."""

    def __init__(self, core: Core, events: EventsFile) -> None:
        self._core = core
        self._events = events
        self._start = 0
        self._data = b""

    def read(self, offset: int, size: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            self._data = self._core.read(self._events, offset, max(size, COPY_BYTES))
            self._start, at = offset, 0
        return self._data[at : at + size]


def write_without(
    core: Core,
    events: EventsFile,
    entries: list[Entry],
    erasure: Erasure,
    file: OpenFile,
    path: Path,
) -> Written:
    """Fill an empty file with the events of another, without the data that an erasure names.

    Args:
        events: The file as it is; everything of it is on disk or in the system's memory.
        entries: Its events.
        file: The empty one, which lies at `path`.

    Raises:
        LogCorrupt: A line of the old file is damaged. Nothing was changed.
        StoreFull, LogWriteFailed, LogReadFailed: The system refused.

    Durability: none; the caller syncs.
    """
    output, source = _Output(core, file.fd, path), _Source(core, events)
    header_bytes = entries[0].found.lines[0][0]
    output.add(source.read(0, header_bytes))
    written = Written(path, file, 0, [], set())
    for entry in entries:
        old, end = entry.found, to_forget(entry.found, erasure)
        if end is not None:
            written.found.append(_forget_event(core, events, source, output, old, end))
            written.changed.add(old.envelope.seq)
            rows, payloads = living_of(old)
            written.erased_rows += rows
            written.erased_events += payloads
            written.forgotten_events += 1
            continue
        named = still_named(old, erasure)
        written.found.append(_copy_event(core, events, source, output, old, named))
        if named is not False:
            written.changed.add(old.envelope.seq)
            written.erased_events += named is True
            written.erased_rows += 0 if isinstance(named, bool) else int(named.sum())
    output.flush()
    written.end = output.end
    return written


def _copy_event(
    core: Core,
    events: EventsFile,
    source: _Source,
    output: _Output,
    found: Found,
    named: BoolArray | bool,
) -> Found:
    """Copy the lines of an event; where they are now, and what of it is erased."""
    seq = found.envelope.seq
    salt = line_salt(core.store_id, seq)
    places: list[tuple[int, int, int]] = []
    bounds = [row for _, _, row in found.lines[1:]]
    stops = [*bounds, 0 if found.timestamps is None else len(found.timestamps)]
    for (offset, size, row), stop in zip(found.lines, stops, strict=True):
        line = _line(core, events, source, offset, size, seq)
        try:
            if named is True:
                line = erase_payload(line[:-1], salt) + b"\n"
            elif not isinstance(named, bool) and named[row:stop].any():
                line = erase_rows(line[:-1], named[row:stop], salt) + b"\n"
        except _CANNOT as error:
            raise core.damaged(events, LogReason.FRAME_CONTENT, str(error), offset, seq) from error
        places.append((output.end, len(line) - 1, row))
        output.add(line)
    return Found(
        found.envelope, tuple(places), found.chain, found.timestamps, _together(found.erased, named)
    )


def _forget_event(
    core: Core, events: EventsFile, source: _Source, output: _Output, found: Found, end: int
) -> Found:
    """Write what is left of an event that is forgotten: as many lines, almost nothing in them."""
    old, seq = found.envelope, found.envelope.seq
    salt, digest = line_salt(core.store_id, seq), Digest()
    places: list[tuple[int, int, int]] = []
    try:
        for offset, size, _ in found.lines:
            digest.add(_line(core, events, source, offset, size, seq)[:-1])
        of_event = digest.event(old)
        for offset, size, _ in found.lines:
            line = _line(core, events, source, offset, size, seq)[:-1]
            line = forget_line(line, end, of_event, salt)
            places.append((output.end, len(line), 0))
            output.add(line + b"\n")
    except _CANNOT as error:
        where = found.lines[0][0]
        raise core.damaged(events, LogReason.FRAME_CONTENT, str(error), where, seq) from error
    stub = forgotten(StoredEvent(old, Erased(b"")), end).envelope
    return Found(stub, tuple(places), found.chain, None, erased=True)


def _line(
    core: Core, events: EventsFile, source: _Source, offset: int, size: int, seq: int
) -> bytes:
    """A line with its newline, checked."""
    line = source.read(offset, size + 1)
    salt = line_salt(core.store_id, seq)
    if line[-1:] != b"\n" or len(line) != size + 1 or not is_sealed(line[:-1], salt):
        evidence = "a line with its checksum, got one that was changed after it was written"
        raise core.damaged(events, LogReason.FRAME_CHECKSUM, evidence, offset, seq)
    return line


def _together(before: BoolArray | bool, named: BoolArray | bool) -> BoolArray | bool:
    if isinstance(before, bool) or isinstance(named, bool):
        return before if named is False else named
    return np.logical_or(before, named)


def read_back(core: Core, events: EventsFile, written: Written) -> None:
    """Compare the new file, as the system gives it back, with what it must hold.

    Raises:
        LogWriteFailed: It holds something else.
        LogReadFailed: The system could not read.

    Cost: O(bytes): each line is parsed; each event that was changed is hashed.
    """
    first_seq = events.first_seq
    batch = Batch(first_seq, core.time_before(first_seq))
    waiting = iter(written.found)
    start, digest, chain = written.found[0].lines[0][0], Digest(), core.chain_before(first_seq)
    try:
        for offset, line in _lines(core, written, start):
            seq = batch.seq
            fields = parse_line(line, line_salt(core.store_id, seq))
            if fields is None:
                raise ValueError(f"a line of event {seq}, got other bytes at {offset}")
            if seq in written.changed:
                digest.add(line)
            batch.add(fields, offset, len(line))
            if batch.seq != seq and seq in written.changed:
                envelope, after = batch.taken[-1].envelope, batch.taken[-1].chain
                if digest.chain(chain, envelope) != after:
                    raise ValueError(f"the chain value of event {seq}, got another")
                digest = Digest()
            if batch.seq != seq:
                chain = batch.taken[-1].chain
            if batch.is_whole:
                for one in batch.taken:
                    _compare(next(waiting), one)
                batch = Batch(batch.seq, batch.time_ns)
        if batch.line_count or next(waiting, None) is not None:
            raise ValueError("all of its events, got fewer")
    except _CANNOT as error:
        raise _not_as_written(written.path, error) from error


def _compare(wanted: Found, found: Found) -> None:
    same = (wanted.envelope, wanted.lines, wanted.chain) == (
        found.envelope,
        found.lines,
        found.chain,
    )
    if not same or np.any(np.not_equal(wanted.erased, found.erased)):
        raise ValueError(f"event {wanted.envelope.seq} as it was written, got another")


def _lines(core: Core, written: Written, start: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their offsets, without their newlines."""
    at, rest = start, b""
    while at + len(rest) < written.end:
        offset = at + len(rest)
        size = min(COPY_BYTES, written.end - offset)
        data = read_exactly(core.fs.pread, written.file.fd, size, offset)
        if len(data) != size:
            raise ValueError(f"{written.end} bytes, got {offset + len(data)}")
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield at, line
            at += len(line) + 1
    if rest:
        raise ValueError("a newline at its end, got none")


def _not_as_written(path: Path, error: Exception) -> LogWriteFailed:
    return LogWriteFailed(
        f"read back: expected {error} ({path}); the store is as it was; look at the disk, then "
        "compact again",
        reason=LogReason.WRITE_FAILED,
        path=path,
    )
