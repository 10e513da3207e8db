"""Random events and histories for the tests of the codecs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from fmemory_segments import (
    Blob,
    Draft,
    Envelope,
    Erased,
    Payload,
    Rows,
    StoredEvent,
    Stream,
    chain_step,
    event_digest,
    payload_digest,
)
from fmemory_segments._batch import BatchMeta, finish, prepare_stored
from fmemory_segments._frame import frame_bytes

SALT = 0x1234_5678
FIRST_OFFSET = 128
EMBEDDING_IDS = (None, "model-a", "modèle-b")
STREAMS: tuple[Stream, ...] = (
    ("records",),
    ("records", "user1"),
    ("records", "user10"),
    ("session", "s1"),
)

optional_text = st.none() | st.text(max_size=8)
optional_time = st.none() | st.integers(-(1 << 62), 1 << 62)


@dataclass(frozen=True)
class History:
    """Events from seq 1 on, and what a compaction of all of them would leave out."""

    events: list[StoredEvent]
    erased_locs: list[int]
    erased_seqs: list[int]


def make_rows(
    seed: int,
    count: int,
    dim: int = 3,
    dtype: str = "<f8",
    *,
    embedding_ids: Sequence[str | None] = EMBEDDING_IDS,
    has_nonces: bool = True,
) -> Rows:
    """Rows whose content follows from the seed; timestamps repeat."""
    random = np.random.default_rng(seed)
    notes = [random.bytes(int(size)) for size in random.integers(0, 30, count)]
    numbers = random.integers(0, len(embedding_ids), count)
    return Rows(
        timestamps=random.integers(-3, 3, count) / 2,
        notes=b"".join(notes),
        note_offsets=np.cumsum([0, *map(len, notes)]).astype("<u4"),
        vectors=random.standard_normal((count, dim)).astype(dtype if dim else "<f8"),
        embedding_ids=tuple(embedding_ids[int(i)] for i in numbers),
        nonces=random.bytes(16 * count) if has_nonces else b"",
    )


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Any draft."""
    seed = draw(st.integers(0, 1 << 32))
    count = draw(st.integers(0, 5))
    payload: Blob | Rows
    if count:
        dim, dtype = draw(st.integers(0, 4)), draw(st.sampled_from(["<f4", "<f8"]))
        payload = make_rows(seed, count, dim, dtype, has_nonces=draw(st.booleans()))
    else:
        payload = Blob(draw(st.binary(max_size=40)), draw(st.sampled_from([b"", bytes(16)])))
    text = st.text(max_size=8)
    return Draft(
        stream=draw(st.tuples(text) | st.tuples(text, text)),
        revision=draw(st.integers(1, 1 << 40)),
        type=draw(text),
        payload=payload,
        occurred_at_ns=draw(optional_time),
        actor=draw(optional_text),
        run_id=draw(optional_text),
        reason=draw(optional_text),
        event_id=draw(optional_text),
        keys=tuple(draw(st.lists(text, min_size=count, max_size=count or 3))),
        count=draw(st.integers(0, 1 << 40)),
    )


@st.composite
def histories(draw: st.DrawFn, *, max_events: int = 12) -> History:
    """Puts, deletes, re-puts, clears and session events in several streams."""
    log = _Log()
    choices = [_put, _put, _blob, _delete, _clear]
    for _ in range(draw(st.integers(1, max_events))):
        action: Callable[[st.DrawFn, _Log], None] = draw(st.sampled_from(choices))
        action(draw, log)
    if not log.events:
        _blob(draw, log)
    return History(log.events, sorted(log.erased_locs), sorted(log.erased_seqs))


