"""Compaction: sealed segments are written anew without what is dead, while others go on.

The order is what makes it safe, and docs/format.md section 9 owns it: new files are whole, on disk
and read back before they get a name; they mean nothing until a manifest that lists them is on disk,
which is the moment the compaction takes effect; only then goes what they replace. The lock of the
log is held for the roll and for that moment. A stop at any step leaves one generation that holds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fmemory_segments._catalog import (
    HALF_COMPACTED,
    HALF_MADE,
    Listing,
    list_store,
    reading,
    writing,
)
from fmemory_segments._choose import Share, check_erasure, choose, room_needed, survey
from fmemory_segments._core import Core, LastCompaction, Segment
from fmemory_segments._obsolete import (
    compact_lock,
    empty_quarantine,
    empty_tmp,
    forget_tmp,
    remove_replaced,
    replaced_files,
)
from fmemory_segments._outputs import Output, discard, next_generation, write_group
from fmemory_segments._publish import publish
from fmemory_segments._tail import Tail
from fmemory_segments._writer import Writer
from fmemory_segments.compaction import Compaction, Erasure
from fmemory_segments.errors import LogCorrupt, LogError, LogReason, StoreBusy, StoreFull


class _Made(NamedTuple):
    """What was written before it takes effect.

    Attributes:
        groups: The segments that were written anew, as they were.
        outputs: By group, what they became.
        damage: Why others were left as they are.
    """

    groups: list[list[Share]]
    outputs: list[list[Output]]
    damage: list[LogCorrupt]


class Compactor:
    """Compactions of one handle.

    Args:
        core: The open log.
        tail: Keeps it up to date.
        writer: Has the lock of the log.
    """

    def __init__(self, core: Core, tail: Tail, writer: Writer) -> None:
        self._core = core
        self._tail = tail
        self._writer = writer
        self._turn = threading.Lock()

    def compact(self, erasure: Erasure, timeout_s: float | None) -> Compaction:
        """Take data out, and write what lives side by side.

        Raises:
            As `Log.compact`.
        """
        core = self._core
        core.check_writable()
        timeout_s = core.options.lock_timeout_s if timeout_s is None else timeout_s
        try:
            with self._alone(timeout_s), writing(core.path):
                done, damage = self._compact(erasure, timeout_s)
            if damage:
                raise damage[0]
        except BaseException as error:
            failure = f"{type(error).__name__}: {error}"
            core.last_compaction = LastCompaction(core.options.clock(), failure)
            raise
        core.last_compaction = LastCompaction(core.options.clock(), "")
        return done

    @contextmanager
    def _alone(self, timeout_s: float) -> Iterator[None]:
        """Nobody else compacts for the length of a block, in this process or another."""
        if not self._turn.acquire(timeout=max(timeout_s, 0)):
            raise StoreBusy(
                f"compaction: expected none of this handle, but another thread is at one "
                f"({self._core.path}); nothing was written; wait for that one",
                reason=LogReason.LOCK_TIMEOUT,
                path=self._core.path,
            )
        try:
            with compact_lock(self._core, timeout_s):
                yield
        finally:
            self._turn.release()

    def _compact(self, erasure: Erasure, timeout_s: float) -> tuple[Compaction, list[LogCorrupt]]:
        core = self._core
        with self._writer.exclusive(timeout_s), reading(core.path):
            self._begin(erasure)
            listing = list_store(core.fs, core.path)
            segments = core.segments
        before = _size(core, segments)
        made = self._write(listing, segments, erasure)
        notices: list[str] = []
        if made.groups:
            try:
                with self._writer.exclusive(timeout_s):
                    notices += publish(core, made.groups, made.outputs, upto=erasure.upto)
            except BaseException:
                discard(core, [output for outputs in made.outputs for output in outputs])
                raise
            notices += self._use()
        pending = self._clear_away(erasure, timeout_s, notices)
        outputs = [output for outputs in made.outputs for output in outputs]
        done = Compaction(
            erasure.upto,
            sum(output.written.erased_rows for output in outputs),
            sum(output.written.erased_events for output in outputs),
            before,
            _size(core, core.segments),
            tuple(pending),
            tuple(notices),
            sum(output.written.forgotten_events for output in outputs),
        )
        return done, made.damage

    def _begin(self, erasure: Erasure) -> None:
        """Under the lock: check what is asked and whether there is room, and seal what counts."""
        core = self._core
        check_erasure(core, erasure)
        groups = choose(survey(core, core.segments, erasure))
        if groups:
            self._check_room(room_needed(groups))
        empty_tmp(core, HALF_MADE)
        empty_tmp(core, HALF_COMPACTED)
        if core.active.index.event_count and core.active.base_seq <= erasure.upto:
            self._writer.roll()

    def _check_room(self, needed: int) -> None:
        core = self._core
        free = core.fs.free_bytes(core.path)
        if free < needed:
            raise StoreFull(
                f"compaction: expected room for {needed} bytes, got {free} ({core.path}); nothing "
                "was written; make room: what is replaced is only removed afterwards",
                reason=LogReason.NO_SPACE,
                path=core.path,
            )

    def _write(self, listing: Listing, segments: tuple[Segment, ...], erasure: Erasure) -> _Made:
        """Write what the segments become, group by group; those that are damaged stay.

        Where one is damaged, nothing is forgotten in any.
        """
        core = self._core
        made = _Made([], [], [])
        shares = survey(core, segments[:-1], erasure)
        generation = next_generation(core, listing)
        waiting = choose(shares)[::-1]
        try:
            while waiting:
                group = waiting.pop()
                try:
                    outputs = write_group(core, group, erasure, generation)
                except LogCorrupt as error:
                    if len(erasure.forget):
                        # What a deletion took may be in what stays: the deletion must stay, too.
                        discard(core, [output for outputs in made.outputs for output in outputs])
                        kept = Erasure(erasure.upto, erasure.locs, erasure.seqs)
                        return self._write(listing, segments, kept)
                    made.damage.append(error)
                    waiting += _around(group, error)[::-1]
                    continue
                made.groups.append(group)
                made.outputs.append(outputs)
        except BaseException:
            discard(core, [output for outputs in made.outputs for output in outputs])
            raise
        return made

    def _use(self) -> list[str]:
        """Use the new generation in this handle; it was told, so a failure is a notice."""
        try:
            self._tail.use_generation()
        except LogError as error:
            return [f"the compaction took effect, but this handle must read it anew: {error}"]
        return []

    def _clear_away(self, erasure: Erasure, timeout_s: float, notices: list[str]) -> list[str]:
        """Remove what was replaced, and what may still hold what was erased; what is left to do."""
        core = self._core
        pending: list[str] = []
        try:
            with reading(core.path):
                listing = list_store(core.fs, core.path)
                paths = replaced_files(core, listing)
                pending += remove_replaced(core, listing)
                # What was written under a name of `tmp/` must not come back under it either.
                pending += forget_tmp(core)
            notices += [f"{path.name} was replaced and removed" for path in paths]
            if len(erasure.locs) or len(erasure.seqs):
                with self._writer.exclusive(timeout_s), reading(core.path):
                    names, failures = empty_quarantine(core)
                notices += [f"quarantine/{name} was removed" for name in names]
                pending += failures
        except LogError as error:
            pending.append(
                f"files that may still hold what was erased could not be removed: {error}; "
                "compact again"
            )
        return pending


def _around(group: list[Share], error: LogCorrupt) -> list[list[Share]]:
    """The groups that are left of one without the segment that is damaged."""
    at = next((n for n, share in enumerate(group) if share.segment.path == error.path), None)
    if at is None:
        raise error
    return [part for part in (group[:at], group[at + 1 :]) if part]


def _size(core: Core, segments: tuple[Segment, ...]) -> int:
    """Bytes of segment files."""
    with reading(core.path):
        return sum(
            segment.end if segment.is_sealed else core.fs.size(segment.fd) for segment in segments
        )
