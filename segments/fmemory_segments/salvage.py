"""Salvaging a folder of segments: every event that can be told to be as it was written.

Opening and `verify` stop believing where something is wrong. Here everything is believed that its
own checksums vouch for, and nothing else: a frame behind a damaged one, a file whose header is
lost, a row beside a damaged row. Nothing is written, not even a lock is taken; nobody else should
write meanwhile. docs/repair.md owns the rules, docs/format.md the bytes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from fmemory_segments._catalog import TIP_NAME, read_manifest, reading, sort_names
from fmemory_segments._manifest import Manifest, manifest_name
from fmemory_segments._salvage_file import SalvagedFile, open_file
from fmemory_segments._salvage_rows import completed_rows
from fmemory_segments._salvage_types import Harm, Salvaged, Trouble, Witness
from fmemory_segments._tip import TIP_BYTES, damaged_slots, parse_tip
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import LogError
from fmemory_segments.event import Rows
from fmemory_segments.filesystem import FileSystem
from fmemory_segments.log import Log

__all__ = ["Found", "Harm", "Salvaged", "SegmentSalvage", "Trouble", "Witness"]

DAMAGED: Final = "the manifest is damaged; all files of events were read"
Found: TypeAlias = Salvaged | Trouble | Witness


class SegmentSalvage:
    """What can be read of a folder of segments, whether it opens or not.

    Args:
        fs: The file system.
        path: The folder.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path

    def found(self, *, payloads: bool = True) -> Iterator[Found]:
        """Events by seq, each once, with what is wrong and what the store says of itself between.

        Args:
            payloads: False: envelopes only; payloads are not looked at, and come as lost.

        Raises:
            LogReadFailed: The folder cannot be listed.

        Cost: O(bytes). Memory of one frame at a time, in compacted files also of their rows' places
            and of some blocks.
        """
        with reading(self._path):
            listing = sort_names(self._fs.list_names(self._path))
        synced_seq = 0
        for one in self._tip():
            if isinstance(one, Witness):
                synced_seq = one.seq
            yield one
        for name in listing.foreign:
            yield Trouble("a file that is not of the log was left alone", file=name, lost=False)
        files = []
        for segment in listing.segments:
            try:
                files.append(open_file(self._fs, self._path, segment))
            except OSError as error:
                is_last = segment == listing.segments[-1]
                problem = f"the file cannot be read: {error}"
                yield Trouble(problem, str(segment), 0, segment.base_seq, hides_end=is_last)
        yield from self._own(files)
        manifest = None
        for number in listing.manifests:
            read = self._manifest(number)
            if isinstance(read, Manifest):
                manifest = read
            else:
                yield read
        if manifest is not None:
            for listed in manifest.segments:
                yield Witness(listed.last_seq, listed.chain, manifest.name)
        for file in files:
            file.is_held = _is_held(file, manifest)
        last = max((one.order for one in files), default=None)
        for file in files:
            file.is_last = file.order == last
        yield from _Merge(files, synced_seq, payloads=payloads).found()
        if payloads:
            yield from self._head()

    def _manifest(self, number: int) -> Manifest | Trouble:
        name = manifest_name(number)
        try:
            read = read_manifest(self._fs, self._path, number)
        except (LogError, OSError) as error:
            return Trouble(f"the manifest cannot be read: {error}", name, lost=False)
        return read if isinstance(read, Manifest) else Trouble(DAMAGED, name, lost=False)

    def _head(self) -> Iterator[Witness]:
        """The head of the store, if it opens and every event in it is whole."""
        try:
            with Log.open(self._path, fs=self._fs, read_only=True, allow_network=True) as log:
                head = log.head()
        except LogError:
            return  # What is wrong was told where it stands.
        yield Witness(head.seq, head.chain, is_head=True)

    def _tip(self) -> Iterator[Trouble | Witness]:
        path = self._path / TIP_NAME
        try:
            if self._fs.kind(path) is None:
                return
            fd = self._fs.open_file(path, write=False, create=False)
            try:
                data = read_exactly(self._fs.pread, fd, TIP_BYTES, 0)
            finally:
                self._fs.close(fd)
        except OSError as error:
            yield Trouble(f"the witness cannot be read: {error}", TIP_NAME, lost=False)
            return
        for offset in damaged_slots(data):
            yield Trouble("a slot of the witness is damaged", TIP_NAME, offset, lost=False)
        tip = parse_tip(data)
        if not tip.counter and data.strip(b"\0"):
            problem = "the witness of what was acknowledged is damaged"
            yield Trouble(problem, TIP_NAME, 0, lost=False, hides_end=True)
        if tip.synced_seq:
            yield Witness(tip.synced_seq, None, TIP_NAME)

    def _own(self, files: list[SalvagedFile]) -> Iterator[Trouble]:
        """Leave out the files of other stores, in place."""
        ids = Counter(one.header.store_id for one in files if one.header is not None)
        if len(ids) < 2:
            return
        own = ids.most_common(1)[0][0]
        newest = files[-1]
        for one in list(files):
            if one.header is not None and one.header.store_id != own:
                files.remove(one)
                one.close()
                problem = "the file belongs to another store and was left out"
                yield Trouble(problem, one.name, 0, hides_end=one is newest)