class _Log:
    """A history in the making."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.erased_locs: list[int] = []
        self.erased_seqs: list[int] = []
        self.live: dict[tuple[Stream, str], int] = {}
        self.revisions: dict[Stream, int] = {}
        self.time_ns = 1_700_000_000_000_000_000

    def add(
        self, draw: st.DrawFn, stream: Stream, type_: str, payload: Payload, keys: Sequence[str]
    ) -> int:
        seq = len(self.events) + 1
        chance = draw(st.integers(0, 255))
        self.time_ns += chance % 4
        revision = self.revisions[stream] = self.revisions.get(stream, 0) + 1
        envelope = Envelope(
            seq,
            stream,
            revision,
            type_,
            self.time_ns,
            occurred_at_ns=-chance if chance & 8 else None,
            actor="me@host" if chance & 16 else None,
            run_id="run-1" if chance & 32 else None,
            event_id=f"event-{seq}" if chance & 64 else None,
            keys=tuple(keys),
            count=len(keys),
        )
        self.events.append(StoredEvent(envelope, payload))
        return seq


def _put(draw: st.DrawFn, log: _Log) -> None:
    stream = draw(st.sampled_from(STREAMS[:3]))
    free = [name for name in "abcdefgh" if (stream, name) not in log.live]
    if not free:
        return
    seed = draw(st.integers(0, 1 << 16))
    keys = free[: 1 + seed % 4]
    rows = make_rows(seed, len(keys), (seed >> 2) % 4, "<f4" if seed & 16 else "<f8")
    seq = log.add(draw, stream, "records_put", rows, keys)
    for row, key in enumerate(keys):
        log.live[stream, key] = seq << 16 | row


def _blob(draw: st.DrawFn, log: _Log) -> None:
    seed = draw(st.integers(0, 1 << 16))
    payload = Blob(bytes(seed % 20), seed.to_bytes(16, "little"))
    seq = log.add(draw, STREAMS[3], "note.taken", payload, ())
    if seed & 32:
        log.erased_seqs.append(seq)


def _delete(draw: st.DrawFn, log: _Log) -> None:
    if not log.live:
        return
    stream, key = draw(st.sampled_from(sorted(log.live)))
    log.erased_locs.append(log.live.pop((stream, key)))
    log.add(draw, stream, "records_deleted", Blob(b"", bytes(16)), [key])


def _clear(draw: st.DrawFn, log: _Log) -> None:
    stream = draw(st.sampled_from(STREAMS[:3]))
    for entry in [entry for entry in log.live if entry[0] == stream]:
        log.erased_locs.append(log.live.pop(entry))
    log.add(draw, stream, "records_cleared", Blob(b"", bytes(16)), ())


def write_batches(
    events: Sequence[StoredEvent], sizes: Sequence[int]
) -> tuple[bytes, list[tuple[int, BatchMeta]]]:
    """The events as batches of so many events in turn: the bytes from byte 128 on, the frames."""
    written, frames = b"", []
    offset, prev_frame_bytes, at, number = FIRST_OFFSET, 0, 0, 0
    while at < len(events):
        size = sizes[number % len(sizes)]
        finished = finish(
            prepare_stored(events[at : at + size]),
            first_seq=events[at].envelope.seq,
            recorded_at_ns=events[at].envelope.recorded_at_ns,
            synced_to=events[at].envelope.seq - 1,
            prev_frame_bytes=prev_frame_bytes,
            salt=SALT,
            offset=offset,
        )
        written += b"".join(finished.buffers)
        frames += [(frame.offset, frame.batch) for frame in finished.frames]
        prev_frame_bytes = frame_bytes(frames[-1][1].header)
        offset, at, number = finished.end, at + size, number + 1
    return written, frames


def chain_of(events: Sequence[StoredEvent], chain: bytes = bytes(32)) -> bytes:
    """The chain value after these events."""
    for event in events:
        chain = chain_step(chain, event_digest(event.envelope, payload_digest(event.payload)))
    return chain


def same_payload(left: Payload, right: Payload) -> bool:
    """True if the payloads hold the same values, dtypes and erasures."""
    if isinstance(left, Rows) and isinstance(right, Rows):
        return (
            all(
                np.array_equal(one, other) and one.dtype == other.dtype
                for one, other in (
                    (left.timestamps, right.timestamps),
                    (left.note_offsets, right.note_offsets),
                    (left.vectors, right.vectors),
                    (_flags(left), _flags(right)),
                )
            )
            and (left.notes, left.embedding_ids, left.nonces)
            == (right.notes, right.embedding_ids, right.nonces)
            and (left.digests is None or np.array_equal(left.digests, right.digests))  # type: ignore[arg-type]
        )
    return isinstance(left, Blob | Erased) and left == right


def _flags(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.zeros(len(rows), np.bool_) if rows.erased is None else rows.erased
