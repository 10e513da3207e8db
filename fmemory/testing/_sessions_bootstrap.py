"""Bootstrap artifacts of a session: manifest, checklist, progress and checkpoints."""

from __future__ import annotations

import time
from datetime import timedelta, timezone
from typing import cast

import pytest

from fmemory._json_values import JsonValue
from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, MemoryErrorKind, NotFound, Reason
from fmemory.session_models import BootstrapState, ProgressEntry
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._samples import TIME
from fmemory.testing._sessions_samples import (
    FULL_MANIFEST,
    checkpoint,
    entry,
    features,
    manifest,
    said,
)
from fmemory.testing._threads import in_threads

SESSION_IDS = ("s1", "S1", "s10", "s1/x", "../s1", "s1.x", " ", "a\x00b", "\u00e9", "e\u0301")
BAD_IDS: tuple[tuple[object, Reason], ...] = (
    ("", Reason.EMPTY),
    (None, Reason.WRONG_TYPE),
    (1, Reason.WRONG_TYPE),
    (b"s1", Reason.WRONG_TYPE),
    ("s\ud800", Reason.LONE_SURROGATE),
    ("s" * 4097, Reason.TOO_LARGE),
)
CALLS: dict[str, tuple[object, ...]] = {
    "is_initialized": (),
    "initialize_session_if_missing": (manifest(), features("f1")),
    "load_bootstrap_state": (),
    "save_manifest": (manifest(),),
    "append_progress_entry": (entry(),),
    "replace_feature_list": (features("f1"),),
    "update_feature_pass": ("f1", True),
    "record_run_checkpoint": (checkpoint(),),
    "load_transcript_messages": (),
    "append_transcript_messages": (said("x"),),
}
BAD_ARGUMENTS: dict[str, tuple[str, tuple[object, ...], Reason]] = {
    "initialize manifest": ("initialize_session_if_missing", (None, ()), Reason.WRONG_TYPE),
    "initialize features": (
        "initialize_session_if_missing",
        (manifest(), ("f1",)),
        Reason.WRONG_TYPE,
    ),
    "initialize progress": (
        "initialize_session_if_missing",
        (manifest(), (), "did it"),
        Reason.WRONG_TYPE,
    ),
    "initialize checkpoint": (
        "initialize_session_if_missing",
        (manifest(), (), None, "done"),
        Reason.WRONG_TYPE,
    ),
    "initialize foreign": (
        "initialize_session_if_missing",
        (manifest("s2"), ()),
        Reason.MISMATCH,
    ),
    "initialize repeated feature": (
        "initialize_session_if_missing",
        (manifest(), features("f1", "f2", "f1")),
        Reason.BAD_VALUE,
    ),
    "save none": ("save_manifest", (None,), Reason.WRONG_TYPE),
    "save dict": ("save_manifest", ({"session_id": "s1"},), Reason.WRONG_TYPE),
    "save foreign": ("save_manifest", (manifest("s2"),), Reason.MISMATCH),
    "progress text": ("append_progress_entry", ("did it",), Reason.WRONG_TYPE),
    "features text": ("replace_feature_list", ("f1",), Reason.WRONG_TYPE),
    "features item": ("replace_feature_list", ((*features("f1"), None),), Reason.WRONG_TYPE),
    "features repeated": ("replace_feature_list", (features("f1", "f1"),), Reason.BAD_VALUE),
    "pass int": ("update_feature_pass", ("f1", 1), Reason.WRONG_TYPE),
    "pass None": ("update_feature_pass", ("f1", None), Reason.WRONG_TYPE),
    "feature id int": ("update_feature_pass", (1, True), Reason.WRONG_TYPE),
    "checkpoint none": ("record_run_checkpoint", (None,), Reason.WRONG_TYPE),
    "messages none": ("append_transcript_messages", (None,), Reason.WRONG_TYPE),
    "messages text": ("append_transcript_messages", ("hello",), Reason.WRONG_TYPE),
    "messages item": (
        "append_transcript_messages",
        ((*said("a"), {"role": "user"}),),
        Reason.WRONG_TYPE,
    ),
}


