"""Events as every journal stores them: an envelope that outlives erasure, a payload that may not.

These types are shared by all journals, so that an event copied from one to another keeps its digest
and the log its chain value. The layer gives no meaning to types, keys or payloads; docs/format.md
section "Digests" owns the canonical bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

Stream: TypeAlias = tuple[str, ...]
Float64Array: TypeAlias = npt.NDArray[np.float64]
UInt32Array: TypeAlias = npt.NDArray[np.uint32]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
Int64Array: TypeAlias = npt.NDArray[np.int64]
UInt8Array: TypeAlias = npt.NDArray[np.uint8]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
VectorArray: TypeAlias = npt.NDArray[np.floating[Any]]

NONCE_BYTES = 16
DIGEST_BYTES = 32
ROWS_MAX = 65_535
EVENT_BYTES_MAX = 48 * 1024 * 1024
FRAME_BYTES_MAX = 64 * 1024 * 1024
LOC_ROW_BITS = 16
ZERO_CHAIN = bytes(DIGEST_BYTES)
FORGOTTEN = "event_forgotten"
"""Type of an event of which only its place in log and stream, its time and its digest are left."""
SEQ_MAX = 2**63 - 1

_CHAIN_DIGITS = 2 * DIGEST_BYTES
_TEXT_SHOWN_MAX = 100


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All of an event but its payload: who, when, why and what it is about. Survives erasure.

    Attributes:
        seq: Number in the log, from 1, without gaps.
        stream: The key the event belongs to, compared label by label.
        revision: Number in its stream, from 1.
        type: What happened; types without a dot are fmemory's own.
        recorded_at_ns: Unix nanoseconds UTC, never smaller than that of the event before.
        occurred_at_ns: When it happened, where that differs (imports).
        actor: Who wrote it.
        run_id: The run it belongs to.
        reason: Why it was written.
        event_id: Idempotency key, unique in its stream.
        keys: What the event is about: record ids of a put or delete, the key of a meta value,
            the id of a feature.
        count: Items in the payload (rows, messages), or the one small number the event carries.
    """

    seq: int
    stream: Stream
    revision: int
    type: str
    recorded_at_ns: int
    occurred_at_ns: int | None = None
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    event_id: str | None = None
    keys: tuple[str, ...] = ()
    count: int = 0


class Blob(msgspec.Struct, frozen=True, gc=False):
    """A payload of bytes. An empty nonce means that the journal draws one when it stores it."""

    data: bytes
    nonce: bytes = b""


