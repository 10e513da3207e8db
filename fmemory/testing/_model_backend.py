"""The contract in plain Python: dicts, lists and sorting, no log and no cleverness.

It is what random operations are compared with, and it runs the suite itself, as anybody's own store
would: the abstract contract can be implemented in a page. It must never share code with the engine.
"""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeVar
from zlib import crc32

import msgspec

from fmemory._json_values import JsonValue
from fmemory.backend import MemoryBackend
from fmemory.errors import (
    ClosedStore,
    ContractError,
    DuplicateRecord,
    InvalidCursor,
    NotFound,
    Reason,
)
from fmemory.log_models import Receipt
from fmemory.record_models import (
    ClearRequest,
    ClearResult,
    CountRequest,
    CountResult,
    DeleteRequest,
    DeleteResult,
    GetRequest,
    GetResult,
    MemoryRecord,
    MetaGetRequest,
    MetaResult,
    MetaSetRequest,
    PutRequest,
    PutResult,
    ScanRequest,
    ScanResult,
    TimeRange,
    check_put,
)
from fmemory.records import check_request
from fmemory.session_models import (
    BootstrapState,
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
    check_features,
    check_session_id,
)
from fmemory.sessions import check_manifest, check_messages, transcript_window

__all__ = ["ModelBackend", "ModelSession", "ModelState"]

Namespace = tuple[str, ...]
T = TypeVar("T")


@dataclass(slots=True)
class ModelSession:
    """What is known of one session."""

    manifest: SessionManifest | None = None
    features: tuple[FeatureRecord, ...] = ()
    progress: tuple[ProgressEntry, ...] = ()
    checkpoints: tuple[RunCheckpoint, ...] = ()
    messages: tuple[Message, ...] = ()
    revision: int = 0


@dataclass(slots=True)
class ModelState:
    """Everything the model holds. Values in it are never changed, only replaced."""

    records: dict[Namespace, dict[str, tuple[int, MemoryRecord]]] = field(default_factory=dict)
    meta: dict[Namespace, dict[str, JsonValue]] = field(default_factory=dict)
    sessions: dict[str, ModelSession] = field(default_factory=dict)
    writes: int = 0

    def copy(self) -> ModelState:
        """The same state, to go its own way."""
        return ModelState(
            {space: dict(rows) for space, rows in self.records.items()},
            {space: dict(values) for space, values in self.meta.items()},
            {one: copy.copy(session) for one, session in self.sessions.items()},
            self.writes,
        )


