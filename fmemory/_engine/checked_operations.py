"""What a caller asks to be written, checked: an operation each, for single writes and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fmemory._audit import Audit, current_audit, default_actor
from fmemory._engine import record_operations, session_operations
from fmemory._engine.arguments import (
    check_checkpoint,
    check_feature_id,
    check_keep,
    check_own_stream,
    check_passes,
    check_progress,
    emissions_of,
    write_options,
)
from fmemory._engine.rows import encode_puts
from fmemory._engine.session_operations import WriteOptions
from fmemory._engine.work import Operation
from fmemory._receipt import Receipt
from fmemory.log_models import NewEvent
from fmemory.record_models import (
    ClearRequest,
    ClearResult,
    DeleteRequest,
    DeleteResult,
    MetaResult,
    MetaSetRequest,
    PutRequest,
    PutResult,
    check_put,
)
from fmemory.records import check_request
from fmemory.session_models import (
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
    check_features,
    check_session_id,
)
from fmemory.sessions import check_manifest, check_messages

_NOBODY = Audit()


class CheckedOperations:
    """Makes operations of arguments that it has checked, under the audit values that hold here.

    Each raises ContractError where an argument breaks a rule.
    """

    put_request: ClassVar[type[PutRequest]]
    delete_request: ClassVar[type[DeleteRequest]]
    meta_set_request: ClassVar[type[MetaSetRequest]]
    clear_request: ClassVar[type[ClearRequest]]

    _bound = _NOBODY
    _audit_of = (_NOBODY, "", _NOBODY)

    def _options(
        self, event_id: str | None = None, expected_revision: int | None = None
    ) -> WriteOptions:
        around = current_audit()
        audit = around if self._bound is _NOBODY else self._bound.over(around)
        if audit.actor is None:
            actor = default_actor()
            # Mostly the same audit, known by identity: hashing one costs more than making one.
            of, by, known = self._audit_of
            audit = known if of is audit and by == actor else self._with_actor(audit, actor)
        return write_options(audit, event_id, expected_revision)

    def _with_actor(self, audit: Audit, actor: str) -> Audit:
        known = Audit(actor=actor).over(audit)
        self._audit_of = (audit, actor, known)
        return known

    def _put(self, request: PutRequest) -> Operation[PutResult]:
        records = check_put(check_request(request, self.put_request))
        options = self._options(request.event_id, request.expected_revision)
        return record_operations.put(encode_puts(records), options)

    def _delete(self, request: DeleteRequest) -> Operation[DeleteResult]:
        check_request(request, self.delete_request)
        return record_operations.delete(
            request.namespace,
            tuple(dict.fromkeys(request.ids)),
            self._options(request.event_id, request.expected_revision),
        )

    def _set_meta(self, request: MetaSetRequest) -> Operation[MetaResult]:
        check_request(request, self.meta_set_request)
        return record_operations.set_meta(
            request.namespace,
            request.key,
            request.value,
            self._options(request.event_id, request.expected_revision),
        )

    def _clear(self, request: ClearRequest) -> Operation[ClearResult]:
        check_request(request, self.clear_request)
        return record_operations.clear(
            request.namespace, self._options(request.event_id, request.expected_revision)
        )

    def _initialize(
        self,
        session_id: str,
        manifest: SessionManifest,
        features: Sequence[FeatureRecord],
        progress: ProgressEntry | None,
        checkpoint: RunCheckpoint | None,
    ) -> Operation[bool]:
        return session_operations.initialize(
            check_session_id(session_id),
            check_manifest(session_id, manifest),
            check_features(features),
            None if progress is None else check_progress(progress, "initial_progress_entry"),
            None if checkpoint is None else check_checkpoint(checkpoint, "initial_checkpoint"),
            self._options(),
        )

    def _save_manifest(
        self, session_id: str, manifest: SessionManifest, options: WriteOptions
    ) -> Operation[Receipt]:
        check_session_id(session_id)
        checked = check_manifest(session_id, manifest)
        return session_operations.save_manifest(session_id, checked, options)

    def _append_progress(
        self, session_id: str, entry: ProgressEntry, options: WriteOptions
    ) -> Operation[Receipt]:
        return session_operations.append_progress(
            check_session_id(session_id), check_progress(entry, "entry"), options
        )

    def _replace_features(
        self, session_id: str, features: Sequence[FeatureRecord], options: WriteOptions
    ) -> Operation[Receipt]:
        return session_operations.replace_features(
            check_session_id(session_id), check_features(features), options
        )

    def _update_feature(
        self, session_id: str, feature_id: str, passes: bool, options: WriteOptions
    ) -> Operation[Receipt]:
        return session_operations.update_feature(
            check_session_id(session_id),
            check_feature_id(feature_id),
            check_passes(passes),
            options,
        )

    def _record_checkpoint(
        self, session_id: str, checkpoint: RunCheckpoint, options: WriteOptions
    ) -> Operation[Receipt]:
        return session_operations.record_checkpoint(
            check_session_id(session_id), check_checkpoint(checkpoint, "checkpoint"), options
        )

    def _append_messages(
        self, session_id: str, messages: Sequence[Message], options: WriteOptions
    ) -> Operation[Receipt]:
        return session_operations.append_messages(
            check_session_id(session_id), check_messages(messages), options
        )

    def _truncate(self, session_id: str, keep: int, options: WriteOptions) -> Operation[Receipt]:
        check_session_id(session_id)
        return session_operations.truncate_transcript(session_id, check_keep(keep), options)

    def _delete_session(self, session_id: str, options: WriteOptions) -> Operation[Receipt]:
        return session_operations.delete_session(check_session_id(session_id), options)

    def _append(
        self, stream: Sequence[str], events: Sequence[NewEvent], expected_revision: int | None
    ) -> Operation[Receipt]:
        labels = check_own_stream(stream, sessions=True)
        options = self._options(expected_revision=expected_revision)
        return record_operations.append(labels, emissions_of(events), options)
