"""Setting the end of a segment aside: a copy in `quarantine/`, then the cut.

Nothing that was written is removed before a copy of it is on disk. Runs under the exclusive lock.
"""

from __future__ import annotations

import secrets
from typing import Final

from fmemory_segments._catalog import sync_folder, write_all
from fmemory_segments._core import Core, Segment
from fmemory_segments._walk import read_exactly
from fmemory_segments.recovery import RecoveryReport

COPY_BYTES: Final = 1 << 24


def cut(core: Core, segment: Segment, offset: int, seq: int, *, torn: bool = True) -> None:
    """Copy a segment's bytes from an offset on to the quarantine, then cut them off.

    Args:
        torn: An append was cut short there, which is reported.

    Raises:
        OSError: Nothing was changed, or the segment was cut and it is unknown whether on disk.
    """
    size = core.fs.size(segment.fd)
    end = used_end(core, segment, offset, size)
    name = None
    if end > offset:
        name = _quarantine(core, segment, offset, end)
    core.fs.truncate(segment.fd, offset)
    core.fs.sync(segment.fd)
    segment.zero_end = offset
    if name is not None and torn:
        found = RecoveryReport(end - offset, segment.path.name, offset, seq, name, applied=True)
        report(core, found)


def used_end(core: Core, segment: Segment, start: int, size: int) -> int:
    """Offset behind the last byte of a file that is not zero; `start` if there is none."""
    end = size
    while end > start:
        at = max(start, end - COPY_BYTES)
        data = read_exactly(core.fs.pread, segment.fd, end - at, at)
        used = len(data.rstrip(b"\0"))
        if used:
            return at + used
        end = at
    return start


def report(core: Core, found: RecoveryReport) -> None:
    """Have `health()` tell of a torn tail, once."""
    if found not in core.recoveries:
        core.recoveries.append(found)
        done = f"was moved to quarantine/{found.quarantine}" if found.applied else "was left"
        core.note(
            f"{found.file}: a crash cut an append short at byte {found.offset}; what there "
            f"was of it, {found.torn_bytes} bytes that nobody was told of, {done}"
        )


def _quarantine(core: Core, segment: Segment, start: int, end: int) -> str:
    """Copy bytes of a segment to a new file; its name."""
    is_new = core.fs.kind(core.quarantine) is None
    core.fs.make_folders(core.quarantine)
    name = f"{segment.path.stem}-{start:012}-{secrets.token_hex(4)}.tail"
    fd = core.fs.create_file(core.quarantine / name)
    try:
        for at in range(start, end, COPY_BYTES):
            size = min(COPY_BYTES, end - at)
            data = read_exactly(core.fs.pread, segment.fd, size, at)
            write_all(core.fs, fd, data, at - start)
        core.fs.sync(fd)
    finally:
        core.fs.close(fd)
    sync_folder(core.fs, core.quarantine)
    if is_new:
        sync_folder(core.fs, core.path)
    return name
