"""The moment a compaction takes effect: names, then the manifest that lists them. Under the lock.

Before the manifest has its name, everything can be taken back. From then on nothing is: others may
have read it already, and while it is unknown whether it is on disk both generations stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from fmemory_segments._catalog import (
    HALF_COMPACTED,
    Listing,
    half_made,
    list_store,
    read_manifest_bytes,
    sync_folder,
    write_all,
    writing,
)
from fmemory_segments._choose import Share
from fmemory_segments._core import Core, Segment
from fmemory_segments._manifest import (
    ListedSegment,
    Manifest,
    SegmentName,
    manifest_name,
    pack_manifest,
)
from fmemory_segments._outputs import Output, discard, next_manifest_no
from fmemory_segments.errors import LogError, LogReason, LogWriteFailed
from fmemory_segments.event import ZERO_CHAIN


def publish(
    core: Core,
    groups: Sequence[Sequence[Share]],
    outputs: Sequence[Sequence[Output]],
    *,
    upto: int,
) -> list[str]:
    """Have new segments hold in place of groups of old ones. Under both locks, caught up.

    Args:
        groups: What is replaced; all of it is among the segments in use.
        outputs: By group, what holds from now on: on disk under names of `tmp/`.
        upto: The compaction took out data of events up to here only.

    Returns:
        What failed after it took effect, as sentences.

    Raises:
        StoreFull, LogWriteFailed, LogReadFailed: What was there holds. Where it is unknown whether
            the new manifest is on disk, both generations stay, and either may be found after a
            power cut; the next compaction decides.
    """
    listing = list_store(core.fs, core.path)
    made = [output for part in outputs for output in part]
    try:
        with writing(core.path):
            _give_names(core, made)
            manifest = _manifest(core, listing, groups, outputs, upto=upto)
    except BaseException:
        discard(core, made)
        raise
    _write_manifest(core, manifest, made)
    if core.tip is not None:
        try:
            core.tip.tell_manifest(manifest.number)
        except OSError as error:  # Others find out when they miss a file, or at the next roll.
            return [f"TIP could not be told of manifest {manifest.number}: {error}"]
    return []


def _give_names(core: Core, made: Sequence[Output]) -> None:
    """Give new segments names that were never used, and have those on disk."""
    for output in made:
        target = core.path / str(output.name)
        if core.fs.kind(target) is not None:
            raise FileExistsError(f"segment name: expected it to be unused, got a file ({target})")
        core.fs.rename(output.path, target)
        output.path = target
    sync_folder(core.fs, core.path)


def _manifest(
    core: Core,
    listing: Listing,
    groups: Sequence[Sequence[Share]],
    outputs: Sequence[Sequence[Output]],
    *,
    upto: int,
) -> Manifest:
    """What holds from now on: what held, with each group replaced by its outputs."""
    replaced = [share.segment for group in groups for share in group]
    gone = {segment.path for segment in replaced}
    assert gone <= {segment.path for segment in core.segments}, "nobody else compacts"
    made = [output for part in outputs for output in part]
    last_seq = max(
        [segment.next_seq - 1 for segment in replaced]
        + ([listing.manifest.last_seq] if listing.manifest is not None else [])
    )
    listed = [_listed(segment) for segment in core.segments[:-1] if segment.path not in gone]
    listed += [
        ListedSegment(
            str(output.name),
            output.header.base_seq,
            output.written.last_seq,
            output.written.size_bytes,
            output.written.chain,
        )
        for output in made
    ]
    listed.sort(key=lambda one: SegmentName(one.base_seq, one.last_seq))
    previous = listing.manifest
    return Manifest(
        number=next_manifest_no(core, listing),
        prev_number=previous.number if previous is not None else 0,
        prev_sha256=(
            sha256(read_manifest_bytes(core.fs, core.path, previous.number)).digest()
            if previous is not None
            else ZERO_CHAIN
        ),
        store_id=core.store_id,
        created_ns=core.options.clock(),
        segments=tuple(one for one in listed if one.base_seq <= last_seq),
        obsolete=(
            *(segment.path.name for segment in replaced),
            *(str(name) for name in listing.obsolete),
        ),
        frozen_seq=upto,
    )


def _listed(segment: Segment) -> ListedSegment:
    """A segment that stays as it is."""
    return ListedSegment(
        segment.path.name,
        segment.base_seq,
        segment.next_seq - 1,
        segment.end,
        segment.chain or segment.header.prev_chain,
    )


def _write_manifest(core: Core, manifest: Manifest, made: Sequence[Output]) -> None:
    """Write a manifest; when this returns it is on disk and holds."""
    fs, target = core.fs, core.path / manifest_name(manifest.number)
    may_hold = False
    try:
        with writing(target), half_made(fs, core.path, prefix=HALF_COMPACTED) as (fd, path):
            write_all(fs, fd, pack_manifest(manifest), 0)
            fs.sync(fd)
            may_hold = True
            fs.rename(path, target)
            sync_folder(fs, core.path)
    except BaseException as error:
        if not may_hold or _is_absent(core, target):
            discard(core, made)
            raise
        # Others may use it already. Nothing that it replaces was removed, so it does no harm.
        for output in made:
            output.may_hold = True
        if isinstance(error, LogError):
            raise _in_doubt(error, target) from error
        raise


def _is_absent(core: Core, path: Path) -> bool:
    """True if it is known that there is no such file."""
    with suppress(OSError):
        return core.fs.kind(path) is None
    return False


def _in_doubt(error: LogError, path: Path) -> LogWriteFailed:
    return LogWriteFailed(
        f"manifest: expected to have it on disk, got a failure ({path}): {error}; the "
        "compaction took effect, but perhaps not for good: what it replaced was kept, and either "
        "holds all events; compact again",
        reason=LogReason.SYNC_FAILED,
        path=path,
    )
