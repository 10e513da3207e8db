"""LMDB through py-lmdb: records in key order under one cursor, decoded row by row.

The key is namespace, timestamp, seq, so that a scan is a walk of neighbouring leaves; a second
database leads from an id to that key. Values are handed out as bytes, not as buffers: a buffer ends
with its transaction, and copying the vector out of it costs more than the copy py-lmdb makes.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import numpy as np

from benchmarks.dataset import NAMESPACE
from benchmarks.side import Side, Vectors
from fmemory import MemoryRecord, Note

MAP_BYTES = 64 * 1024**3
PREFIX = "/".join(NAMESPACE).encode() + b"\0"

_PLACE = struct.Struct(">QQ")
_FLOAT = struct.Struct(">d")
_SIGN = 1 << 63
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class LmdbSide:
    """One environment of two databases; LMDB lets one write transaction in at a time."""

    def __init__(self, path: Path, *, dim: int, dtype: str, durable: bool) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._dim = dim
        self._dtype = np.dtype(dtype)
        self._width = dim * self._dtype.itemsize
        self._durable = durable
        self._environment = lmdb.open(
            str(path), map_size=MAP_BYTES, max_dbs=2, sync=durable, metasync=True
        )
        self._records = self._environment.open_db(b"records")
        self._ids = self._environment.open_db(b"ids")
        with self._environment.begin(db=self._records) as view:
            self._next_seq = 1 + int(view.stat()["entries"])

    def put(self, records: Sequence[MemoryRecord]) -> None:
        values = [self._value(record) for record in records]
        with self._lock, self._environment.begin(write=True) as change:
            for record, value in zip(records, values, strict=True):
                place = PREFIX + _place(record.note.timestamp, self._next_seq)
                self._next_seq += 1
                change.put(place, value, db=self._records)
                change.put(PREFIX + record.id.encode(), place, db=self._ids, overwrite=False)

    def pages(self, limit: int) -> Iterator[Sequence[MemoryRecord]]:
        start = PREFIX
        while True:
            with self._environment.begin(db=self._records) as view:
                cursor = view.cursor()
                if not cursor.set_range(start):
                    return
                # One loop without a call a row, which would cost a third more.
                width, dtype, dim = self._width, self._dtype, self._dim
                page: list[MemoryRecord] = []
                for value in islice(cursor.iternext(keys=False), limit):
                    timestamp, record_id, text, metadata, embedding_id = _decode(value[width:])
                    note = Note(record_id, text, timestamp, metadata)
                    vector = np.frombuffer(value, dtype, dim)
                    page.append(MemoryRecord(note, vector, embedding_id, NAMESPACE))
                start = cursor.key() + b"\0"
            yield page
            if len(page) < limit:
                return

    def get(self, record_id: str) -> MemoryRecord:
        with self._environment.begin() as view:
            place = view.get(PREFIX + record_id.encode(), b"", db=self._ids)
            return self._record(view.get(place, b"", db=self._records))

    def vectors(self) -> Vectors:
        ids: list[str] = []
        timestamps: list[float] = []
        width = self._width
        with self._environment.begin(db=self._records, buffers=True) as view:
            matrix = np.empty((int(view.stat()["entries"]), self._dim), self._dtype)
            target = matrix.data.cast("B") if matrix.size else memoryview(bytearray())
            for i, value in enumerate(view.cursor().iternext(keys=False)):
                target[i * width : (i + 1) * width] = value[:width]
                timestamp, record_id, *_ = _decode(value[width:])
                ids.append(record_id)
                timestamps.append(timestamp)
        return Vectors(ids, timestamps, matrix)

    def settings(self) -> str:
        binding = ".".join(map(str, lmdb.version()))
        return f"LMDB {binding} (py-lmdb {lmdb.__version__}), sync={self._durable}, metasync=True"

    def close(self) -> None:
        self._environment.sync(True)
        self._environment.close()

    def _value(self, record: MemoryRecord) -> bytes:
        note = record.note
        fields = (note.timestamp, note.id, note.text, note.metadata, record.embedding_id)
        return b"".join((record.vector.tobytes(), _encode(fields)))

    def _record(self, value: bytes) -> MemoryRecord:
        timestamp, record_id, text, metadata, embedding_id = _decode(value[self._width :])
        vector = np.frombuffer(value, self._dtype, self._dim)
        return MemoryRecord(
            Note(record_id, text, timestamp, metadata), vector, embedding_id, NAMESPACE
        )


@dataclass(frozen=True, slots=True)
class Lmdb:
    """LMDB with the defaults of its documentation and a map that is large enough."""

    name: str = "LMDB"
    persistent: bool = True

    def open(self, path: Path, *, dim: int, dtype: str, durable: bool) -> Side:
        return LmdbSide(path, dim=dim, dtype=dtype, durable=durable)


def _place(timestamp: float, seq: int) -> bytes:
    """Bytes that compare as (timestamp, seq): the sign bit flipped, or all bits if negative."""
    bits = int.from_bytes(_FLOAT.pack(timestamp), "big")
    return _PLACE.pack(bits ^ _SIGN if bits < _SIGN else ~bits & (2 * _SIGN - 1), seq)
