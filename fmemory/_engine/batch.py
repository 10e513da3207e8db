"""A batch: operations that were checked at once and are written together when its block ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fmemory._engine.work import Operation
from fmemory._json_values import JsonObject
from fmemory.errors import ContractError, Reason
from fmemory.log import Batch
from fmemory.log_models import NewEvent
from fmemory.record_models import (
    ClearRequest,
    DeleteRequest,
    MemoryRecord,
    MetaSetRequest,
    Note,
    PutRequest,
    VectorLike,
)
from fmemory.session_models import (
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
)

if TYPE_CHECKING:
    from fmemory._engine.backend import JournalBackend


class JournalBatch(Batch):
    """Collects what the backend's own operations would do."""

    def __init__(self, memory: JournalBackend) -> None:
        self._memory = memory
        self._operations: list[Operation[object]] = []
        self._ended = False

    def end(self) -> list[Operation[object]]:
        """What was collected; nothing can be added afterwards."""
        self._ended = True
        return self._operations

    def put(self, request: PutRequest) -> None:
        self._add(self._memory._put(request))

    def add_note(
        self,
        text: str,
        vector: VectorLike = (),
        *,
        id: str | None = None,  # noqa: A002 - the note's field
        timestamp: float | None = None,
        metadata: JsonObject | None = None,
        namespace: Sequence[str] = (),
        embedding_id: str | None = None,
    ) -> Note:
        note = Note.create(text, timestamp=timestamp, metadata=metadata, id=id)
        record = MemoryRecord.create(note, vector, embedding_id, namespace)
        self.put(self._memory.put_request((record,)))
        return note

    def delete(self, request: DeleteRequest) -> None:
        self._add(self._memory._delete(request))

    def set_meta(self, request: MetaSetRequest) -> None:
        self._add(self._memory._set_meta(request))

    def clear(self, request: ClearRequest) -> None:
        self._add(self._memory._clear(request))

    def initialize_session_if_missing(
        self,
        session_id: str,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> None:
        self._add(
            self._memory._initialize(
                session_id, manifest, feature_list, initial_progress_entry, initial_checkpoint
            )
        )

    def save_manifest(
        self,
        session_id: str,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._save_manifest(session_id, manifest, options))

    def append_progress_entry(
        self,
        session_id: str,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._append_progress(session_id, entry, options))

    def replace_feature_list(
        self,
        session_id: str,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._replace_features(session_id, feature_list, options))

    def update_feature_pass(
        self,
        session_id: str,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._update_feature(session_id, feature_id, passes, options))

    def record_run_checkpoint(
        self,
        session_id: str,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._record_checkpoint(session_id, checkpoint, options))

    def append_transcript_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._append_messages(session_id, messages, options))

    def truncate_transcript(
        self,
        session_id: str,
        *,
        keep: int,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._truncate(session_id, keep, options))

    def delete_session(
        self,
        session_id: str,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> None:
        options = self._memory._options(event_id, expected_revision)
        self._add(self._memory._delete_session(session_id, options))

    def append(
        self,
        stream: Sequence[str],
        events: Sequence[NewEvent],
        *,
        expected_revision: int | None = None,
    ) -> None:
        self._add(self._memory._append(stream, events, expected_revision))

    def _add(self, operation: Operation[object]) -> None:
        if self._ended:
            raise ContractError(
                "expected an operation inside the batch's block, got one after it ended; nothing"
                " was written; begin a new batch",
                where="batch",
                reason=Reason.UNSUPPORTED,
            )
        self._operations.append(operation)
