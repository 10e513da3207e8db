"""The past: views at a seq or time, forks, truncation, deletion."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fmemory.backend import LogBackend
from fmemory.errors import Conflict, ContractError, NotFound, Reason
from fmemory.record_models import TimeRange
from fmemory.session_models import BootstrapState
from fmemory.testing._backend_base import Stores, readable
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._log_base import LogSuiteBase, as_log, events, said_event, types
from fmemory.testing._samples import (
    count,
    get_ids,
    page_of,
    record,
    records,
    scan,
    scan_ids,
)
from fmemory.testing._sessions_samples import (
    FULL_MANIFEST,
    MESSAGES,
    checkpoint,
    entry,
    features,
    manifest,
    said,
)


@needs(Capability.LOG, Capability.TIME_TRAVEL)
class TimeTravelPart(LogSuiteBase):
    """What `at` promises."""

    def steps(self, log: LogBackend) -> list[tuple[int, object]]:
        """Writes one after another; the seq after each, and everything readable then."""
        seen: list[tuple[int, object]] = [(0, readable(log))]

        def remember() -> None:
            seen.append((log.head().seq, readable(log)))

        self.put(log, *records(3, 1, 2))
        remember()
        self.set_meta(log, "k", {"a": 1})
        remember()
        log.initialize_session_if_missing("s1", manifest(), features("f1", "f2"), entry(1))
        remember()
        self.delete(log, "r0")
        remember()
        log.append_transcript_messages("s1", MESSAGES)
        remember()
        self.put(log, record("r0", 9.0), record("x", namespace=("a",)))
        remember()
        log.update_feature_pass("s1", "f2", True)
        remember()
        log.truncate_transcript("s1", keep=2)
        remember()
        self.clear(log)
        remember()
        log.fork_session("s1", "s2")
        remember()
        log.delete_session("s1")
        remember()
        log.append_transcript_messages("s1", said("afresh"))
        remember()
        return seen

    def test_every_past_is_as_it_was(self, log: LogBackend) -> None:
        for seq, state in self.steps(log):
            assert readable(log.at(seq)) == state, f"at {seq}"

    @needs(Capability.PERSISTENT)
    def test_every_past_is_as_it_was_after_a_reopen(self, stores: Stores) -> None:
        log = as_log(stores.open())
        seen = self.steps(log)
        log = as_log(stores.reopen(log))
        for seq, state in reversed(seen):
            assert readable(log.at(seq)) == state, f"at {seq}"

    def test_view_does_not_move_with_the_log(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2))
        view = log.at(1)
        before = readable(view)
        self.clear(log)
        log.append_transcript_messages("s1", said("x"))
        assert readable(view) == before

    def test_view_names_its_seq(self, log: LogBackend) -> None:
        self.fill(log)
        assert [log.at(seq).seq for seq in (0, 3, 6)] == [0, 3, 6]

    def test_view_at_zero_is_empty(self, log: LogBackend) -> None:
        self.fill(log)
        view = log.at(0)
        assert (count(view), view.load_bootstrap_state("s1")) == (0, BootstrapState())

    def test_view_at_a_time_is_that_of_the_last_event_until_then(self, log: LogBackend) -> None:
        self.fill(log)
        for one in events(log):
            until = [other.seq for other in events(log) if other.recorded_at <= one.recorded_at]
            assert log.at(one.recorded_at).seq == until[-1]

    def test_view_before_the_first_event_is_empty(self, log: LogBackend) -> None:
        self.fill(log)
        assert log.at(log.event(1).recorded_at - timedelta(seconds=1)).seq == 0

    def test_view_at_a_later_time_is_the_present(self, log: LogBackend) -> None:
        self.fill(log)
        assert log.at(log.event(6).recorded_at + timedelta(days=1)).seq == 6

    def test_view_pages_with_cursors_of_its_own(self, log: LogBackend) -> None:
        self.put(log, *records(1, 2, 3, 4))
        view = log.at(1)
        self.delete(log, "r1", "r2")
        first, cursor = page_of(view, limit=2)
        assert (first, page_of(view, cursor, limit=2)) == (["r0", "r1"], (["r2", "r3"], None))

    def test_view_reads_deleted_records_whole(self, log: LogBackend) -> None:
        many = records(1, 2, 3)
        self.put(log, *many)
        self.delete(log, "r0", "r1", "r2")
        view = log.at(1)
        assert (scan(view), count(view, time_range=TimeRange(2, 3))) == (many, 1)
        assert get_ids(view, ["r1"]) == ["r1"]
        assert view.vectors().ids == ("r0", "r1", "r2")

    def test_view_lists_the_sessions_of_then(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("x"))
        log.append_transcript_messages("s2", said("x"))
        log.append_transcript_messages("s1", said("y"))
        log.delete_session("s2")
        found = [
            [one.session_id for one in log.at(seq).list_sessions().sessions] for seq in range(5)
        ]
        assert found == [[], ["s1"], ["s2", "s1"], ["s1", "s2"], ["s1"]]

    def test_view_gives_handles_of_sessions(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("x"))
        log.append_transcript_messages("s1", said("y"))
        assert log.at(1).session("s1").load_transcript_messages() == said("x")

    def test_view_dumps_the_records_of_then(self, log: LogBackend, tmp_path: Path) -> None:
        self.put(log, *records(1, 2))
        self.clear(log)
        target = tmp_path / "memory.jsonl"
        assert log.at(1).dump(target) == 2

    def test_view_cannot_write(self, log: LogBackend) -> None:
        self.fill(log)
        assert not [name for name in ("put", "delete", "append") if hasattr(log.at(1), name)]

    @pytest.mark.parametrize("seq", [7, 2**60])
    def test_future_is_not_found(self, log: LogBackend, seq: int) -> None:
        self.fill(log)
        with self.refused(log, NotFound, Reason.EVENT_NOT_FOUND):
            log.at(seq)

    @pytest.mark.parametrize(
        "when",
        [-1, True, 1.5, "1", None, datetime(2025, 1, 1)],
    )
    def test_moment_that_is_none_is_refused(self, log: LogBackend, when: object) -> None:
        self.fill(log)
        with self.nothing_written(log), pytest.raises(ContractError):
            self.untyped(log, "at", when)


@needs(Capability.LOG)
class ForkPart(LogSuiteBase):
    """What `fork_session` promises."""

    def begin(self, log: LogBackend) -> None:
        log.initialize_session_if_missing(
            "s1", FULL_MANIFEST, features("f1", "f2"), entry(1), checkpoint(1)
        )
        log.update_feature_pass("s1", "f1", True)
        log.append_transcript_messages("s1", MESSAGES)
        log.append_progress_entry("s1", entry(2))

    def test_fork_has_everything_of_its_source(self, log: LogBackend) -> None:
        self.begin(log)
        log.fork_session("s1", "s2")
        source, target = log.load_bootstrap_state("s1"), log.load_bootstrap_state("s2")
        assert target.feature_list == source.feature_list
        assert target.recent_progress == source.recent_progress
        assert target.checkpoints == source.checkpoints
        assert repr(log.load_transcript_messages("s2")) == repr(MESSAGES)

    def test_fork_has_its_own_id_in_its_manifest(self, log: LogBackend) -> None:
        self.begin(log)
        log.fork_session("s1", "s2")
        found = log.load_bootstrap_state("s2").manifest
        assert found is not None
        assert found.session_id == "s2"
        assert found.to_dict() == {**FULL_MANIFEST.to_dict(), "session_id": "s2"}

    def test_fork_and_source_go_their_own_ways(self, log: LogBackend) -> None:
        self.begin(log)
        log.fork_session("s1", "s2")
        log.append_transcript_messages("s1", said("only in s1"))
        log.truncate_transcript("s2", keep=1)
        log.update_feature_pass("s2", "f1", False)
        assert log.load_transcript_messages("s1") == (*MESSAGES, *said("only in s1"))
        assert log.load_transcript_messages("s2") == MESSAGES[:1]
        assert log.load_bootstrap_state("s1").feature_list[0].passes

    def test_fork_outlives_its_source(self, log: LogBackend) -> None:
        self.begin(log)
        log.fork_session("s1", "s2")
        log.delete_session("s1")
        assert log.load_transcript_messages("s2") == MESSAGES

    def test_fork_names_its_origin(self, log: LogBackend) -> None:
        self.begin(log)
        log.fork_session("s1", "s2")
        first = next(log.history(session_id="s2"))
        assert (first.type, "s1" in repr(first.data)) == ("session_forked", True)

    def test_fork_leaves_its_source_as_it_was(self, log: LogBackend) -> None:
        self.begin(log)
        before = log.load_bootstrap_state("s1")
        log.fork_session("s1", "s2")
        assert log.load_bootstrap_state("s1") == before

    def test_fork_of_a_fork_is_possible(self, log: LogBackend) -> None:
        self.begin(log)
        log.fork_session("s1", "s2")
        log.append_transcript_messages("s2", said("more"))
        log.fork_session("s2", "s3")
        assert log.load_transcript_messages("s3") == (*MESSAGES, *said("more"))

    def test_fork_of_a_session_without_manifest_has_none(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("x"))
        log.fork_session("s1", "s2")
        assert not log.is_initialized("s2")
        assert log.load_transcript_messages("s2") == said("x")

    @needs(Capability.TIME_TRAVEL)
    def test_fork_of_a_past_has_what_was_then(self, log: LogBackend) -> None:
        self.begin(log)
        seq = log.head().seq
        log.append_transcript_messages("s1", said("later"))
        log.update_feature_pass("s1", "f1", False)
        log.fork_session("s1", "s2", at=seq)
        assert log.load_transcript_messages("s2") == MESSAGES
        assert log.load_bootstrap_state("s2").feature_list[0].passes

    @needs(Capability.TIME_TRAVEL)
    def test_fork_of_a_time_has_what_was_then(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", said("x"))
        log.fork_session("s1", "s2", at=log.event(1).recorded_at + timedelta(days=1))
        assert log.load_transcript_messages("s2") == said("x")

    @needs(Capability.TIME_TRAVEL)
    def test_deleted_session_can_be_forked_from_its_past(self, log: LogBackend) -> None:
        self.begin(log)
        seq = log.head().seq
        log.delete_session("s1")
        log.fork_session("s1", "s2", at=seq)
        assert log.load_transcript_messages("s2") == MESSAGES

    @needs(Capability.TIME_TRAVEL)
    @pytest.mark.parametrize("at", [0, 1])
    def test_fork_of_a_session_that_was_not_yet_there_is_refused(
        self, log: LogBackend, at: int
    ) -> None:
        self.put(log, record("a"))
        log.append_transcript_messages("s1", said("x"))
        with self.refused(log, NotFound, Reason.SESSION_NOT_FOUND):
            log.fork_session("s1", "s2", at=at)

    @needs(Capability.TIME_TRAVEL)
    @pytest.mark.parametrize("at", [-1, True, "1", 1.5])
    def test_fork_of_a_moment_that_is_none_is_refused(self, log: LogBackend, at: object) -> None:
        log.append_transcript_messages("s1", said("x"))
        with self.nothing_written(log), pytest.raises(ContractError):
            self.untyped(log, "fork_session", "s1", "s2", at=at)

    def test_fork_of_an_unknown_session_is_refused(self, log: LogBackend) -> None:
        with self.refused(log, NotFound, Reason.SESSION_NOT_FOUND) as caught:
            log.fork_session("s1", "s2")
        assert caught.value.key == "s1"

    def test_fork_onto_a_session_with_content_is_refused(self, log: LogBackend) -> None:
        self.begin(log)
        log.append_transcript_messages("s2", said("mine"))
        with self.refused(log, Conflict, Reason.TARGET_EXISTS):
            log.fork_session("s1", "s2")

    def test_fork_onto_itself_is_refused(self, log: LogBackend) -> None:
        self.begin(log)
        with self.nothing_written(log), pytest.raises((Conflict, ContractError)):
            log.fork_session("s1", "s1")

    def test_fork_onto_a_deleted_session_is_fine(self, log: LogBackend) -> None:
        self.begin(log)
        log.append_transcript_messages("s2", said("gone"))
        log.delete_session("s2")
        log.fork_session("s1", "s2")
        assert log.load_transcript_messages("s2") == MESSAGES

    def test_same_fork_again_writes_nothing(self, log: LogBackend) -> None:
        self.begin(log)
        first = log.fork_session("s1", "s2", event_id="key")
        with self.nothing_written(log):
            assert log.fork_session("s1", "s2", event_id="key") == first

    def test_fork_of_another_source_under_one_event_id_is_a_conflict(self, log: LogBackend) -> None:
        self.begin(log)
        log.append_transcript_messages("s3", said("mine"))
        log.fork_session("s1", "s2", event_id="key")
        with self.refused(log, Conflict, Reason.EVENT_ID_REUSED):
            log.fork_session("s3", "s2", event_id="key")


@needs(Capability.LOG)
class DeletionPart(LogSuiteBase):
    """What truncation and deletion promise, and that late writes do not resurrect."""

    @pytest.mark.parametrize("keep", [0, 1, 3, 5])
    def test_truncated_transcript_keeps_the_oldest(self, log: LogBackend, keep: int) -> None:
        log.append_transcript_messages("s1", MESSAGES[:2])
        log.append_transcript_messages("s1", MESSAGES[2:])
        log.truncate_transcript("s1", keep=keep)
        assert log.load_transcript_messages("s1") == MESSAGES[:keep]

    def test_append_after_a_truncation_goes_on_from_there(self, log: LogBackend) -> None:
        log.append_transcript_messages("s1", MESSAGES)
        log.truncate_transcript("s1", keep=2)
        log.append_transcript_messages("s1", said("new"))
        assert log.load_transcript_messages("s1") == (*MESSAGES[:2], *said("new"))
        assert log.load_transcript_messages("s1", last=2) == (MESSAGES[1], *said("new"))

    @pytest.mark.parametrize("keep", [6, 7, 1000])
    def test_truncation_to_what_is_there_writes_nothing(self, log: LogBackend, keep: int) -> None:
        log.append_transcript_messages("s1", MESSAGES)
        with self.nothing_written(log):
            log.truncate_transcript("s1", keep=keep)

    def test_truncation_keeps_the_other_artifacts(self, log: LogBackend) -> None:
        log.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
        log.append_transcript_messages("s1", said("x"))
        log.truncate_transcript("s1", keep=0)
        state = log.load_bootstrap_state("s1")
        assert (state.manifest, state.feature_list) == (manifest(), features("f1"))

    @pytest.mark.parametrize("keep", [-1, True, "1", None, 2**70])
    def test_bad_keep_is_refused(self, log: LogBackend, keep: object) -> None:
        log.append_transcript_messages("s1", said("x"))
        with self.nothing_written(log), pytest.raises(ContractError):
            self.untyped(log, "truncate_transcript", "s1", keep=keep)

    def delete_all(self, log: LogBackend) -> int:
        """A session with everything, deleted; the revision a late writer still holds."""
        log.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
        late = log.append_transcript_messages("s1", said("x")).revision
        log.delete_session("s1")
        return late

    def test_deleted_session_has_nothing(self, log: LogBackend) -> None:
        self.delete_all(log)
        state = log.load_bootstrap_state("s1")
        assert (state.manifest, state.feature_list, state.recent_progress) == (None, (), ())
        assert (log.is_initialized("s1"), log.load_transcript_messages("s1")) == (False, ())

    def test_late_write_to_a_deleted_session_is_a_conflict(self, log: LogBackend) -> None:
        late = self.delete_all(log)
        with self.refused(log, Conflict, Reason.REVISION_MISMATCH):
            log.append_transcript_messages("s1", said("late"), expected_revision=late)

    def test_deleted_session_can_be_started_afresh(self, log: LogBackend) -> None:
        self.delete_all(log)
        assert log.initialize_session_if_missing("s1", manifest(objective="new"), ())
        state = log.load_bootstrap_state("s1")
        assert (state.manifest, state.recent_progress) == (manifest(objective="new"), ())

    def test_revisions_go_on_after_a_deletion(self, log: LogBackend) -> None:
        late = self.delete_all(log)
        assert log.append_transcript_messages("s1", said("new")).revision == late + 2

    def test_deleting_an_unknown_session_writes_nothing(self, log: LogBackend) -> None:
        with self.nothing_written(log):
            assert log.delete_session("s1").event_count == 0

    def test_second_deletion_writes_nothing(self, log: LogBackend) -> None:
        self.delete_all(log)
        with self.nothing_written(log):
            log.delete_session("s1")

    def test_deletion_keeps_other_sessions(self, log: LogBackend) -> None:
        log.append_transcript_messages("s2", said("mine"))
        self.delete_all(log)
        assert log.load_transcript_messages("s2") == said("mine")

    def test_deleted_stream_goes_on_with_its_numbers(self, log: LogBackend) -> None:
        log.append(self.STREAM, (said_event("a"), said_event("b")))
        log.delete_stream(self.STREAM)
        assert log.append(self.STREAM, (said_event("c"),)).revision == 4

    def test_late_write_to_a_deleted_stream_is_a_conflict(self, log: LogBackend) -> None:
        late = log.append(self.STREAM, (said_event("a"),)).revision
        log.delete_stream(self.STREAM)
        with self.refused(log, Conflict, Reason.REVISION_MISMATCH):
            log.append(self.STREAM, (said_event("b"),), expected_revision=late)

    def test_deleting_an_unknown_stream_writes_nothing(self, log: LogBackend) -> None:
        with self.nothing_written(log):
            assert log.delete_stream(self.STREAM).event_count == 0

    def test_second_deletion_of_a_stream_writes_nothing(self, log: LogBackend) -> None:
        log.append(self.STREAM, (said_event("a"),))
        log.delete_stream(self.STREAM)
        with self.nothing_written(log):
            log.delete_stream(self.STREAM)

    def test_deletion_is_told_by_an_event(self, log: LogBackend) -> None:
        log.append(self.STREAM, (said_event("a"),))
        log.delete_stream(self.STREAM)
        assert types(events(log)) == ["word.said", "stream_deleted"]

    @pytest.mark.parametrize(
        "stream", [("session", "s1"), ("records",), ("records", "a"), ("meta",)]
    )
    def test_streams_of_our_own_are_not_deleted_so(
        self, log: LogBackend, stream: tuple[str, ...]
    ) -> None:
        self.fill(log)
        with self.nothing_written(log), pytest.raises(ContractError):
            log.delete_stream(stream)

    def test_records_deleted_before_a_put_do_not_touch_it(self, log: LogBackend) -> None:
        self.put(log, record("a", 1.0))
        self.delete(log, "a")
        self.put(log, record("a", 2.0))
        assert scan_ids(log) == ["a"]
