"""What is wrong with the folder of a store apart from its segments: TIP, manifests, other files."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from fmemory_segments._catalog import (
    TIP_NAME,
    Listing,
    Vanished,
    read_manifest_bytes,
)
from fmemory_segments._manifest import ListedSegment, manifest_name
from fmemory_segments._tip import TIP_BYTES, Tip, damaged_slots, parse_tip
from fmemory_segments._walk import read_exactly
from fmemory_segments.errors import LogReason
from fmemory_segments.event import Head
from fmemory_segments.filesystem import FileSystem
from fmemory_segments.finding import Finding


def check_tip(fs: FileSystem, folder: Path) -> tuple[Tip, list[Finding]]:
    """What TIP says, and what is wrong with it."""
    path = folder / TIP_NAME
    try:
        if fs.kind(path) is None:
            return Tip(), []
        fd = fs.open_file(path, write=False, create=False)
        try:
            data = read_exactly(fs.pread, fd, TIP_BYTES, 0)
        finally:
            fs.close(fd)
    except OSError as error:
        return Tip(), [Finding(LogReason.READ_FAILED, f"TIP: {error}", file=TIP_NAME)]
    tip = parse_tip(data)
    found = [
        Finding(
            LogReason.WITNESS,
            "TIP: expected a whole slot, got other bytes; the other slot holds, and the next "
            f"append writes this one anew ({TIP_NAME}, byte {offset})",
            damage=False,
            file=TIP_NAME,
            offset=offset,
        )
        for offset in damaged_slots(data)
    ]
    if tip.suspect_from:
        found.append(
            Finding(
                LogReason.UNSYNCED_TAIL,
                "sync: expected all events to be on disk, got a failed sync; those from "
                f"{tip.suspect_from} on are in doubt until the next append writes them anew "
                f"({TIP_NAME})",
                damage=False,
                file=TIP_NAME,
                first_seq=tip.suspect_from,
            )
        )
    return tip, found


def check_names(fs: FileSystem, folder: Path, listing: Listing, tip: Tip) -> list[Finding]:
    """Manifests that are not as written, and files that no reader needs."""
    found = [
        Finding(
            LogReason.FOREIGN_FILE,
            f"folder: expected files of the log, got another; it was left alone ({name})",
            damage=False,
            file=name,
        )
        for name in listing.foreign
    ]
    for name, evidence in listing.broken.items():
        found.append(
            Finding(
                LogReason.MANIFEST,
                f"manifest: expected {evidence}; the generation before it holds all events, and "
                f"the next compaction writes another ({name})",
                file=name,
            )
        )
    for segment in [*listing.obsolete, *listing.debris]:
        found.append(
            Finding(
                LogReason.MANIFEST,
                f"folder: expected segments that hold, got one that a compaction "
                f"{'replaced' if segment in listing.obsolete else 'never finished'}; the next "
                f"writer that opens removes it ({segment})",
                damage=False,
                file=str(segment),
                first_seq=segment.base_seq,
            )
        )
    return found + _check_manifests(fs, folder, listing, tip)


def check_listed(listed: ListedSegment, got: Head) -> list[Finding]:
    """A segment, whose last event this is, against what the manifest says of it."""
    if (got.seq, got.chain) == (listed.last_seq, listed.chain):
        return []
    return [
        Finding(
            LogReason.MANIFEST,
            f"manifest: expected events up to seq {listed.last_seq} with chain "
            f"{listed.chain.hex()}, got {got.seq} with {got.chain.hex()}; another file was put in "
            f"the place of this one ({listed.name})",
            file=listed.name,
            first_seq=listed.base_seq,
            last_seq=listed.last_seq,
        )
    ]


def _check_manifests(fs: FileSystem, folder: Path, listing: Listing, tip: Tip) -> list[Finding]:
    """The manifest that holds against the one before it, and against what TIP says."""
    manifest = listing.manifest
    newest = max(listing.manifests, default=0)
    if tip.manifest_no > newest:
        name = manifest_name(tip.manifest_no)
        return [
            Finding(
                LogReason.MANIFEST,
                f"manifest: expected number {tip.manifest_no}, as TIP says was on disk, got "
                f"{newest or 'none'}; an older generation holds, in which what was erased may be "
                f"back ({name})",
                file=name,
            )
        ]
    if manifest is None or manifest.prev_number not in listing.manifests:
        return []
    try:
        before = read_manifest_bytes(fs, folder, manifest.prev_number)
    except (OSError, Vanished):
        return []  # A compaction removes the ones that are not needed.
    if sha256(before).digest() == manifest.prev_sha256:
        return []
    name = manifest_name(manifest.prev_number)
    return [
        Finding(
            LogReason.MANIFEST,
            f"manifest: expected the one that {manifest.name} names, got other bytes; the newer "
            f"one holds ({name})",
            file=name,
        )
    ]
