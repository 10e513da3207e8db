"""The suite can fail: each of these faults, planted into a store that passes, is caught.

Goal: no test of the suite is a tautology for the rules that matter most. Method: a subclass of the
model backend breaks one rule; the named test of the suite must fail on it and pass on the model.
What would have to break: a claim that stays green whatever the store does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from fmemory import (
    ClearRequest,
    ClearResult,
    CountRequest,
    CountResult,
    DeleteRequest,
    DeleteResult,
    DuplicateRecord,
    FeatureRecord,
    GetRequest,
    GetResult,
    Message,
    ProgressEntry,
    PutRequest,
    PutResult,
    Receipt,
    RunCheckpoint,
    ScanRequest,
    ScanResult,
    SessionManifest,
    TimeRange,
)
from fmemory.testing import MemoryBackendSuite, ModelBackend
from fmemory.testing.machine import run_machine


class PutInParts(ModelBackend):
    """Keeps what it wrote before it met a duplicate."""

    def put(self, request: PutRequest) -> PutResult:
        written = 0
        for one in request.records:
            written += super().put(PutRequest((one,))).written
        return PutResult(written)


class Overwrites(ModelBackend):
    """Replaces a record of the same id."""

    def put(self, request: PutRequest) -> PutResult:
        for one in request.records:
            self.state.records.get(one.namespace, {}).pop(one.id, None)
        return super().put(request)


class KeepsGivenArrays(ModelBackend):
    """Does not copy what it is given."""

    def put(self, request: PutRequest) -> PutResult:
        result = super().put(request)
        for one in request.records:
            rows = self.state.records[one.namespace]
            rows[one.id] = (rows[one.id][0], one)
        return result


class ClosedRange(ModelBackend):
    """Takes the end of a range to be inside of it."""

    def scan(self, request: ScanRequest) -> ScanResult:
        chosen = request.time_range
        if chosen is not None and chosen.end is not None:
            wider = TimeRange(chosen.start, chosen.end + 1e-9)
            request = msgspec.structs.replace(request, time_range=wider)
        return super().scan(request)


class CountsWrong(ModelBackend):
    """Counts all records whatever the range."""

    def count(self, request: CountRequest) -> CountResult:
        return super().count(CountRequest(None, request.namespace))


class EmptyLastPage(ModelBackend):
    """Gives a cursor whenever a page is full, so that the last may be empty."""

    def scan(self, request: ScanRequest) -> ScanResult:
        result = super().scan(request)
        if result.next_cursor is None and len(result.records) == request.limit:
            last = result.records[-1]
            order = self.state.records[request.namespace][last.id][0]
            cursor = self._cursor(request.namespace, (last.note.timestamp, order))
            return ScanResult(result.records, cursor)
        return result


class TiesById(ModelBackend):
    """Orders equal timestamps by id."""

    def scan(self, request: ScanRequest) -> ScanResult:
        result = super().scan(request)
        ordered = sorted(result.records, key=lambda one: (one.note.timestamp, one.id))
        return ScanResult(tuple(ordered), result.next_cursor)


class JoinsLabels(ModelBackend):
    """Joins the labels of a namespace by dots."""

    def count(self, request: CountRequest) -> CountResult:
        wanted = ".".join(request.namespace)
        spaces = [one for one in self.state.records if ".".join(one) == wanted]
        return CountResult(sum(len(self.state.records[one]) for one in spaces))


class RaisesForUnknown(ModelBackend):
    """Refuses unknown ids."""

    def get(self, request: GetRequest) -> GetResult:
        result = super().get(request)
        return GetResult(result.records, ())


class CountsRepeats(ModelBackend):
    """Counts an id that is named twice twice."""

    def delete(self, request: DeleteRequest) -> DeleteResult:
        result = super().delete(request)
        repeats = len(request.ids) - len(set(request.ids))
        return DeleteResult(result.deleted + repeats, result.missing)


class ClearsBelow(ModelBackend):
    """Clears the namespaces below, too."""

    def clear(self, request: ClearRequest) -> ClearResult:
        for one in list(self.state.records):
            if one[: len(request.namespace)] == request.namespace and one != request.namespace:
                self.state.records.pop(one)
        return super().clear(request)


class KeepsMeta(ModelBackend):
    """Clears records only."""

    def clear(self, request: ClearRequest) -> ClearResult:
        meta = dict(self.state.meta)
        result = super().clear(request)
        self.state.meta = meta
        return result


class InitializesAgain(ModelBackend):
    """Overwrites the manifest of a session that has one."""

    def initialize_session_if_missing(
        self,
        session_id: str,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> bool:
        first = super().initialize_session_if_missing(
            session_id, manifest, feature_list, initial_progress_entry, initial_checkpoint
        )
        self.save_manifest(session_id, manifest)
        return first


class SortsMessages(ModelBackend):
    """Orders messages by their time."""

    def append_transcript_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        ordered = sorted(messages, key=lambda one: str(one.created_at))
        return super().append_transcript_messages(
            session_id, ordered, event_id=event_id, expected_revision=expected_revision
        )


class ForgetsAThird(ModelBackend):
    """Loses the third record of a namespace: only a sequence of steps shows it."""

    def put(self, request: PutRequest) -> PutResult:
        try:
            return super().put(request)
        finally:
            for rows in self.state.records.values():
                if len(rows) > 2:
                    rows.pop(list(rows)[2])


@dataclass(frozen=True)
class Suite(MemoryBackendSuite):
    """The suite over one kind of store, to be called test by test."""

    kind: type[ModelBackend]

    def open_backend(self, location: str) -> ModelBackend:
        del location  # nothing outlives a handle
        return self.kind()


Claim = Callable[[MemoryBackendSuite, ModelBackend], None]
FAULTS: list[tuple[type[ModelBackend], Claim]] = [
    (PutInParts, MemoryBackendSuite.test_one_duplicate_among_many_refuses_all),
    (Overwrites, MemoryBackendSuite.test_put_of_an_existing_id_is_refused),
    (KeepsGivenArrays, MemoryBackendSuite.test_given_vector_can_be_changed_afterwards),
    (KeepsGivenArrays, MemoryBackendSuite.test_given_metadata_can_be_changed_afterwards),
    (ClosedRange, MemoryBackendSuite.test_three_records_in_a_half_open_range_by_pages_of_one),
    (CountsWrong, MemoryBackendSuite.test_count_is_half_open),
    (EmptyLastPage, MemoryBackendSuite.test_three_records_in_a_half_open_range_by_pages_of_one),
    (TiesById, MemoryBackendSuite.test_scan_orders_equal_timestamps_by_write_order),
    (JoinsLabels, MemoryBackendSuite.test_every_operation_keeps_to_its_namespace),
    (RaisesForUnknown, MemoryBackendSuite.test_get_reports_unknown_ids_in_request_order),
    (CountsRepeats, MemoryBackendSuite.test_delete_counts_a_repeated_id_once),
    (ClearsBelow, MemoryBackendSuite.test_clear_keeps_records_of_other_namespaces),
    (KeepsMeta, MemoryBackendSuite.test_cleared_namespace_has_no_meta),
    (InitializesAgain, MemoryBackendSuite.test_second_initialize_overwrites_nothing),
    (SortsMessages, MemoryBackendSuite.test_messages_whose_times_go_back_keep_write_order),
]


@pytest.mark.parametrize(("kind", "claim"), FAULTS, ids=lambda one: one.__name__)
def test_planted_fault_is_caught(kind: type[ModelBackend], claim: Claim) -> None:
    claim(Suite(ModelBackend), ModelBackend())
    with pytest.raises((AssertionError, DuplicateRecord, pytest.fail.Exception)):
        claim(Suite(kind), kind())


class PatientSuite(Suite):
    """Random operations until the fault is met, which ends them."""

    MACHINE_ROUNDS = 300


def test_fault_that_needs_several_steps_is_caught_by_random_operations(tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_machine(PatientSuite(ForgetsAThird), tmp_path)