class Rows(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A payload of records, column by column; row i belongs to `Envelope.keys[i]`.

    Attributes:
        timestamps: float64, shape (n,).
        notes: Note bodies back to back; the layer never decodes them.
        note_offsets: uint32, shape (n + 1,): where each body starts in `notes`, and the end.
        vectors: little-endian float32 or float64, shape (n, dim), C-contiguous.
        embedding_ids: One a row, None where unknown.
        nonces: 16 bytes a row; empty in a draft: the journal draws them.
        erased: bool, shape (n,), True where the row's note and vector were erased; None = no row.
        digests: uint8, shape (n, 32): row digests kept for erased rows; None where none is erased.
    """

    timestamps: Float64Array
    notes: bytes
    note_offsets: UInt32Array
    vectors: VectorArray
    embedding_ids: tuple[str | None, ...]
    nonces: bytes = b""
    erased: BoolArray | None = None
    digests: UInt8Array | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def lost(self) -> Int64Array:
        """Numbers of the rows, ascending, whose data a salvage found damaged: see `Erased`."""
        if self.erased is None or self.digests is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.erased & ~self.digests.any(axis=1))


class Erased(msgspec.Struct, frozen=True, gc=False):
    """The payload of an event whose data was erased: only its digest is left."""

    digest: bytes

    @property
    def is_lost(self) -> bool:
        """Whether a salvage found it damaged and left a digest of zeros, which no data have."""
        return not any(self.digest)


Payload: TypeAlias = Blob | Rows | Erased


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event to be appended: the journal adds seq, time and nonces."""

    stream: Stream
    revision: int
    type: str
    payload: Blob | Rows
    occurred_at_ns: int | None = None
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    event_id: str | None = None
    keys: tuple[str, ...] = ()
    count: int = 0

    def envelope(self, seq: int, recorded_at_ns: int) -> Envelope:
        """Its envelope once it has this seq and time."""
        return Envelope(
            seq,
            self.stream,
            self.revision,
            self.type,
            recorded_at_ns,
            self.occurred_at_ns,
            self.actor,
            self.run_id,
            self.reason,
            self.event_id,
            self.keys,
            self.count,
        )


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as a journal holds it, whole."""

    envelope: Envelope
    payload: Payload


class RowRun(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Consecutive puts of one stream without their payloads: what an index is built from.

    Attributes:
        stream: The one stream of all its events.
        first_revision: Revision of the first event; the others follow without gap.
        event_count: Number of events.
        first_seq: Seq of the first event.
        last_seq: Seq of the last event; other streams' events may lie between.
        ids: Record ids, in write order.
        timestamps: float64, shape (n,).
        locs: uint64, shape (n,), ascending: `seq << 16 | row`.
    """

    stream: Stream
    first_revision: int
    event_count: int
    first_seq: int
    last_seq: int
    ids: list[str]
    timestamps: Float64Array
    locs: UInt64Array


class RowPage(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Rows in the order they were asked for, in memory of their own.

    Attributes:
        notes: One msgpack array of 3n items: id, text, metadata of each row; empty if not wanted.
        blocks: Consecutive rows of equal dtype and dim, each an array of shape (k, dim) that the
            caller may change; empty if vectors were not wanted.
        embedding_ids: One a row, None where unknown.
    """

    notes: bytes | bytearray | memoryview
    blocks: list[VectorArray]
    embedding_ids: list[str | None]


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What is known of a stream without reading its events."""

    stream: Stream
    revision: int
    event_count: int
    first_seq: int
    last_seq: int
    last_recorded_at_ns: int


@dataclass(frozen=True, slots=True)
class Head:
    """The newest event with the chain value up to it: pin it elsewhere to find tampering later.

    >>> str(Head(0, bytes(32)))[:10]
    '0:00000000'
    """

    seq: int
    chain: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.chain.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head that `str()` printed; blanks and line ends around it are left out.

        Raises:
            ValueError: The text is no head or not the whole of one; the message says what is wrong.

        >>> Head.parse("0:" + "00" * 32).seq
        0
        """
        seq, colon, chain = text.strip().partition(":")
        wrong = "no colon" if not colon else _wrong_seq(seq) or _wrong_chain(seq, chain)
        if wrong:
            raise ValueError(
                f"head: expected SEQ:CHAIN, a number and {_CHAIN_DIGITS} lower-case hexadecimal"
                f" digits, got {wrong} ({_shortened(text)}); a head is kept and compared whole, as"
                " it was printed"
            )
        return cls(int(seq), bytes.fromhex(chain))


class Commit(msgspec.Struct, frozen=True, gc=False):
    """What a journal promised for one batch."""

    first_seq: int
    last_seq: int
    recorded_at_ns: int
    durable: bool


def _wrong_seq(seq: str) -> str:
    """What is wrong with the number of a head's text; empty if nothing is."""
    if not (seq.isascii() and seq.isdecimal()):
        return "no number before the colon"
    if seq != "0" and seq.startswith("0"):
        return "a number that begins with 0"
    return f"a number beyond {SEQ_MAX}" if len(seq) > 20 or int(seq) > SEQ_MAX else ""


def _wrong_chain(seq: str, chain: str) -> str:
    """What is wrong with the digits of a head's text; empty if nothing is."""
    wrong = next((one for one in chain if one not in "0123456789abcdefABCDEF"), None)
    if wrong is not None and wrong not in "….":
        return f"{wrong!r} among the digits"
    if wrong is not None or len(chain) != _CHAIN_DIGITS:
        digits = chain.rstrip("….")
        return f"{len(digits)} digits"
    if chain != chain.lower():
        return "upper-case digits"
    return "digits of an event 0, which does not exist" if seq == "0" and int(chain, 16) else ""


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= _TEXT_SHOWN_MAX else f"{text[:_TEXT_SHOWN_MAX]!r}…"
