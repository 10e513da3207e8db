"""Cursors: opaque, bound to the store and to what was asked for, and exact.

A cursor holds the place of the last item of a page, so it stays right when items are deleted or
inserted between pages, and when the store is reopened. It is checked before it is believed.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import struct

from fmemory.errors import InvalidCursor, Reason

_LAYOUT = struct.Struct("<B8s8sdQ")
_VERSION = 1
_CHECK_BYTES = 4
_TEXT_CHARACTERS = 2 * (_LAYOUT.size + _CHECK_BYTES)


class CursorCodec:
    """Makes and reads the cursors of one store.

    >>> codec = CursorCodec(bytes(16))
    >>> codec.decode(codec.encode("records", ("a",), 1.5, 65536), "records", ("a",))
    (1.5, 65536)
    """

    def __init__(self, store_id: bytes) -> None:
        self._store = store_id[:8]

    def encode(self, what: str, labels: tuple[str, ...], position: float, place: int) -> str:
        """The cursor after the item at (position, place)."""
        body = _LAYOUT.pack(_VERSION, self._store, _scope(what, labels), position, place)
        return (body + _check(body)).hex()

    def decode(self, cursor: str, what: str, labels: tuple[str, ...]) -> tuple[float, int]:
        """The position and place that a cursor holds.

        Raises:
            InvalidCursor: It is malformed, of another store, or of another question.
        """
        try:
            data = bytes.fromhex(cursor)
        except ValueError as error:
            raise InvalidCursor("expected the text of a cursor", cursor=cursor) from error
        body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if (
            len(cursor) != _TEXT_CHARACTERS  # `fromhex` passes over spaces
            or check != _check(body)
            or body[0] != _VERSION
        ):
            raise InvalidCursor("expected a whole, unchanged cursor", cursor=cursor)
        _, store, scope, position, place = _LAYOUT.unpack(body)
        if store != self._store:
            raise InvalidCursor(
                "expected a cursor of this store", cursor=cursor, reason=Reason.CURSOR_FOREIGN
            )
        if scope != _scope(what, labels):
            raise InvalidCursor(
                f"expected a cursor of {what} {labels!r}",
                cursor=cursor,
                reason=Reason.CURSOR_FOREIGN,
            )
        return position, place


@functools.lru_cache(maxsize=1024)
def _scope(what: str, labels: tuple[str, ...]) -> bytes:
    digest = hashlib.sha256(what.encode())
    for label in labels:
        data = label.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()[:8]


def _check(body: bytes) -> bytes:
    return binascii.crc32(body).to_bytes(_CHECK_BYTES, "little")
