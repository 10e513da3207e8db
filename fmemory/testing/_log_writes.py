"""Receipts, expected revisions, `append`, `batch`, idempotency keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fmemory._json_values import JsonValue
from fmemory.backend import LogBackend
from fmemory.errors import Conflict, ContractError, DuplicateRecord, NotFound, Reason
from fmemory.log_models import NewEvent, Receipt
from fmemory.testing._backend_base import Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._log_base import LogSuiteBase, as_log, events, said_event, types
from fmemory.testing._records_meta import VALUES
from fmemory.testing._samples import count, moment, record, records, scan, scan_ids
from fmemory.testing._sessions_samples import checkpoint, entry, features, manifest, said

Write = Callable[[LogBackend, "str | None", "int | None"], "Receipt | None"]


def _put(log: LogBackend, event_id: str | None, expected: int | None) -> Receipt | None:
    request = log.put_request((record("w"),), event_id=event_id, expected_revision=expected)
    return log.put(request).receipt


def _delete(log: LogBackend, event_id: str | None, expected: int | None) -> Receipt | None:
    request = log.delete_request(("r0",), event_id=event_id, expected_revision=expected)
    return log.delete(request).receipt


def _set_meta(log: LogBackend, event_id: str | None, expected: int | None) -> Receipt | None:
    request = log.meta_set_request("k", "w", event_id=event_id, expected_revision=expected)
    return log.set_meta(request).receipt


def _clear(log: LogBackend, event_id: str | None, expected: int | None) -> Receipt | None:
    request = log.clear_request(event_id=event_id, expected_revision=expected)
    return log.clear(request).receipt


def _append(log: LogBackend, event_id: str | None, expected: int | None) -> Receipt | None:
    return log.append(LogSuiteBase.STREAM, (said_event("w", event_id),), expected_revision=expected)


def _delete_stream(log: LogBackend, event_id: str | None, expected: int | None) -> Receipt | None:
    return log.delete_stream(LogSuiteBase.STREAM, event_id=event_id, expected_revision=expected)


def _of_session(name: str, *arguments: object, **options: object) -> Write:
    def write(log: LogBackend, event_id: str | None, expected: int | None) -> Receipt | None:
        operation: Callable[..., Receipt] = getattr(log, name)
        return operation("s1", *arguments, event_id=event_id, expected_revision=expected, **options)

    return write


# Every write that takes an event id and an expected revision: its stream, and how it is called.
WRITES: dict[str, tuple[tuple[str, ...], Write]] = {
    "put": (("records",), _put),
    "delete": (("records",), _delete),
    "set_meta": (("meta",), _set_meta),
    "clear": (("records",), _clear),
    "append": (LogSuiteBase.STREAM, _append),
    "delete_stream": (LogSuiteBase.STREAM, _delete_stream),
    "save_manifest": (("session", "s1"), _of_session("save_manifest", manifest())),
    "append_progress_entry": (("session", "s1"), _of_session("append_progress_entry", entry(9))),
    "replace_feature_list": (
        ("session", "s1"),
        _of_session("replace_feature_list", features("f9")),
    ),
    "update_feature_pass": (
        ("session", "s1"),
        _of_session("update_feature_pass", "f1", True),
    ),
    "record_run_checkpoint": (
        ("session", "s1"),
        _of_session("record_run_checkpoint", checkpoint(9)),
    ),
    "append_transcript_messages": (
        ("session", "s1"),
        _of_session("append_transcript_messages", said("w")),
    ),
    "truncate_transcript": (("session", "s1"), _of_session("truncate_transcript", keep=0)),
    "delete_session": (("session", "s1"), _of_session("delete_session")),
}


@needs(Capability.LOG)
class ReceiptPart(LogSuiteBase):
    """What receipts say of every write."""

    def prepare(self, log: LogBackend) -> None:
        """So that every write changes something."""
        self.fill(log)
        log.replace_feature_list("s1", features("f1"))

    @pytest.mark.parametrize("name", WRITES)
    def test_receipt_names_the_newest_seq_and_revision(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        stream, write = WRITES[name]
        receipt = write(log, None, None)
        last = events(log)[-1]
        assert receipt is not None
        assert (receipt.seq, receipt.revision) == (last.seq, last.revision)
        assert last.stream == stream

    @pytest.mark.parametrize("name", WRITES)
    def test_receipt_counts_the_events_written(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        before = log.head().seq
        receipt = WRITES[name][1](log, None, None)
        assert receipt is not None
        assert receipt.event_count == log.head().seq - before >= 1

    @pytest.mark.parametrize("name", WRITES)
    def test_matching_expected_revision_is_accepted(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        stream, write = WRITES[name]
        receipt = write(log, None, self.revision(log, stream))
        assert receipt is not None
        assert receipt.event_count >= 1

    @pytest.mark.parametrize("name", WRITES)
    def test_other_expected_revision_is_a_conflict(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        stream, write = WRITES[name]
        actual = self.revision(log, stream)
        for expected in (actual - 1, actual + 1, actual + 100):
            with self.refused(log, Conflict, Reason.REVISION_MISMATCH) as caught:
                write(log, None, expected)
            error = caught.value
            assert (error.stream, error.expected, error.actual) == (stream, expected, actual)

    @pytest.mark.parametrize("name", WRITES)
    def test_expected_revision_that_is_no_count_is_refused(
        self, log: LogBackend, name: str
    ) -> None:
        self.prepare(log)
        wrong = (-1, True, "1", 1.0, 2**70)
        with self.nothing_written(log):
            for expected in wrong:
                with pytest.raises(ContractError):
                    WRITES[name][1](log, None, expected)  # type: ignore[arg-type]  # the claim

    @pytest.mark.parametrize("name", WRITES)
    def test_bad_event_id_is_refused(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        with self.nothing_written(log):
            for event_id in ("", 1, b"k", "k\ud800", "k" * 1025):
                with pytest.raises(ContractError):
                    WRITES[name][1](log, event_id, None)  # type: ignore[arg-type]  # the claim

    def test_expected_revision_zero_means_a_new_stream(self, log: LogBackend) -> None:
        receipt = log.append(self.STREAM, (said_event(),), expected_revision=0)
        assert receipt.revision == 1
        with self.refused(log, Conflict, Reason.REVISION_MISMATCH):
            log.append(self.STREAM, (said_event(),), expected_revision=0)

    def test_second_writer_with_one_revision_is_refused(self, log: LogBackend) -> None:
        known = log.append(self.STREAM, (said_event("a"),)).revision
        log.append(self.STREAM, (said_event("b"),), expected_revision=known)
        with self.refused(log, Conflict, Reason.REVISION_MISMATCH):
            log.append(self.STREAM, (said_event("c"),), expected_revision=known)

    def test_writes_to_other_streams_do_not_move_a_revision(self, log: LogBackend) -> None:
        known = log.append(self.STREAM, (said_event("a"),)).revision
        log.append(("tools",), (said_event(),))
        log.append((*self.STREAM, "x"), (said_event(),))
        assert log.append(self.STREAM, (said_event("b"),), expected_revision=known).revision == 2

    def test_bootstrap_state_tells_the_revision_to_expect(self, log: LogBackend) -> None:
        log.append_progress_entry("s1", entry(1))
        known = log.load_bootstrap_state("s1").revision
        assert log.save_manifest("s1", manifest(), expected_revision=known).revision == known + 1

    def test_expected_revision_of_a_put_into_two_namespaces_is_refused(
        self, log: LogBackend
    ) -> None:
        both = (record("x"), record("x", namespace=("a",)))
        with self.refused(log, ContractError, Reason.UNSUPPORTED):
            log.put(log.put_request(both, expected_revision=0))

    def test_write_that_changes_nothing_says_so(self, log: LogBackend) -> None:
        self.fill(log)
        receipt = log.append_transcript_messages("s1", ())
        assert (receipt.event_count, receipt.seq) == (0, log.head().seq)

    def test_revision_of_a_write_that_changes_nothing_is_the_streams(self, log: LogBackend) -> None:
        self.fill(log)
        known = log.load_bootstrap_state("s1").revision
        assert log.append_transcript_messages("s1", ()).revision == known

    @needs(Capability.PERSISTENT)
    @pytest.mark.parametrize("name", WRITES)
    def test_receipt_of_a_persistent_store_is_durable(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        receipt = WRITES[name][1](log, None, None)
        assert receipt is not None
        assert receipt.durable

    def revision(self, log: LogBackend, stream: tuple[str, ...]) -> int:
        """The revision of a stream; 0 for a new one."""
        newest = list(log.events(stream=stream, backwards=True, limit=1))
        return newest[0].revision if newest else 0


@needs(Capability.LOG)
class IdempotencyPart(LogSuiteBase):
    """What an event id promises."""

    def prepare(self, log: LogBackend) -> None:
        self.fill(log)
        log.replace_feature_list("s1", features("f1"))

    @pytest.mark.parametrize("name", WRITES)
    def test_same_write_again_writes_nothing(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        WRITES[name][1](log, "key", None)
        with self.nothing_written(log):
            WRITES[name][1](log, "key", None)

    @pytest.mark.parametrize("name", WRITES)
    def test_same_write_again_gets_the_first_receipt(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        first = WRITES[name][1](log, "key", None)
        log.append(("later",), (said_event(),))
        assert WRITES[name][1](log, "key", None) == first

    @pytest.mark.parametrize("name", WRITES)
    def test_event_id_is_looked_up_before_the_expected_revision(
        self, log: LogBackend, name: str
    ) -> None:
        self.prepare(log)
        first = WRITES[name][1](log, "key", None)
        assert WRITES[name][1](log, "key", 77) == first

    @pytest.mark.parametrize("name", WRITES)
    def test_event_carries_its_id(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        stream, write = WRITES[name]
        receipt = write(log, "key", None)
        found = log.find_event("key", stream=stream)
        assert found is not None
        assert receipt is not None
        assert (found.event_id, found.seq <= receipt.seq) == ("key", True)

    @needs(Capability.PERSISTENT)
    @pytest.mark.parametrize("name", WRITES)
    def test_event_id_is_known_after_a_reopen(self, stores: Stores, name: str) -> None:
        log = as_log(stores.open())
        self.prepare(log)
        first = WRITES[name][1](log, "key", None)
        log = as_log(stores.reopen(log))
        with self.nothing_written(log):
            assert WRITES[name][1](log, "key", None) == first

    def test_repeated_put_answers_as_the_first_did(self, log: LogBackend) -> None:
        request = log.put_request(tuple(records(1, 2)), event_id="key")
        assert log.put(request) == log.put(request)

    def test_repeated_put_is_no_duplicate_after_a_delete(self, log: LogBackend) -> None:
        request = log.put_request((record("a"),), event_id="key")
        first = log.put(request)
        self.delete(log, "a")
        assert log.put(request) == first
        assert scan_ids(log) == []

    def test_repeated_delete_answers_as_the_first_did(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        request = log.delete_request(("r0", "none", "r1"), event_id="key")
        assert log.delete(request) == log.delete(request)

    def test_repeated_clear_answers_as_the_first_did(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        request = log.clear_request(event_id="key")
        assert log.clear(request) == log.clear(request)

    def test_repeated_put_of_two_namespaces_writes_nothing(self, log: LogBackend) -> None:
        both = (record("x"), record("x", namespace=("a",)))
        request = log.put_request(both, event_id="key")
        first = log.put(request)
        with self.nothing_written(log):
            assert log.put(request) == first

    @pytest.mark.parametrize(
        "other",
        [
            record("a", 2.0),
            record("a", vector=[9.0]),
            record("a", text="other"),
            record("a", metadata={"other": 1}),
            record("a", embedding_id="m"),
            record("b"),
        ],
        ids=["time", "vector", "text", "metadata", "embedding id", "id"],
    )
    def test_put_of_another_record_under_one_event_id_is_a_conflict(
        self, log: LogBackend, other: object
    ) -> None:
        log.put(log.put_request((record("a"),), event_id="key"))
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED) as caught:
            log.put(log.put_request((other,), event_id="key"))  # type: ignore[arg-type]
        assert (caught.value.event_id, caught.value.stream) == ("key", ("records",))

    def test_other_message_under_one_event_id_is_a_conflict(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("a"), event_id="key")
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED):
            log.append_transcript_messages("s1", said("b"), event_id="key")

    def test_other_operation_under_one_event_id_is_a_conflict(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("a"), event_id="key")
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED):
            log.append_progress_entry("s1", entry(1), event_id="key")

    def test_other_data_under_one_event_id_is_a_conflict(self, log: LogBackend) -> None:
        log.append(self.STREAM, (said_event("a", "key"),))
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED):
            log.append(self.STREAM, (said_event("b", "key"),))

    def test_other_meta_value_under_one_event_id_is_a_conflict(self, log: LogBackend) -> None:
        log.set_meta(log.meta_set_request("k", 1, event_id="key"))
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED):
            log.set_meta(log.meta_set_request("k", 2, event_id="key"))

    @pytest.mark.parametrize("name", WRITES)
    def test_event_id_of_another_operation_is_a_conflict(self, log: LogBackend, name: str) -> None:
        self.prepare(log)
        stream, write = WRITES[name]
        match stream[0]:
            case "session" if name == "append_progress_entry":
                log.record_run_checkpoint("s1", checkpoint(5), event_id="key")
            case "session":
                log.append_progress_entry("s1", entry(5), event_id="key")
            case "records" if name == "put":
                log.delete(log.delete_request(("r0",), event_id="key"))
            case "records":
                log.put(log.put_request((record("other"),), event_id="key"))
            case "meta":
                log.set_meta(log.meta_set_request("other", "w", event_id="key"))
            case _:
                log.append(self.STREAM, (said_event("other", "key"),))
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED) as caught:
            write(log, "key", None)
        assert (caught.value.stream, caught.value.event_id) == (stream, "key")

    def test_delete_of_other_ids_under_one_event_id_is_a_conflict(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        log.delete(log.delete_request(("r0",), event_id="key"))
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED):
            log.delete(log.delete_request(("r1",), event_id="key"))

    def test_longer_append_under_one_event_id_is_a_conflict(self, log: LogBackend) -> None:
        log.append(self.STREAM, (said_event("a", "key"),))
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED):
            log.append(self.STREAM, (said_event("a", "key"), said_event("b")))

    def test_same_content_from_another_actor_is_the_same_write(self, log: LogBackend) -> None:
        first = log.bind(actor="ann", reason="one").append(self.STREAM, (said_event("a", "key"),))
        with self.nothing_written(log):
            again = log.bind(actor="bob").append(self.STREAM, (said_event("a", "key"),))
        assert again == first

    def test_event_id_is_unique_in_its_stream_only(self, log: LogBackend) -> None:
        log.append(("one",), (said_event("a", "key"),))
        assert log.append(("two",), (said_event("b", "key"),)).event_count == 1

    def test_append_of_several_events_again_writes_nothing(self, log: LogBackend) -> None:
        given = (said_event("a", "k1"), said_event("b"), said_event("c", "k2"))
        first = log.append(self.STREAM, given)
        with self.nothing_written(log):
            assert log.append(self.STREAM, given) == first

    def test_one_of_many_racing_writes_with_one_event_id_is_written(self, log: LogBackend) -> None:
        async def work() -> list[Receipt]:
            calls = [log.aappend(self.STREAM, (said_event("a", "key"),)) for _ in range(12)]
            return await asyncio.gather(*calls)

        receipts = asyncio.run(work())
        assert log.head().seq == 1
        assert all(one == receipts[0] for one in receipts)


@needs(Capability.LOG)
class AppendPart(LogSuiteBase):
    """What `append` promises."""

    @pytest.mark.parametrize("value", [*VALUES, b"", b"\x00\xff" * 50], ids=repr)
    def test_data_comes_back_with_its_types(
        self, log: LogBackend, value: JsonValue | bytes
    ) -> None:
        log.append(self.STREAM, (NewEvent("tool.finished", value),))
        assert repr(log.event(1).data) == repr(value)

    def test_a_megabyte_of_bytes_comes_back(self, log: LogBackend) -> None:
        data = bytes(range(256)) * 4096
        log.append(self.STREAM, (NewEvent("tool.finished", data),))
        assert log.event(1).data == data

    def test_event_keeps_its_time_of_occurrence(self, log: LogBackend) -> None:
        log.append(self.STREAM, (NewEvent("tool.finished", 1, None, moment(-5)),))
        assert log.event(1).occurred_at == moment(-5)

    def test_appended_events_are_in_order(self, log: LogBackend) -> None:
        log.append(self.STREAM, tuple(said_event(str(i)) for i in range(20)))
        assert [one.data for one in events(log)] == [str(i) for i in range(20)]

    def test_appending_no_events_writes_nothing(self, log: LogBackend) -> None:
        log.append(self.STREAM, (said_event(),))
        with self.nothing_written(log):
            assert log.append(self.STREAM, ()).event_count == 0

    def test_callers_events_may_go_into_a_sessions_stream(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("hello"))
        log.append(("session", "s1"), (said_event(),))
        assert types(list(log.history(session_id="s1"))) == ["transcript_appended", "word.said"]

    def test_callers_event_in_a_session_moves_its_revision(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("hello"))
        log.append(("session", "s1"), (said_event(),))
        assert log.load_bootstrap_state("s1").revision == 2

    def test_given_data_can_be_changed_afterwards(self, log: LogBackend) -> None:
        data: list[JsonValue] = [1]
        event = NewEvent("tool.finished", data)
        data.append(2)
        log.append(self.STREAM, (event,))
        assert log.event(1).data == [1]

    @pytest.mark.parametrize(
        "stream", [("records",), ("records", "a"), ("meta",), ("meta", "a", "b")]
    )
    def test_streams_of_records_and_meta_are_not_the_callers(
        self, log: LogBackend, stream: tuple[str, ...]
    ) -> None:
        self.fill(log)
        with self.nothing_written(log), pytest.raises(ContractError):
            log.append(stream, (said_event(),))

    @pytest.mark.parametrize("stream", [(), "tools", ("",), (1,), None, ("a\ud800",)])
    def test_bad_stream_is_refused(self, log: LogBackend, stream: object) -> None:
        with self.nothing_written(log), pytest.raises(ContractError):
            self.untyped(log, "append", stream, (said_event(),))

    def test_something_that_is_no_event_is_refused(self, log: LogBackend) -> None:
        wrong = (None, "x", (None,), (said_event(), 1), ({"type": "a.b"},))
        self.refuses_each(log, "append", wrong, self.STREAM)

    @pytest.mark.parametrize("name", ["records_put", "finished", "", "transcript_appended"])
    def test_type_without_a_dot_is_not_the_callers(self, name: str) -> None:
        with pytest.raises(ContractError):
            NewEvent(name, 1)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (float("nan"), Reason.NOT_FINITE),
            ({1: 2}, Reason.NOT_JSON),
            ({"a": 2**70}, Reason.OUT_OF_RANGE),
            ("a\ud800", Reason.LONE_SURROGATE),
            (lambda: 0, Reason.NOT_JSON),
        ],
    )
    def test_bad_data_is_refused(self, data: object, reason: Reason) -> None:
        with pytest.raises(ContractError) as caught:
            NewEvent("tool.finished", data)  # type: ignore[arg-type]  # that is the claim
        assert caught.value.reason is reason


@needs(Capability.LOG)
class BatchPart(LogSuiteBase):
    """What `batch` promises."""

    def test_batch_is_written_at_its_end(self, log: LogBackend) -> None:
        with log.batch() as batch:
            batch.put(log.put_request((record("a"),)))
            batch.append_transcript_messages("s1", said("hello"))
            inside = log.head().seq
        assert (inside, scan_ids(log)) == (0, ["a"])
        assert log.load_transcript_messages("s1") == said("hello")

    def test_batch_gives_one_receipt(self, log: LogBackend) -> None:
        with log.batch() as batch:
            batch.put(log.put_request((record("a"),)))
            batch.append(self.STREAM, (said_event("a"), said_event("b")))
            assert batch.receipt is None
        assert batch.receipt is not None
        assert (batch.receipt.seq, batch.receipt.event_count) == (3, 3)

    def test_batch_carries_one_time(self, log: LogBackend) -> None:
        with log.batch() as batch:
            batch.put(log.put_request((record("a"),)))
            batch.append(self.STREAM, (said_event(),))
        assert len({one.recorded_at for one in events(log)}) == 1

    def test_every_operation_may_be_in_a_batch(self, log: LogBackend) -> None:
        self.put(log, record("old"), record("gone", namespace=("a",)))
        with log.batch() as batch:
            batch.put(log.put_request((record("new"),)))
            batch.delete(log.delete_request(("old",)))
            batch.set_meta(log.meta_set_request("k", 1))
            batch.clear(log.clear_request(("a",)))
            batch.save_manifest("s1", manifest())
            batch.replace_feature_list("s1", features("f1"))
            batch.update_feature_pass("s1", "f1", True)
            batch.append_progress_entry("s1", entry(1))
            batch.record_run_checkpoint("s1", checkpoint(1))
            batch.append_transcript_messages("s1", said("x"))
            batch.append(self.STREAM, (said_event(),))
        state = log.load_bootstrap_state("s1")
        assert (scan_ids(log), count(log, ("a",)), self.get_meta(log, "k")) == (["new"], 0, 1)
        assert (state.manifest, state.feature_list) == (manifest(), features("f1", passes=True))
        assert (state.recent_progress, state.checkpoints) == ((entry(1),), (checkpoint(1),))

    def test_sessions_may_begin_shrink_and_end_in_a_batch(self, log: LogBackend) -> None:
        log.append_transcript_messages("s2", said("a", "b", "c"))
        log.append_transcript_messages("s3", said("gone"))
        with log.batch() as batch:
            batch.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
            batch.initialize_session_if_missing("s1", manifest(objective="late"), ())
            batch.truncate_transcript("s2", keep=1)
            batch.delete_session("s3")
        state = log.load_bootstrap_state("s1")
        assert (state.manifest, state.recent_progress) == (manifest(), (entry(1),))
        assert log.load_transcript_messages("s2") == said("a")
        assert log.load_transcript_messages("s3") == ()

    def test_note_may_be_added_in_a_batch(self, log: LogBackend) -> None:
        with log.batch() as batch:
            note = batch.add_note("tea", [1.0], namespace=("a",))
        assert [one.note for one in scan(log, ("a",))] == [note]

    def test_later_operation_sees_earlier_ones(self, log: LogBackend) -> None:
        with log.batch() as batch:
            batch.put(log.put_request((record("a", 1.0),)))
            batch.delete(log.delete_request(("a",)))
            batch.put(log.put_request((record("a", 2.0),)))
        assert [one.note.timestamp for one in scan(log)] == [2.0]

    def test_block_that_raises_writes_nothing(self, log: LogBackend) -> None:
        self.fill(log)
        with self.nothing_written(log), pytest.raises(ZeroDivisionError), log.batch() as batch:
            batch.put(log.put_request((record("a"),)))
            raise ZeroDivisionError

    def test_duplicate_within_a_batch_writes_nothing(self, log: LogBackend) -> None:
        with self.refused(log, DuplicateRecord, Reason.RECORD_EXISTS), log.batch() as batch:
            batch.append(self.STREAM, (said_event(),))
            batch.put(log.put_request((record("a"),)))
            batch.put(log.put_request((record("a", 2.0),)))

    def test_conflict_of_one_operation_writes_nothing(self, log: LogBackend) -> None:
        with self.refused(log, Conflict, Reason.REVISION_MISMATCH), log.batch() as batch:
            batch.put(log.put_request((record("a"),)))
            batch.append(self.STREAM, (said_event(),), expected_revision=5)

    def test_unknown_feature_in_a_batch_writes_nothing(self, log: LogBackend) -> None:
        with self.refused(log, NotFound, Reason.FEATURE_NOT_FOUND), log.batch() as batch:
            batch.save_manifest("s1", manifest())
            batch.update_feature_pass("s1", "f1", True)

    def test_bad_argument_is_refused_at_its_operation(self, log: LogBackend) -> None:
        with self.nothing_written(log), log.batch() as batch, pytest.raises(ContractError):
            self.untyped(batch, "put", None)

    def test_expected_revisions_count_the_batchs_own_events(self, log: LogBackend) -> None:
        with log.batch() as batch:
            batch.append(self.STREAM, (said_event("a"),), expected_revision=0)
            batch.append(self.STREAM, (said_event("b"),), expected_revision=1)
        assert [one.revision for one in events(log)] == [1, 2]

    def test_empty_batch_writes_nothing(self, log: LogBackend) -> None:
        self.fill(log)
        with self.nothing_written(log), log.batch():
            pass

    def test_batch_of_operations_that_change_nothing_writes_nothing(self, log: LogBackend) -> None:
        self.fill(log)
        with self.nothing_written(log), log.batch() as batch:
            batch.delete(log.delete_request(("none",)))
            batch.set_meta(log.meta_set_request("k", 1))

    def test_async_batch_is_written_at_its_end(self, log: LogBackend) -> None:
        async def work() -> int:
            async with log.abatch() as batch:
                batch.put(log.put_request((record("a"),)))
                batch.append(self.STREAM, (said_event(),))
                return log.head().seq

        assert asyncio.run(work()) == 0
        assert (log.head().seq, scan_ids(log)) == (2, ["a"])

    def test_async_block_that_raises_writes_nothing(self, log: LogBackend) -> None:
        async def work() -> None:
            async with log.abatch() as batch:
                batch.put(log.put_request((record("a"),)))
                raise ZeroDivisionError

        with self.nothing_written(log), pytest.raises(ZeroDivisionError):
            asyncio.run(work())