def _is_held(file: SalvagedFile, manifest: Manifest | None) -> bool:
    """Whether a file is one of those that hold the log, as far as is known."""
    is_compacted = file.header is not None and file.header.is_compacted
    if manifest is None:
        return not is_compacted
    listed = any(one.name == file.name for one in manifest.segments)
    return listed or (file.order[0] > manifest.last_seq and not is_compacted)


@dataclass(slots=True)
class _Source:
    """A file on its way through the merge; `event` is the next that it has."""

    file: SalvagedFile
    items: Iterator[Found]
    event: Salvaged | None = None


class _Merge:
    """The events of all files by seq.

    Files of one range may stand side by side: a compaction, or the move of a doubtful tail, that
    was cut short. An event that two have is taken from a file that holds the log, else from the
    one that was written later; what is lost there is taken from the others.
    """

    def __init__(self, files: list[SalvagedFile], synced_seq: int, *, payloads: bool) -> None:
        self._files = sorted(files, key=lambda one: one.order, reverse=True)
        self._synced_seq = synced_seq
        self._payloads = payloads
        self._open: list[tuple[int, int, _Source]] = []
        self._number = 0

    def found(self) -> Iterator[Found]:
        try:
            yield from self._merged()
        finally:
            for file in self._files:
                file.close()
            for _, _, source in self._open:
                source.file.close()

    def _merged(self) -> Iterator[Found]:
        while self._files or self._open:
            while self._files and (not self._open or self._files[-1].first_seq <= self._open[0][0]):
                file = self._files.pop()
                source = _Source(file, file.found(self._synced_seq, payloads=self._payloads))
                yield from self._advance(source)
            if not self._open:
                continue
            seq = self._open[0][0]
            same: list[_Source] = []
            while self._open and self._open[0][0] == seq:
                same.append(heapq.heappop(self._open)[2])
            events = [one.event for one in sorted(same, key=_worth) if one.event is not None]
            yield _completed(events)
            for source in same:
                yield from self._advance(source)

    def _advance(self, source: _Source) -> Iterator[Trouble | Witness]:
        """Move a source to its next event; what lies between is given out."""
        before = 0 if source.event is None else source.event.seq
        for one in source.items:
            if not isinstance(one, Salvaged):
                yield one
            elif one.seq <= before:
                yield Trouble(
                    f"event {one.seq} stands behind event {before}, and was left out",
                    source.file.name,
                    one.offset,
                    lost=False,
                )
            else:
                source.event = one
                self._number += 1
                heapq.heappush(self._open, (one.seq, self._number, source))
                return
        source.file.close()


def _worth(source: _Source) -> tuple[bool, tuple[int, ...]]:
    """Smaller for the file whose event is to be taken."""
    return not source.file.is_held, tuple(-one for one in source.file.order)


def _completed(events: list[Salvaged]) -> Salvaged:
    """The first of these, which are one event, with what it lost taken from the others."""
    best = events[0]
    for other in events[1:]:
        if not best.harm:
            break
        mine, its = best.event.payload, other.event.payload
        if other.event.envelope != best.event.envelope:
            continue
        if isinstance(mine, Rows) and isinstance(its, Rows):
            best = completed_rows(best, other)
        elif not other.harm:
            best = other
    return best
