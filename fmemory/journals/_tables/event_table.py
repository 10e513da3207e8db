"""What a database must be able to do to be a journal: a handful of queries, and one transaction.

`TableJournal` (`journal.py`) does everything else. A table keeps one row an event, its bytes as
`fmemory_segments.event_bytes` packs them, and one row a stream. Errors of the driver are raised as
those of the contract; nothing is written but by a transaction, and nothing removed but by `scrub`.

An event changes only by losing data, and then its check changes too. So whoever has read a meta
asks for data with its check, and gets none where the event is another by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from fmemory.journal import Capabilities, Durability, JournalHealth, Stream, StreamInfo

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, ...]).decode


class MetaRow(NamedTuple):
    """An event without its data, as it is stored."""

    seq: int
    recorded_at_ns: int
    meta: bytes
    check: int


class EventRow(NamedTuple):
    """An event to be stored.

    Attributes:
        seq: Its number, the primary key.
        stream: Its stream as `stream_key` writes it.
        revision: In its stream.
        type: Its type, for people who look into the database.
        event_id: Idempotency key; the first event of a stream with an id keeps it.
        recorded_at_ns: Unix nanoseconds.
        meta: See `event_bytes.pack_event`.
        check: See `event_bytes.meta_check`.
        data: See `event_bytes.pack_event`.
        is_erased: Data were taken out before it came here.
    """

    seq: int
    stream: str
    revision: int
    type: str
    event_id: str | None
    recorded_at_ns: int
    meta: bytes
    check: int
    data: bytes
    is_erased: bool


class ErasedRow(NamedTuple):
    """An event of which data were taken out, to be stored in the place of what it was.

    Attributes:
        is_stub: It was forgotten: its type is `event_forgotten` now, and it has no event id.
    """

    seq: int
    meta: bytes
    check: int
    data: bytes
    is_stub: bool = False


class Part(NamedTuple):
    """A piece of an event's data.

    Attributes:
        check: Of the meta that says where the piece lies.
    """

    seq: int
    check: int
    offset: int
    size: int


class TableTransaction(Protocol):
    """The one writer of the moment: nobody else appends before it ends.

    Attributes:
        head_seq: The newest seq.
        head_ns: Time of that event; 0 if there is none.
    """

    head_seq: int
    head_ns: int

    def append(self, rows: Iterable[EventRow], streams: Sequence[StreamInfo]) -> None:
        """Store events, and what is known of their streams from now on. Called at most once.

        Args:
            rows: At least one, by seq. Each is packed when it is taken, and a batch may be as large
                as memory, so take them one by one and keep none. What taking one raises ends the
                transaction.
        """
        ...

    def replace(self, rows: Sequence[ErasedRow]) -> None:
        """Store events anew and mark them as erased. Called at most once, and without `append`."""
        ...


class EventTable(Protocol):
    """Events of one log in a database. Threads may share one.

    Attributes:
        capabilities: What the journal declares.
        path: Where it is, for messages; without a password.
        store_id: 16 bytes that name the log for ever.
        read_only: Refuse writes.
    """

    capabilities: Capabilities
    path: str
    store_id: bytes
    read_only: bool

    def head_seq(self) -> int:
        """The newest visible seq; 0 if there is none. Cost: one query."""
        ...

    def metas(
        self, after: int, upto: int, *, stream: str | None, backwards: bool, limit: int
    ) -> list[MetaRow]:
        """Events with `after < seq <= upto` by seq, at most `limit` of them."""
        ...

    def metas_of(self, seqs: Sequence[int]) -> list[MetaRow]:
        """These events in any order; those that do not exist are left out."""
        ...

    def erased(self, after: int, upto: int, *, stream: str | None, limit: int) -> list[MetaRow]:
        """Events with `after < seq <= upto` that are marked as erased, by seq, at most `limit`.

        Cost: by an index of these events alone.
        """
        ...

    def data_of(self, checks: Mapping[int, int]) -> dict[int, bytes]:
        """Data of these events, whole, each asked for with the check of its meta.

        Those that do not exist, or have another check by now, are left out.
        """
        ...

    def parts(self, parts: Sequence[Part]) -> list[bytes]:
        """Pieces of data, without reading the rest of it; shorter where data ends before.

        A piece is empty where the event has another check by now.
        """
        ...

    def find(self, stream: str, event_id: str) -> int | None:
        """The smallest seq in a stream with this event id."""
        ...

    def stream(self, stream: str) -> StreamInfo | None:
        """What is known of one stream."""
        ...

    def streams(self, prefix: Stream, before: int | None, limit: int | None) -> list[StreamInfo]:
        """Streams whose first labels are `prefix`, the one with the newest event first.

        Args:
            before: Only streams whose last seq is smaller.
        """
        ...

    def transaction(
        self, durability: Durability | None, timeout_s: float | None
    ) -> AbstractContextManager[TableTransaction]:
        """A transaction that excludes other writers: committed at the end, rolled back on an error.

        Args:
            durability: When it ends; None = as the table was opened.
            timeout_s: Longest wait for other writers; None = as opened. Then `StoreBusy`.
        """
        ...

    def scrub(self, *, exclusive: bool, timeout_s: float | None) -> tuple[str, ...]:
        """Overwrite or give back the places in which replaced data lay; what could not be, and why.

        Args:
            exclusive: Also what keeps others out while it runs.
            timeout_s: Longest wait for others; None = as opened.
        """
        ...

    def is_durable(self, seq: int) -> bool:
        """Whether everything up to this seq is known to be on disk."""
        ...

    def sync(self, upto: int) -> int:
        """Have events up to this seq on disk; the durable seq."""
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back from some thread when another connection may have written; how to stop."""
        ...

    def check_open(self) -> None:
        """Raise `ClosedStore` or `ForkedStore` if the handle must not be used."""
        ...

    def check_place(self) -> None:
        """Raise `NotFound` if it is known that the database is not where it was opened."""
        ...

    def stored_bytes(self) -> int | None:
        """What the database occupies; None where that cannot be told."""
        ...

    def health(self) -> JournalHealth:
        """The state of the handle. Never raises."""
        ...

    def close(self) -> None:
        """Give back connections; a second call does nothing."""
        ...


def stream_key(stream: Stream) -> str:
    r"""A stream as one string: a JSON array, which has no NUL and sorts nothing.

    >>> stream_key(("records", "a/b"))
    '["records","a/b"]'
    >>> stream_key(("records", "\0"))
    '["records","\\u0000"]'
    """
    return _encode(stream).decode()


def stream_of(key: str) -> Stream:
    """The stream that `stream_key` wrote.

    >>> stream_of('["records","a/b"]')
    ('records', 'a/b')
    """
    return _decode(key)


def prefix_keys(prefix: Stream) -> tuple[str, str] | None:
    """How the keys of streams with this prefix begin; None = any key does.

    >>> prefix_keys(("records",))
    ('["records"]', '["records",')
    """
    if not prefix:
        return None
    whole = stream_key(prefix)
    return whole, f"{whole[:-1]},"
