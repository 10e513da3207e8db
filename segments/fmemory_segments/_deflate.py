"""Compressed parts of frames: the meta of a LEDGER, the columns of a compacted segment's SEAL.

Both are full of ids, and of zeros where rows were erased. What comes out is bounded before it is
made, as a few bytes can say that they are gigabytes. This module does no I/O.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from fmemory_segments._frame import Buffer, FrameDamage

_LEVEL = 6


def deflate(parts: Iterable[Buffer]) -> bytes:
    """The parts back to back as one zlib stream (RFC 1950).

    Cost: about 20 ms for 1 MB.
    """
    packer = zlib.compressobj(_LEVEL)
    return b"".join([*map(packer.compress, parts), packer.flush()])


def inflate(packed: Buffer, size_max: int, name: str) -> bytes:
    """What was deflated.

    Args:
        packed: The whole stream, and nothing behind it.
        size_max: The most that may come out.
        name: Of the part of the frame, for the error.

    Raises:
        FrameDamage: It is not one stream, or one of more bytes.

    Cost: about 3 ms for 1 MB; never more memory than `size_max` and some.
    """
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(packed, size_max + 1)
    except zlib.error as error:
        raise FrameDamage("content", f"{name}: {error}") from error
    if len(content) > size_max:
        raise FrameDamage("content", f"{name}: expected at most {size_max} bytes, deflated")
    if not unpacker.eof or unpacker.unused_data:
        raise FrameDamage("content", f"{name}: expected one deflated stream, got other bytes")
    return content