class ModelBackend(MemoryBackend):
    """A memory in dicts."""

    def __init__(self) -> None:
        self.state = ModelState()
        self._store_id = secrets.token_hex(8)
        self._lock = RLock()
        self._closed = False

    # Records

    def put(self, request: PutRequest) -> PutResult:
        records = check_put(check_request(request, self.put_request))
        with self._open():
            taken: dict[Namespace, list[str]] = {}
            for one in records:
                if one.id in self.state.records.get(one.namespace, {}):
                    taken.setdefault(one.namespace, []).append(one.id)
            for namespace, ids in taken.items():
                raise DuplicateRecord(tuple(ids), namespace)
            for one in records:
                self.state.writes += 1
                rows = self.state.records.setdefault(one.namespace, {})
                rows[one.id] = (self.state.writes, _own(one))
        return PutResult(written=len(records))

    def get(self, request: GetRequest) -> GetResult:
        check_request(request, self.get_request)
        with self._open():
            rows = self.state.records.get(request.namespace, {})
            ids = list(dict.fromkeys(request.ids))
            found = tuple(_own(rows[one][1]) for one in ids if one in rows)
            return GetResult(found, tuple(one for one in ids if one not in rows))

    def delete(self, request: DeleteRequest) -> DeleteResult:
        check_request(request, self.delete_request)
        with self._open():
            rows = self.state.records.get(request.namespace, {})
            ids = list(dict.fromkeys(request.ids))
            missing = tuple(one for one in ids if one not in rows)
            for one in ids:
                rows.pop(one, None)
        return DeleteResult(deleted=len(ids) - len(missing), missing=missing)

    def scan(self, request: ScanRequest) -> ScanResult:
        check_request(request, self.scan_request)
        with self._open():
            rows = self._selected(request.namespace, request.time_range)
            if request.cursor is not None:
                after = self._position(request.cursor, request.namespace)
                rows = [row for row in rows if _place(row) > after]
            page = rows[: request.limit]
            more = len(rows) > len(page)
            cursor = self._cursor(request.namespace, _place(page[-1])) if more else None
            return ScanResult(tuple(_own(one) for _order, one in page), cursor)

    def count(self, request: CountRequest) -> CountResult:
        check_request(request, self.count_request)
        with self._open():
            return CountResult(len(self._selected(request.namespace, request.time_range)))

    def get_meta(self, request: MetaGetRequest) -> MetaResult:
        check_request(request, self.meta_get_request)
        with self._open():
            return MetaResult(self.state.meta.get(request.namespace, {}).get(request.key))

    def set_meta(self, request: MetaSetRequest) -> MetaResult:
        check_request(request, self.meta_set_request)
        with self._open():
            values = self.state.meta.setdefault(request.namespace, {})
            values[request.key] = copy.deepcopy(request.value)
        return MetaResult(request.value)

    def clear(self, request: ClearRequest) -> ClearResult:
        check_request(request, self.clear_request)
        with self._open():
            self.state.meta.pop(request.namespace, None)
            return ClearResult(len(self.state.records.pop(request.namespace, {})))

    # Sessions

    def is_initialized(self, session_id: str) -> bool:
        return self._session(session_id).manifest is not None

    def initialize_session_if_missing(
        self,
        session_id: str,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> bool:
        check_manifest(check_session_id(session_id), manifest)
        features = check_features(feature_list)
        progress = _optional(initial_progress_entry, ProgressEntry)
        checkpoints = _optional(initial_checkpoint, RunCheckpoint)
        with self._open():
            session = self._session(session_id)
            if session.manifest is not None:
                return False
            self._change(
                session_id,
                ModelSession(
                    copy.deepcopy(manifest),
                    features,
                    session.progress + progress,
                    session.checkpoints + checkpoints,
                    session.messages,
                ),
            )
            return True

    def load_bootstrap_state(self, session_id: str) -> BootstrapState:
        session = copy.deepcopy(self._session(session_id))
        return BootstrapState(
            session.manifest,
            session.features,
            session.progress,
            session.checkpoints,
            session.revision,
        )

    def save_manifest(
        self,
        session_id: str,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        check_manifest(check_session_id(session_id), manifest)
        with self._checked(event_id, expected_revision):
            changed = copy.copy(self._session(session_id))
            changed.manifest = copy.deepcopy(manifest)
            return self._change(session_id, changed)

    def append_progress_entry(
        self,
        session_id: str,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        _required(entry, ProgressEntry)
        with self._checked(event_id, expected_revision):
            changed = copy.copy(self._session(session_id))
            changed.progress += (entry,)
            return self._change(session_id, changed)

    def replace_feature_list(
        self,
        session_id: str,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        features = check_features(feature_list)
        with self._checked(event_id, expected_revision):
            changed = copy.copy(self._session(session_id))
            changed.features = features
            return self._change(session_id, changed)

    def update_feature_pass(
        self,
        session_id: str,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        _required(feature_id, str)
        _required(passes, bool)
        with self._checked(event_id, expected_revision):
            changed = copy.copy(self._session(session_id))
            if feature_id not in {one.id for one in changed.features}:
                raise NotFound("feature", reason=Reason.FEATURE_NOT_FOUND, key=feature_id)
            changed.features = tuple(
                msgspec.structs.replace(one, passes=passes) if one.id == feature_id else one
                for one in changed.features
            )
            return self._change(session_id, changed)

    def record_run_checkpoint(
        self,
        session_id: str,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        _required(checkpoint, RunCheckpoint)
        with self._checked(event_id, expected_revision):
            changed = copy.copy(self._session(session_id))
            changed.checkpoints += (checkpoint,)
            return self._change(session_id, changed)

    def load_transcript_messages(
        self,
        session_id: str,
        *,
        last: int | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[Message, ...]:
        messages = self._session(session_id).messages
        window = transcript_window(len(messages), last, after, limit)
        return copy.deepcopy(messages[window.start : window.stop])

    def append_transcript_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        checked = copy.deepcopy(check_messages(messages))
        with self._checked(event_id, expected_revision):
            changed = copy.copy(self._session(session_id))
            changed.messages += checked
            return self._change(session_id, changed)

    def close(self) -> None:
        self._closed = True
        super().close()

    # Private

    def _open(self) -> RLock:
        if self._closed:
            raise ClosedStore("model: expected an open store")
        return self._lock

    def _checked(self, event_id: str | None, expected_revision: int | None) -> RLock:
        if event_id is not None or expected_revision is not None:
            raise ContractError("expected none: there is no log", reason=Reason.UNSUPPORTED)
        return self._open()

    def _session(self, session_id: str) -> ModelSession:
        with self._open():
            return self.state.sessions.get(check_session_id(session_id), ModelSession())

    def _change(self, session_id: str, changed: ModelSession) -> Receipt:
        before = self._session(session_id)
        changed.revision = before.revision
        if changed != before:
            changed.revision += 1
            self.state.sessions[session_id] = changed
        self.state.writes += 1
        events = changed.revision - before.revision
        return Receipt(self.state.writes, changed.revision, events, durable=False)

    def _selected(
        self, namespace: Namespace, time_range: TimeRange | None
    ) -> list[tuple[int, MemoryRecord]]:
        chosen = TimeRange() if time_range is None else time_range
        rows = self.state.records.get(namespace, {}).values()
        return sorted((row for row in rows if chosen.contains(row[1].note.timestamp)), key=_place)

    def _cursor(self, namespace: Namespace, place: tuple[float, int]) -> str:
        body = json.dumps([self._store_id, namespace, *place])
        return f"{crc32(body.encode()):08x}{body}"

    def _position(self, cursor: str, namespace: Namespace) -> tuple[float, int]:
        check, body = cursor[:8], cursor[8:]
        if check != f"{crc32(body.encode()):08x}" or not body.startswith("["):
            raise InvalidCursor("expected a whole cursor", cursor=cursor)
        store_id, labels, timestamp, order = json.loads(body)
        if (store_id, tuple(labels)) != (self._store_id, namespace):
            raise InvalidCursor(
                "expected one of this namespace", cursor=cursor, reason=Reason.CURSOR_FOREIGN
            )
        return timestamp, order


def _own(one: MemoryRecord) -> MemoryRecord:
    return MemoryRecord.create(one.note, one.vector, one.embedding_id, one.namespace)


def _place(row: tuple[int, MemoryRecord]) -> tuple[float, int]:
    return row[1].note.timestamp, row[0]


def _optional(value: T | None, kind: type[T]) -> tuple[T, ...]:
    return () if value is None else (_required(value, kind),)


def _required(value: T, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise ContractError(f"expected {kind.__name__}", reason=Reason.WRONG_TYPE)
    return value