class InitializePart(BackendSuiteBase):
    """What `is_initialized` and `initialize_session_if_missing` promise."""

    def test_unknown_session_is_not_initialized(self, memory: MemoryBackend) -> None:
        assert memory.is_initialized("s1") is False

    def test_unknown_session_has_an_empty_state(self, memory: MemoryBackend) -> None:
        assert memory.load_bootstrap_state("s1") == BootstrapState()

    def test_reading_an_unknown_session_writes_nothing(self, memory: MemoryBackend) -> None:
        with self.nothing_written(memory):
            memory.load_bootstrap_state("s1")
            memory.load_transcript_messages("s1")
            memory.is_initialized("s1")

    def test_first_initialize_is_true(self, memory: MemoryBackend) -> None:
        assert memory.initialize_session_if_missing("s1", manifest(), ()) is True

    def test_second_initialize_is_false(self, memory: MemoryBackend) -> None:
        memory.initialize_session_if_missing("s1", manifest(), ())
        assert memory.initialize_session_if_missing("s1", manifest(), ()) is False

    def test_second_initialize_overwrites_nothing(self, memory: MemoryBackend) -> None:
        memory.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
        with self.nothing_written(memory):
            memory.initialize_session_if_missing(
                "s1", manifest(objective="other"), features("f2"), entry(2), checkpoint(2)
            )

    def test_initialize_writes_all_it_is_given(self, memory: MemoryBackend) -> None:
        list_ = features("f1", "f2")
        memory.initialize_session_if_missing("s1", FULL_MANIFEST, list_, entry(1), checkpoint(1))
        state = memory.load_bootstrap_state("s1")
        assert state.manifest == FULL_MANIFEST
        assert state.feature_list == list_
        assert state.recent_progress == (entry(1),)
        assert state.checkpoints == (checkpoint(1),)

    def test_initialize_without_progress_and_checkpoint_has_none(
        self, memory: MemoryBackend
    ) -> None:
        memory.initialize_session_if_missing("s1", manifest(), features("f1"))
        state = memory.load_bootstrap_state("s1")
        assert (state.recent_progress, state.checkpoints) == ((), ())

    def test_initialized_session_is_initialized(self, memory: MemoryBackend) -> None:
        memory.initialize_session_if_missing("s1", manifest(), ())
        assert memory.is_initialized("s1") is True

    def test_session_without_manifest_can_still_be_initialized(self, memory: MemoryBackend) -> None:
        memory.append_progress_entry("s1", entry(1))
        assert memory.initialize_session_if_missing("s1", manifest(), ()) is True

    def test_initialize_keeps_progress_and_transcript_of_before(
        self, memory: MemoryBackend
    ) -> None:
        memory.append_progress_entry("s1", entry(1))
        memory.append_transcript_messages("s1", said("hello"))
        memory.initialize_session_if_missing("s1", manifest(), (), entry(2))
        assert memory.load_bootstrap_state("s1").recent_progress == (entry(1), entry(2))
        assert memory.load_transcript_messages("s1") == said("hello")

    def test_initialize_brings_its_own_checklist(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("f1", "f2"))
        memory.update_feature_pass("s1", "f1", True)
        memory.initialize_session_if_missing("s1", manifest(), features("f1"))
        assert memory.load_bootstrap_state("s1").feature_list == features("f1")

    def test_saved_manifest_makes_initialize_false(self, memory: MemoryBackend) -> None:
        memory.save_manifest("s1", manifest())
        assert memory.initialize_session_if_missing("s1", manifest(), ()) is False

    def test_initialize_raced_by_threads_is_true_once(self, memory: MemoryBackend) -> None:
        results: list[tuple[bool, int]] = []

        def work(number: int) -> None:
            mine = manifest(objective=str(number))
            won = memory.initialize_session_if_missing("s1", mine, (), entry(number))
            results.append((won, number))

        in_threads(work)
        (winner,) = [number for won, number in results if won]
        state = memory.load_bootstrap_state("s1")
        assert (state.manifest, state.recent_progress) == (
            manifest(objective=str(winner)),
            (entry(winner),),
        )

    def test_sessions_of_like_ids_are_apart(self, memory: MemoryBackend) -> None:
        for one in SESSION_IDS:
            assert memory.initialize_session_if_missing(one, manifest(one), ())
            memory.append_transcript_messages(one, said(one))
        found = [memory.load_transcript_messages(one) for one in SESSION_IDS]
        assert found == [said(one) for one in SESSION_IDS]


