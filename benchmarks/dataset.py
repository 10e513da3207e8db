"""The records every side stores: synthetic, seeded, made in chunks, so a million need no memory.

Text has about 180 characters, metadata is a small dict, vectors are standard normal. Chunk k
depends on the seed and k only: any part can be made again, by another process too.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from fmemory import MemoryRecord, Note

Order: TypeAlias = Literal["ascending", "random"]

NAMESPACE = ("bench",)
EMBEDDING_ID = "synthetic-v1"
CHUNK_ROWS = 500
WORDS_PER_TEXT = 27
VOCABULARY_WORDS = 400
START_S = 1_700_000_000.0

_encode_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Dataset:
    """Records by number; timestamps ascend with the number or are drawn at random.

    Attributes:
        count: Number of records the read workloads store; writes may take numbers beyond it.
        dim: Length of every vector.
        dtype: `float64` or `float32`.
        seed: Same seed, same records.
        order: `ascending`: half a second apart, every 16th equal to the one before, so ties occur.
            `random`: uniform over the same span.
    """

    count: int
    dim: int
    dtype: Literal["float64", "float32"] = "float64"
    seed: int = 1
    order: Order = "ascending"

    def records(self, start: int, stop: int) -> list[MemoryRecord]:
        """Records `start` to `stop - 1`, made anew at each call."""
        found: list[MemoryRecord] = []
        for chunk in range(start // CHUNK_ROWS, -(-stop // CHUNK_ROWS)):
            rows = self._chunk(chunk)
            base = chunk * CHUNK_ROWS
            found += rows[max(start - base, 0) : min(stop - base, CHUNK_ROWS)]
        return found

    def batches(self, rows: int = CHUNK_ROWS) -> Iterator[list[MemoryRecord]]:
        """All `count` records in batches of `rows`, the last one shorter."""
        made: list[MemoryRecord] = []
        for start in range(0, self.count, CHUNK_ROWS):
            made += self.records(start, min(start + CHUNK_ROWS, self.count))
            whole = len(made) - len(made) % rows
            for at in range(0, whole, rows):
                yield made[at : at + rows]
            del made[:whole]
        if made:
            yield made

    def fingerprint(self) -> str:
        """What `fingerprint` has to give for a scan of all records."""
        keyed: list[tuple[float, int, bytes]] = []
        for batch in self.batches():
            keyed += [
                (record.note.timestamp, number, record_digest(record))
                for number, record in enumerate(batch, len(keyed))
            ]
        return _combined(digest for _, _, digest in sorted(keyed))

    def vectors_fingerprint(self) -> str:
        """What `vectors_fingerprint` has to give; for ascending order only."""
        ids: list[str] = []
        timestamps: list[float] = []
        rows = hashlib.sha256()
        for batch in self.batches():
            ids += [record.id for record in batch]
            timestamps += [record.note.timestamp for record in batch]
            for record in batch:
                rows.update(record.vector.tobytes())
        dtype = np.dtype(self.dtype).str
        rows.update(_encode_canonical((ids, timestamps, dtype, (self.count, self.dim))))
        return rows.hexdigest()

    def _chunk(self, chunk: int) -> list[MemoryRecord]:
        rng = np.random.default_rng((self.seed, chunk))
        words = _vocabulary(self.seed)
        picks = rng.integers(0, VOCABULARY_WORDS, size=(CHUNK_ROWS, WORDS_PER_TEXT)).tolist()
        names = rng.bytes(16 * CHUNK_ROWS)
        important = (rng.random(CHUNK_ROWS) < 0.1).tolist()
        vectors = rng.standard_normal((CHUNK_ROWS, self.dim)).astype(self.dtype)
        times = self._timestamps(chunk, rng).tolist()
        return [
            MemoryRecord(
                Note(
                    names[16 * row : 16 * row + 16].hex(),
                    " ".join([words[pick] for pick in picks[row]]),
                    times[row],
                    {"source": "agent", "turn": chunk * CHUNK_ROWS + row, "important": flag},
                ),
                vectors[row],
                EMBEDDING_ID,
                NAMESPACE,
            )
            for row, flag in enumerate(important)
        ]

    def _timestamps(self, chunk: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        if self.order == "random":
            return START_S + np.round(rng.random(CHUNK_ROWS) * max(self.count, 1) / 2, 3)
        numbers = np.arange(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)
        return START_S + (numbers - numbers // 16) / 2


def record_digest(record: MemoryRecord) -> bytes:
    """SHA-256 over every field of a record, dtype and shape of the vector included."""
    note, vector = record.note, record.vector
    fields = (
        note.id,
        note.text,
        note.timestamp,
        note.metadata,
        record.embedding_id,
        record.namespace,
        vector.dtype.str,
        vector.shape,
    )
    return hashlib.sha256(_encode_canonical(fields) + vector.tobytes()).digest()


def fingerprint(pages: Iterable[Sequence[MemoryRecord]]) -> str:
    """One value for a whole scan: equal only if every record is equal and in the same place."""
    return _combined(record_digest(record) for page in pages for record in page)


def unordered_fingerprint(pages: Iterable[Sequence[MemoryRecord]]) -> str:
    """One value for a set of records, whatever order racing threads wrote them in."""
    return _combined(sorted(record_digest(record) for page in pages for record in page))


def vectors_fingerprint(
    ids: Iterable[str], timestamps: Iterable[float], matrix: npt.NDArray[Any]
) -> str:
    """One value for the answer of `vectors()`."""
    rows = hashlib.sha256(matrix.tobytes())
    columns = (list(ids), [float(timestamp) for timestamp in timestamps])
    rows.update(_encode_canonical((*columns, matrix.dtype.str, matrix.shape)))
    return rows.hexdigest()


def _combined(digests: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for digest in digests:
        whole.update(digest)
    return whole.hexdigest()


@functools.cache
def _vocabulary(seed: int) -> tuple[str, ...]:
    rng = np.random.default_rng((seed, 0x70CAB))
    lengths = rng.integers(2, 10, size=VOCABULARY_WORDS).tolist()
    return tuple(
        bytes((97 + rng.integers(0, 26, size=length)).astype(np.uint8)).decode()
        for length in lengths
    )
