"""Reads of the contract over a `State`: shared by the live backend and by views of the past."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar, cast

from fmemory._engine import waiting
from fmemory._engine.erasure import undeleted
from fmemory._engine.pinned import check_pinned
from fmemory._engine.results import get_result, scan_result
from fmemory._engine.state import State
from fmemory._engine.stored import from_ns
from fmemory._engine.types import SESSION, records_stream, session_stream
from fmemory._json_values import check_text
from fmemory._model import as_tuple, check_int
from fmemory.errors import ContractError, InvalidCursor, NotFound, Reason, brief
from fmemory.journal import Envelope, Finding, Head, Journal, Usage
from fmemory.log import LogReads
from fmemory.log_models import (
    Event,
    Health,
    Stats,
    StreamPage,
    StreamStats,
    StreamSummary,
    TypeStats,
    check_stream,
)
from fmemory.record_models import (
    SCAN_LIMIT_MAX,
    CountRequest,
    CountResult,
    GetRequest,
    GetResult,
    MetaGetRequest,
    MetaResult,
    ScanRequest,
    ScanResult,
    TimeRange,
    VectorBlock,
    check_namespace,
)
from fmemory.records import RecordReads, check_request, own_arguments
from fmemory.session_models import BootstrapState, Message, SessionPage, check_session_id
from fmemory.sessions import SessionReads, transcript_window
from fmemory_segments import Stream

T = TypeVar("T")

_STREAMS = "streams"


class JournalReads(RecordReads, SessionReads, LogReads):
    """Reads of records, sessions and the log, answered from `self._state`."""

    _state: State
    _journal: Journal
    _durability: str
    _path: str | None

    # Records

    def get(self, request: GetRequest) -> GetResult:
        if type(request) is not GetRequest:
            check_request(request, self.get_request)
        ids, namespace = request.ids, request.namespace
        if len(ids) == 1:
            record = self._state.get_one(ids[0], namespace)
            return get_result((), ids) if record is None else get_result((record,), ())
        records, missing = self._state.get(ids, namespace)
        return get_result(tuple(records), missing)

    def scan(self, request: ScanRequest) -> ScanResult:
        check_request(request, self.scan_request)
        records, cursor = self._state.scan(
            request.time_range, request.namespace, request.limit, request.cursor
        )
        return scan_result(records, cursor)

    def count(self, request: CountRequest) -> CountResult:
        check_request(request, self.count_request)
        return CountResult(count=self._state.count(request.time_range, request.namespace))

    def get_meta(self, request: MetaGetRequest) -> MetaResult:
        check_request(request, self.meta_get_request)
        return MetaResult(value=self._state.meta(request.key, request.namespace))

    def vectors(
        self,
        time_range: TimeRange | None = None,
        namespace: Sequence[str] = (),
        ids: Sequence[str] | None = None,
    ) -> VectorBlock:
        # The request classes check these arguments, as for every other read.
        with own_arguments():
            request = self.count_request(
                time_range=time_range, namespace=cast("tuple[str, ...]", namespace)
            )
            chosen = None if ids is None else self.get_request(cast("tuple[str, ...]", ids)).ids
        return self._state.vectors(request.time_range, request.namespace, chosen)

    # Sessions

    def is_initialized(self, session_id: str) -> bool:
        return self._state.is_initialized(check_session_id(session_id))

    def load_bootstrap_state(self, session_id: str) -> BootstrapState:
        return self._state.bootstrap(check_session_id(session_id))

    def load_transcript_messages(
        self,
        session_id: str,
        *,
        last: int | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[Message, ...]:
        check_session_id(session_id)
        return self._state.messages(
            session_id, lambda count: transcript_window(count, last, after, limit)
        )

    def list_sessions(self, limit: int = 50, cursor: str | None = None) -> SessionPage:
        found, following = self._state.sessions(_page_limit(limit), _cursor(cursor))
        return SessionPage(sessions=tuple(found), next_cursor=following)

    # The log

    def events(
        self,
        after: int = 0,
        *,
        stream: Sequence[str] | None = None,
        stream_prefix: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        actor: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[Event]:
        first = _seq(after, "after")
        if limit is not None:
            _at_least_one(limit, "limit")
        only = None if stream is None else check_stream(stream, "stream")
        keep = _filter(stream_prefix, types, actor, run_id)
        upto = self._state.upto()
        if since is not None:
            first = max(first, self._state.seq_before(since, "since"))
        if until is not None:
            upto = min(upto, self._state.seq_before(until, "until"))
        return self._state.events(
            first, upto, stream=only, backwards=backwards, keep=keep, limit=limit
        )

    def event(self, seq: int) -> Event:
        found = self._state.event(_integer(seq, "seq"))
        if found is None:
            newest = self._state.upto()
            wanted = f"a seq from 1 to {newest}" if newest else "a seq of a log that has events"
            raise NotFound(
                f"event: expected {wanted}, got {seq}",
                reason=Reason.EVENT_NOT_FOUND,
                key=str(seq),
            )
        return found

    def find_event(self, event_id: str, *, stream: Sequence[str] | None = None) -> Event | None:
        check_text(event_id, "event_id")
        only = None if stream is None else check_stream(stream, "stream")
        return self._state.find(event_id, only)

    def list_streams(
        self, prefix: Sequence[str] = (), limit: int = 50, cursor: str | None = None
    ) -> StreamPage:
        labels = _prefix(prefix, "prefix")
        count, before = _page_limit(limit), None
        if _cursor(cursor) is not None:
            assert cursor is not None
            _, before = self._state.cursors.decode(cursor, _STREAMS, labels)
        infos = self._state.stream_infos(labels, before, count + 1)
        more, infos = len(infos) > count, infos[:count]
        streams = tuple(
            [
                StreamSummary(
                    stream=info.stream,
                    revision=info.revision,
                    event_count=info.event_count,
                    first_seq=info.first_seq,
                    last_seq=info.last_seq,
                    updated_at=from_ns(info.last_recorded_at_ns),
                )
                for info in infos
            ]
        )
        following = (
            self._state.cursors.encode(_STREAMS, labels, 0.0, infos[-1].last_seq) if more else None
        )
        return StreamPage(streams=streams, next_cursor=following)

    def history(
        self,
        *,
        session_id: str | None = None,
        record_id: str | None = None,
        namespace: Sequence[str] = (),
    ) -> Iterator[Event]:
        if (session_id is None) == (record_id is None):
            raise ContractError(
                "expected session_id or record_id, got "
                + ("neither" if session_id is None else "both"),
                where="session_id",
                reason=Reason.MISMATCH,
            )
        upto = self._state.upto()
        if session_id is not None:
            return self._state.events(0, upto, stream=session_stream(check_session_id(session_id)))
        key = check_text(record_id, "record_id")
        stream = records_stream(check_namespace(namespace, "namespace"))
        return self._state.record_history(stream, key, upto)

    def follow(self, after: int, *, durable: bool = False) -> Iterator[Event]:
        first = self._followable(after, durable=durable)
        return waiting.follow(self._state, self._journal, first, durable=durable)

    def afollow(self, after: int, *, durable: bool = False) -> AsyncGenerator[Event, None]:
        first = self._followable(after, durable=durable)
        return waiting.afollow(self._state, self._journal, first, durable=durable, run=self._run)

    def head(self) -> Head:
        return self._journal.head(self._state.upto())

    def verify(
        self, pinned: Head | str | Sequence[Head | str] | None = None
    ) -> tuple[Finding, ...]:
        found = self._journal.verify(check_pinned(pinned))
        if not any(one.damage for one in found):
            found += undeleted(self._journal, self._journal.refresh())
        return tuple(found)

    def stats(self) -> Stats:
        upto = self._state.upto()
        usage = self._journal.usage() if self._state.fixed is None else self._state.usage(upto)
        sizes = self._journal.sizes()
        return Stats(
            kind=self._journal.capabilities.kind,
            head_seq=upto,
            stream_count=len({one.stream for one in usage}),
            session_count=len({one.stream for one in usage if one.stream[0] == SESSION}),
            record_count=self._state.record_count(),
            stored_bytes=sizes.stored_bytes,
            segment_count=sizes.segment_count,
            by_type=tuple(
                [
                    TypeStats(type=key, event_count=count, payload_bytes=size)
                    for key, count, size in _totals(usage, lambda one: one.type)
                ]
            ),
            by_stream=tuple(
                [
                    StreamStats(stream=key, event_count=count, payload_bytes=size)
                    for key, count, size in _totals(usage, lambda one: one.stream)
                ]
            ),
        )

    def health(self) -> Health:
        health = self._journal.health()
        state: str = health.state
        head_seq = 0
        if state != "closed":
            try:
                if state == "ok":
                    self._journal.check_place()
                head_seq = self._state.upto()
            except NotFound:
                state = "moved"
        return Health(
            state=state,
            kind=self._journal.capabilities.kind,
            path=self._path,
            read_only=self._journal.read_only,
            durability=self._durability,
            head_seq=head_seq,
            durable_seq=health.durable_seq,
            notices=health.notices,
        )

    def _followable(self, after: int, *, durable: bool) -> int:
        if durable and not self._journal.capabilities.persistent:
            raise ContractError(
                "expected durable=False for a memory that is never on disk, got True",
                where="durable",
                reason=Reason.UNSUPPORTED,
            )
        return _seq(after, "after")


def _totals(usage: Sequence[Usage], key_of: Callable[[Usage], T]) -> list[tuple[T, int, int]]:
    """Events and bytes by some key, the largest first."""
    totals: dict[T, tuple[int, int]] = {}
    for one in usage:
        count, size = totals.get(key_of(one), (0, 0))
        totals[key_of(one)] = (count + one.event_count, size + one.payload_bytes)
    rows = [(key, count, size) for key, (count, size) in totals.items()]
    return sorted(rows, key=lambda row: (-row[2], -row[1]))


def _filter(
    stream_prefix: Sequence[str] | None,
    types: Sequence[str] | None,
    actor: str | None,
    run_id: str | None,
) -> Callable[[Envelope], bool] | None:
    prefix = () if stream_prefix is None else _prefix(stream_prefix, "stream_prefix")
    wanted = None if types is None else frozenset(_types(types))
    for name, value in (("actor", actor), ("run_id", run_id)):
        if value is not None:
            check_text(value, name)
    if not prefix and wanted is None and actor is None and run_id is None:
        return None

    def keep(event: Envelope) -> bool:
        return (
            event.stream[: len(prefix)] == prefix
            and (wanted is None or event.type in wanted)
            and (actor is None or event.actor == actor)
            and (run_id is None or event.run_id == run_id)
        )

    return keep


def _types(types: Sequence[str]) -> tuple[str, ...]:
    try:
        items = as_tuple(types, "types")
        return tuple([check_text(one, f"[{number}]") for number, one in enumerate(items)])
    except ContractError as error:
        raise error.within("types") from None


def _prefix(labels: Sequence[str], where: str) -> Stream:
    try:
        return () if as_tuple(labels, "str labels") == () else check_stream(labels)
    except ContractError as error:
        raise error.within(where) from None


def _integer(value: int, where: str) -> int:
    try:
        return check_int(value)
    except ContractError as error:
        raise error.within(where) from None


def _seq(value: int, where: str) -> int:
    seq = _integer(value, where)
    if seq < 0:
        raise ContractError(
            f"expected 0 (from the beginning) or more, got {seq}",
            where=where,
            reason=Reason.OUT_OF_RANGE,
        )
    return seq


def _at_least_one(value: int, where: str) -> int:
    if _seq(value, where) < 1:
        raise ContractError(
            f"expected 1 or more, got {value}", where=where, reason=Reason.OUT_OF_RANGE
        )
    return value


def _page_limit(limit: int) -> int:
    if _at_least_one(limit, "limit") > SCAN_LIMIT_MAX:
        raise ContractError(
            f"expected 1 to {SCAN_LIMIT_MAX}, got {limit}; follow next_cursor for more",
            where="limit",
            reason=Reason.OUT_OF_RANGE,
        )
    return limit


def _cursor(cursor: object) -> str | None:
    if cursor is None or isinstance(cursor, str):
        return cursor
    raise InvalidCursor("expected the text of a cursor", cursor=brief(cursor))