class ArtifactsPart(BackendSuiteBase):
    """What the writes of one artifact promise."""

    def test_saved_manifest_comes_back(self, memory: MemoryBackend) -> None:
        memory.save_manifest("s1", FULL_MANIFEST)
        assert memory.load_bootstrap_state("s1").manifest == FULL_MANIFEST

    def test_later_manifest_replaces_an_earlier_one(self, memory: MemoryBackend) -> None:
        memory.save_manifest("s1", FULL_MANIFEST)
        memory.save_manifest("s1", manifest())
        assert memory.load_bootstrap_state("s1").manifest == manifest()

    def test_saved_manifest_makes_a_session_initialized(self, memory: MemoryBackend) -> None:
        memory.save_manifest("s1", manifest())
        assert memory.is_initialized("s1")

    def test_manifest_keeps_the_other_artifacts(self, memory: MemoryBackend) -> None:
        memory.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
        memory.save_manifest("s1", FULL_MANIFEST)
        state = memory.load_bootstrap_state("s1")
        assert (state.feature_list, state.recent_progress) == (features("f1"), (entry(1),))

    def test_saving_an_equal_manifest_writes_nothing(self, memory: MemoryBackend) -> None:
        memory.save_manifest("s1", FULL_MANIFEST)
        with self.nothing_written(memory):
            memory.save_manifest("s1", FULL_MANIFEST)

    @pytest.mark.parametrize("write", ["progress", "features", "checkpoint", "message"])
    def test_write_without_manifest_creates_the_session_without_one(
        self, memory: MemoryBackend, write: str
    ) -> None:
        match write:
            case "progress":
                memory.append_progress_entry("s1", entry())
            case "features":
                memory.replace_feature_list("s1", features("f1"))
            case "checkpoint":
                memory.record_run_checkpoint("s1", checkpoint())
            case _:
                memory.append_transcript_messages("s1", said("x"))
        assert not memory.is_initialized("s1")
        assert memory.load_bootstrap_state("s1").manifest is None

    def test_progress_is_complete_and_in_write_order(self, memory: MemoryBackend) -> None:
        for number in range(120):
            memory.append_progress_entry("s1", entry(number))
        expected = tuple(entry(number) for number in range(120))
        assert memory.load_bootstrap_state("s1").recent_progress == expected

    def test_equal_progress_entries_are_both_kept(self, memory: MemoryBackend) -> None:
        memory.append_progress_entry("s1", entry(1))
        memory.append_progress_entry("s1", entry(1))
        assert memory.load_bootstrap_state("s1").recent_progress == (entry(1), entry(1))

    def test_progress_time_is_the_same_moment_in_utc(self, memory: MemoryBackend) -> None:
        local = TIME.astimezone(timezone(timedelta(hours=-7, minutes=-30)))
        memory.append_progress_entry("s1", ProgressEntry("run", "x", local))
        (found,) = memory.load_bootstrap_state("s1").recent_progress
        assert found.created_at.isoformat() == TIME.isoformat()

    @pytest.mark.skipif(not hasattr(time, "tzset"), reason="the system cannot change its zone")
    def test_times_do_not_depend_on_the_local_zone(
        self, memory: MemoryBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TZ", "America/Los_Angeles")
        time.tzset()
        memory.append_progress_entry("s1", entry(1))
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        found = memory.load_bootstrap_state("s1").recent_progress
        monkeypatch.undo()
        time.tzset()
        assert found == (entry(1),)

    def test_checkpoints_are_complete_and_in_write_order(self, memory: MemoryBackend) -> None:
        for number in range(30):
            memory.record_run_checkpoint("s1", checkpoint(number, f"run-{number % 4}"))
        expected = tuple(checkpoint(number, f"run-{number % 4}") for number in range(30))
        assert memory.load_bootstrap_state("s1").checkpoints == expected

    def test_checkpoint_of_a_known_run_replaces_none(self, memory: MemoryBackend) -> None:
        memory.record_run_checkpoint("s1", checkpoint(0))
        memory.record_run_checkpoint("s1", checkpoint(1))
        assert memory.load_bootstrap_state("s1").checkpoints == (checkpoint(0), checkpoint(1))

    def test_metadata_of_a_received_manifest_can_be_changed(self, memory: MemoryBackend) -> None:
        memory.save_manifest("s1", FULL_MANIFEST)
        received = memory.load_bootstrap_state("s1").manifest
        assert received is not None
        cast("list[JsonValue]", received.metadata["nested"]).clear()
        assert memory.load_bootstrap_state("s1").manifest == FULL_MANIFEST

    def test_metadata_of_a_given_manifest_can_be_changed_afterwards(
        self, memory: MemoryBackend
    ) -> None:
        given = manifest().with_metadata({"list": [1]})
        memory.save_manifest("s1", given)
        cast("list[JsonValue]", given.metadata["list"]).append(2)
        state = memory.load_bootstrap_state("s1")
        assert state.manifest == manifest().with_metadata({"list": [1]})

    @needs(Capability.PERSISTENT)
    def test_bootstrap_state_is_the_same_after_a_reopen(self, stores: Stores) -> None:
        memory = stores.open()
        memory.initialize_session_if_missing("s1", FULL_MANIFEST, features("f1", "f2"), entry(1))
        memory.update_feature_pass("s1", "f2", True)
        memory.record_run_checkpoint("s1", checkpoint(1))
        before = memory.load_bootstrap_state("s1")
        assert stores.reopen(memory).load_bootstrap_state("s1") == before


class FeaturesPart(BackendSuiteBase):
    """What the checklist promises."""

    def passes(self, memory: MemoryBackend) -> list[tuple[str, bool]]:
        return [(one.id, one.passes) for one in memory.load_bootstrap_state("s1").feature_list]

    def test_feature_list_keeps_its_order(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("c", "a", "b"))
        assert memory.load_bootstrap_state("s1").feature_list == features("c", "a", "b")

    def test_later_list_replaces_an_earlier_one(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a", "b"))
        memory.replace_feature_list("s1", features("c"))
        assert memory.load_bootstrap_state("s1").feature_list == features("c")

    def test_empty_list_replaces_a_list(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a", "b"))
        memory.replace_feature_list("s1", ())
        assert memory.load_bootstrap_state("s1").feature_list == ()

    def test_replacing_by_an_equal_list_writes_nothing(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a", "b"))
        with self.nothing_written(memory):
            memory.replace_feature_list("s1", features("a", "b"))

    def test_replacing_by_the_list_before_a_flip_unflips(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a", "b"))
        memory.update_feature_pass("s1", "a", True)
        memory.replace_feature_list("s1", features("a", "b"))
        assert self.passes(memory) == [("a", False), ("b", False)]

    def test_flip_changes_one_feature_and_keeps_the_order(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a", "b", "c"))
        memory.update_feature_pass("s1", "b", True)
        assert self.passes(memory) == [("a", False), ("b", True), ("c", False)]

    def test_flip_keeps_the_rest_of_the_feature(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a"))
        memory.update_feature_pass("s1", "a", True)
        assert memory.load_bootstrap_state("s1").feature_list == features("a", passes=True)

    def test_flip_back_is_possible(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a", passes=True))
        memory.update_feature_pass("s1", "a", False)
        memory.update_feature_pass("s1", "a", True)
        memory.update_feature_pass("s1", "a", False)
        assert self.passes(memory) == [("a", False)]

    @pytest.mark.parametrize("passes", [True, False])
    def test_saying_what_already_holds_writes_nothing(
        self, memory: MemoryBackend, passes: bool
    ) -> None:
        memory.replace_feature_list("s1", features("a", passes=passes))
        with self.nothing_written(memory):
            memory.update_feature_pass("s1", "a", passes)

    def test_unknown_feature_is_not_found(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a"))
        with self.refused(memory, NotFound, Reason.FEATURE_NOT_FOUND) as caught:
            memory.update_feature_pass("s1", "b", True)
        assert (caught.value.key, caught.value.kind) == ("b", MemoryErrorKind.NOT_FOUND)

    def test_feature_of_an_unknown_session_is_not_found(self, memory: MemoryBackend) -> None:
        with self.refused(memory, NotFound, Reason.FEATURE_NOT_FOUND):
            memory.update_feature_pass("s2", "a", True)

    def test_feature_of_a_replaced_list_is_not_found(self, memory: MemoryBackend) -> None:
        memory.replace_feature_list("s1", features("a"))
        memory.replace_feature_list("s1", features("b"))
        with self.refused(memory, NotFound, Reason.FEATURE_NOT_FOUND):
            memory.update_feature_pass("s1", "a", True)

    def test_not_found_is_a_lookup_error(self, memory: MemoryBackend) -> None:
        with pytest.raises(LookupError):
            memory.update_feature_pass("s1", "a", True)


class BadSessionInputPart(BackendSuiteBase):
    """Bad input to session operations: a typed error, and nothing written."""

    @pytest.mark.parametrize("operation", CALLS)
    def test_bad_session_id_is_refused(self, memory: MemoryBackend, operation: str) -> None:
        with self.nothing_written(memory):
            for session_id, reason in BAD_IDS:
                with pytest.raises(ContractError) as caught:
                    self.untyped(memory, operation, session_id, *CALLS[operation])
                assert caught.value.reason is reason, repr(session_id)

    @pytest.mark.parametrize("case", BAD_ARGUMENTS)
    def test_bad_argument_is_refused(self, memory: MemoryBackend, case: str) -> None:
        operation, arguments, reason = BAD_ARGUMENTS[case]
        memory.replace_feature_list("s1", features("f1"))
        with self.refused(memory, ContractError, reason):
            self.untyped(memory, operation, "s1", *arguments)
