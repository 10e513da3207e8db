"""Which segments an open log uses: reading all of them, and following what a compaction replaced.

A compaction changes no event, seq or loc, so following it replaces `Segment` objects and nothing
else; what stays is kept as it is. No lock of the log is needed: where a file vanishes under the
hands of a reader, the folder says which one took its place. Callers hold the tail lock.
"""

from __future__ import annotations

from fmemory_segments._catalog import (
    LISTINGS_MAX,
    Listing,
    Vanished,
    list_store,
    missing_file,
)
from fmemory_segments._core import Core, Segment
from fmemory_segments._load import Loaded, Loader, check_listed, check_place, load_sealed
from fmemory_segments.errors import LogCorrupt, LogError, LogReason


def adopt(core: Core, *, synced_seq: int) -> Loaded:
    """Read all segments of the folder, and use them from now on.

    Args:
        synced_seq: What TIP said was on disk before anything was read.

    Raises:
        LogCorrupt: Damage, a missing segment, or fewer events than this handle has read.
        UnsupportedFormat: A newer version wrote one.
        LogReadFailed: The system could not read.
    """
    listing = list_store(core.fs, core.path)
    for attempt in range(LISTINGS_MAX):
        if not listing.segments:
            raise lost(core, max(synced_seq, core.head_seq))
        try:
            loaded = Loader(core, synced_seq=synced_seq).load(listing)
            break
        except (Vanished, LogCorrupt) as error:
            listing = _listed_again(core, listing, error, is_last=attempt == LISTINGS_MAX - 1)
    if loaded.head_seq < core.head_seq:
        raise went_back(core, loaded.head_seq)
    core.store_id = loaded.segments[0].header.store_id
    core.streams, core.recent = loaded.streams, loaded.recent
    core.time_ns = loaded.time_ns
    core.manifest = listing.manifest
    core.set_segments(tuple(loaded.segments))
    core.head_seq = loaded.head_seq
    return loaded


def renew(core: Core) -> bool:
    """Use the segments that hold now, up to the one that was read last. Under the tail lock.

    Returns:
        False if that one was replaced as well, which happens to a handle that has read nothing for
        a long time: all segments must be read anew.

    Raises:
        LogCorrupt: A segment of the new generation is missing or damaged.
        LogReadFailed: The system could not read.

    Cost: O(columns) of the segments that are new.
    """
    listing = list_store(core.fs, core.path)
    for attempt in range(LISTINGS_MAX):
        try:
            segments = _replaced(core, listing)
            break
        except (Vanished, LogCorrupt) as error:
            listing = _listed_again(core, listing, error, is_last=attempt == LISTINGS_MAX - 1)
    if segments is None:
        return False
    core.manifest = listing.manifest
    core.set_segments(segments)
    core.recent.clear()  # It knows events as they were, also those that are forgotten by now.
    core.keep_files()
    core.recent.clear()  # What an event says may be less now.
    return True


def lost(core: Core, synced_seq: int) -> LogCorrupt:
    """The error for a log that ends before what TIP says was on disk."""
    where = core.active.path if core.segments else core.path
    return LogCorrupt(
        f"log end: expected events up to seq {synced_seq}, as TIP says were on disk, got "
        f"{core.head_seq} ({where}); no file was changed; put the missing files back, or "
        "restore a backup",
        reason=LogReason.ACKNOWLEDGED_LOSS if core.segments else LogReason.MISSING_SEGMENT,
        path=where,
        offset=core.active.end if core.segments else None,
        first_seq=core.head_seq + 1,
        last_seq=synced_seq,
    )


def went_back(core: Core, head_seq: int | None) -> LogCorrupt:
    """The error for a log that ends before what this handle has read; None = a shorter file."""
    got = "a shorter file" if head_seq is None else f"seq {head_seq}"
    return LogCorrupt(
        f"log end: expected events up to seq {core.head_seq}, which this handle has read, got "
        f"{got} ({core.active.path}); no file was changed; open the log again to see what is "
        "left",
        reason=LogReason.HEAD_WENT_BACK,
        path=core.active.path,
        offset=core.active.end,
        first_seq=None if head_seq is None else head_seq + 1,
        last_seq=core.head_seq,
    )


def _replaced(core: Core, listing: Listing) -> tuple[Segment, ...] | None:
    """The segments of a listing up to the active one; None if that is not among them."""
    known = {segment.path.name: segment for segment in core.segments}
    listed = {one.name: one for one in listing.manifest.segments} if listing.manifest else {}
    found: list[Segment] = []
    if core.active.path.name not in map(str, listing.segments):
        return None
    for name in listing.segments:
        segment = known.get(str(name))
        if segment is None:
            segment = load_sealed(core, name)
            if str(name) in listed:
                check_listed(segment, listed[str(name)])
        check_place(segment, found[-1] if found else None)
        found.append(segment)
        if segment is core.active:
            return tuple(found)
    return None


def _listed_again(
    core: Core, listing: Listing, error: Vanished | LogError, *, is_last: bool
) -> Listing:
    """The folder as it is now, if a compaction changed it meanwhile; else the error is true."""
    again = list_store(core.fs, core.path)
    if is_last or again == listing:
        if isinstance(error, Vanished):
            raise missing_file(error.path) from error
        raise error
    return again
