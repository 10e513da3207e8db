"""Files that were replaced under an open handle: by a compaction, after a failed sync, by a person.

A compaction gives a file another content under the same name: the same events, some of them without
their data. Whoever has the old file open reads what it read, and looks, before each answer, whether
the path still names it. If not, the new one must hold the events that were read; then their places
are taken from there. A place that was wrong all the same is found by the checksum of its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np

from fmemory.journals._jsonl.core import Core, Entry, EventsFile
from fmemory.journals._jsonl.file_bytes import FileBytes
from fmemory.journals._jsonl.scan import Found, scan
from fmemory.journals._jsonl.store import OpenedEvents, open_events
from fmemory_segments import FORGOTTEN
from fmemory_segments._catalog import reading
from fmemory_segments._walk import read_exactly
from fmemory_segments.event import BoolArray

COMPARE_BYTES: Final = 1 << 22


def fresh(core: Core, events: EventsFile, *, is_doubted: bool = False) -> bool:
    """Look whether the path still names this file, and take in the one that it names.

    Args:
        is_doubted: A line was not where it should be: look for it even if the file seems the same.

    Returns:
        True if the places of its events may be others now: look them up again.

    Raises:
        LogCorrupt: The file holds other events than were read.
        LogReadFailed: The system could not read.

    Cost: one system call; O(bytes of the file) if it was replaced.
    """
    with reading(events.path):
        if not is_doubted and core.fs.is_at(events.identity, events.path):
            return False
        with core.tail_lock:
            return go_on(core, events, is_doubted=is_doubted)


def look_again(core: Core) -> None:
    """Look at all files. Raises as `fresh`. Cost: one system call a file."""
    for events in core.files:
        fresh(core, events)


def each(core: Core, seqs: Iterable[int]) -> Iterator[Found]:
    """These events as the newest files have them: each file is looked at when its turn comes.

    Raises:
        As `fresh`.
    """
    looked = 0
    for seq in seqs:
        entry = core.entries[seq - 1]
        if entry.file.first_seq != looked:
            looked = entry.file.first_seq
            if fresh(core, entry.file):
                entry = core.entries[seq - 1]
        yield entry.found


def go_on(core: Core, events: EventsFile, *, is_doubted: bool = False) -> bool:
    """What `fresh` does, under the tail lock."""
    if core.file_at(events.first_seq) is not events:
        return True
    is_same = core.fs.is_at(events.identity, events.path)
    if is_same and not is_doubted:
        return False
    if core.fs.kind(events.path) is None:
        if events is core.active:
            raise core.went_back("the file that was read, got none", events.path)
        return False  # What is open, if it is, still holds what was read.
    opened = open_events(
        core.fs,
        core.path,
        events.first_seq,
        write=not core.options.read_only,
        store_id=core.store_id,
    )
    if not is_same and _begins_alike(core, events, opened):
        events.file, events.identity = opened.file, core.fs.identity(opened.file.fd)
        return False
    found = _located(core, events, opened)
    if found is None:
        if is_doubted and is_same:
            return False
        raise core.went_back("the events that were read, got others", events.path)
    _take(core, events, opened, found)
    return True


def _begins_alike(core: Core, events: EventsFile, opened: OpenedEvents) -> bool:
    """Whether the new file begins with the bytes of the old one, if that is open."""
    kept, pread = events.file, core.fs.pread
    if kept is None:
        return False
    end = events.end - events.lacks_newline
    for at in range(0, end, COMPARE_BYTES):
        size = min(COMPARE_BYTES, end - at)
        old, new = (read_exactly(pread, one.fd, size, at) for one in (kept, opened.file))
        if old != new:
            return False
    return True


def _located(core: Core, events: EventsFile, opened: OpenedEvents) -> list[Found] | None:
    """The events of the file that were read, where they are now; None if they are others."""
    known = core.entries_in(events)
    if opened.prev_chain != events.prev_chain:
        return None
    size = core.fs.size(opened.file.fd)
    start = opened.header_bytes
    seen = scan(
        FileBytes(partial(_read, core, opened), start, max(size - start, 0)),
        base=start,
        next_seq=events.first_seq,
        time_ns=core.time_before(events.first_seq),
        store_id=core.store_id,
        whole=True,
    ).events[: len(known)]
    if len(seen) < len(known):
        return None
    if not all(_is_same(old.found, new) for old, new in zip(known, seen, strict=True)):
        return None
    return [
        new
        if new.envelope.type == FORGOTTEN
        else Found(old.found.envelope, new.lines, new.chain, old.found.timestamps, new.erased)
        for old, new in zip(known, seen, strict=True)
    ]


def _read(core: Core, opened: OpenedEvents, offset: int, size: int) -> bytes:
    return read_exactly(core.fs.pread, opened.file.fd, size, offset)


def _is_same(old: Found, new: Found) -> bool:
    """Whether it is the same event, with no more data than before."""
    if new.envelope.type == FORGOTTEN and old.envelope.type != FORGOTTEN:
        return old.chain == new.chain and _place(old) == _place(new)
    if (old.envelope, old.chain) != (new.envelope, new.chain):
        return False
    if old.timestamps is None or new.timestamps is None:
        return old.timestamps is new.timestamps and (new.erased is not False or not old.erased)
    if old.timestamps.tobytes() != new.timestamps.tobytes():
        return False
    before, after = _mask(old), _mask(new)
    return bool((after | ~before).all())


def _place(found: Found) -> tuple[object, ...]:
    """What an event keeps when it is forgotten."""
    one = found.envelope
    return one.seq, one.stream, one.revision, one.recorded_at_ns


def _mask(found: Found) -> BoolArray:
    assert found.timestamps is not None
    if isinstance(found.erased, bool):
        return np.zeros(len(found.timestamps), np.bool_)
    return found.erased


def _take(core: Core, events: EventsFile, opened: OpenedEvents, found: list[Found]) -> None:
    end = opened.header_bytes
    if found:
        offset, size, _ = found[-1].lines[-1]
        end = offset + size + 1
    new = EventsFile(
        events.path,
        events.first_seq,
        events.prev_chain,
        opened.file,
        core.fs.identity(opened.file.fd),
        end,
        lacks_newline=end > core.fs.size(opened.file.fd),
    )
    core.replace(events, new, [Entry(new, one) for one in found])
