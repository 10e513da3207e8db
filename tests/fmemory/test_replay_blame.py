"""`replay.blame` names for every value the event that made it what it is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import fmemory
from fmemory import (
    ContractError,
    FeatureRecord,
    LogBackend,
    Message,
    NewEvent,
    NotFound,
    SessionManifest,
)
from fmemory.replay import Attribution, BlamedPart, ChangeKind, blame


def of(found: tuple[Attribution, ...], name: str, field: str | None = None) -> Attribution:
    (one,) = [one for one in found if (one.name, one.field) == (name, field or name)]
    return one


def test_a_feature_is_set_by_its_last_flip(memory: LogBackend) -> None:
    one = of(blame(memory, "login"), "form", "passes")

    assert (one.part, one.change, one.seq, one.type) == (
        BlamedPart.FEATURE,
        ChangeKind.CHANGED,
        10,
        "feature_pass_updated",
    )
    assert (one.actor, one.run_id, one.reason) == ("bob", "run-2", "looks broken")
    assert (one.before, one.after, one.session_id) == (True, False, "login")
    assert one.time == memory.event(10).recorded_at


def test_what_was_never_flipped_is_set_by_the_beginning(memory: LogBackend) -> None:
    found = blame(memory, "login")

    assert of(found, "token", "passes").seq == 1
    assert of(found, "token", "definition").after == {
        "category": "api",
        "description": "a token",
        "steps": [],
    }
    assert of(found, "current_objective").after == "make logging in work"
    assert of(found, "metadata.owner").after == "x"
    assert [one.part for one in found] == ["feature"] * 4 + ["manifest"] * 8


def test_every_gives_the_whole_history_in_order(memory: LogBackend) -> None:
    found = blame(memory, "login", "form", every=True)

    flips = [(one.seq, one.before, one.after) for one in found if one.field == "passes"]
    assert flips == [(1, None, False), (6, False, True), (10, True, False)]


def test_a_past_moment_knows_nothing_of_later_events(memory: LogBackend) -> None:
    assert of(blame(memory, "login", at=9), "form", "passes").seq == 6


def test_a_value_written_again_unchanged_keeps_its_event(empty: LogBackend) -> None:
    empty.save_manifest("s", SessionManifest("s", "main", "build"))
    empty.save_manifest("s", SessionManifest("s", "other", "build"))

    found = blame(empty, "s")

    assert of(found, "active_branch").seq == 2
    assert of(found, "current_objective").seq == 1


def test_a_removed_feature_is_told_when_asked_for(empty: LogBackend) -> None:
    empty.replace_feature_list("s", [FeatureRecord("a", "", ""), FeatureRecord("b", "", "")])
    empty.replace_feature_list("s", [FeatureRecord("b", "", "")])

    assert {one.name for one in blame(empty, "s")} == {"b"}
    assert {(one.change, one.seq) for one in blame(empty, "s", "a")} == {(ChangeKind.REMOVED, 2)}


def test_a_session_without_a_manifest_has_no_manifest_fields(empty: LogBackend) -> None:
    empty.append_transcript_messages("s", [Message("user", "hi")])

    assert blame(empty, "s") == ()


def test_what_a_fork_copied_is_traced_to_its_origin(memory: LogBackend) -> None:
    memory.fork_session("login", "again", at=9)

    found = blame(memory, "again")

    passes = of(found, "form", "passes")
    assert (passes.seq, passes.session_id, passes.reason) == (6, "login", "2 tests passed")
    renamed = of(found, "session_id")
    assert (renamed.after, renamed.session_id, renamed.type) == ("again", "again", "session_forked")


def test_a_fork_of_a_fork_is_traced_to_the_first(memory: LogBackend) -> None:
    memory.fork_session("login", "again", at=9)
    memory.update_feature_pass("again", "token", True)
    memory.fork_session("again", "third")

    found = blame(memory, "third")

    assert of(found, "form", "passes").session_id == "login"
    assert of(found, "token", "passes").session_id == "again"


def test_a_long_chain_of_forks_is_traced_to_its_beginning(empty: LogBackend) -> None:
    empty.replace_feature_list("s0", [FeatureRecord("a", "", "")])
    for number in range(400):
        empty.fork_session(f"s{number}", f"s{number + 1}")

    assert of(blame(empty, "s400"), "a", "passes").session_id == "s0"


def test_a_fork_of_a_session_that_was_erased_is_set_by_the_fork(memory: LogBackend) -> None:
    memory.fork_session("login", "again", at=9)
    memory.delete_session("login")
    memory.compact()

    one = of(blame(memory, "again"), "form", "passes")

    assert one.after is True
    assert one.session_id in ("login", "again")


def test_deleting_a_session_unsets_what_it_held(memory: LogBackend) -> None:
    memory.delete_session("login")

    assert blame(memory, "login") == ()
    removed = [one for one in blame(memory, "login", "form", every=True) if one.seq > 12]
    assert {one.change for one in removed} == {ChangeKind.REMOVED}


def test_erased_events_are_gaps_of_the_history(memory: LogBackend) -> None:
    memory.delete_session("login")
    memory.compact()
    memory.replace_feature_list("login", [FeatureRecord("new", "", "")])

    assert {one.name for one in blame(memory, "login")} == {"new"}
    gaps = [one.gap for one in blame(memory, "login", every=True) if one.gap is not None]
    assert [(one.seq, one.state) for one in gaps] == [(1, "erased"), (6, "erased"), (10, "erased")]


def test_events_of_other_types_change_nothing(memory: LogBackend) -> None:
    before = blame(memory, "login")
    memory.append(("session", "login"), [NewEvent("feature.passes", {"feature_id": "form"})])

    assert blame(memory, "login") == before


def test_metadata_names_all_of_its_keys(memory: LogBackend) -> None:
    assert [one.name for one in blame(memory, "login", "metadata")] == ["metadata.owner"]


def test_imported_values_have_the_time_when_they_happened(empty: LogBackend) -> None:
    then = datetime(2020, 1, 2, tzinfo=UTC)
    with fmemory.audit(occurred_at=then):
        empty.replace_feature_list("s", [FeatureRecord("a", "", "")])

    assert {one.time for one in blame(empty, "s")} == {then}


def test_an_unknown_feature_is_refused_with_those_there_are(memory: LogBackend) -> None:
    with pytest.raises(NotFound, match="form, token") as caught:
        blame(memory, "login", "fomr")
    assert (caught.value.what, caught.value.key) == ("feature", "fomr")


def test_an_unknown_session_is_refused(memory: LogBackend) -> None:
    with pytest.raises(NotFound) as caught:
        blame(memory, "nobody")
    assert caught.value.what == "session"


def test_a_session_is_not_there_before_it_begins(memory: LogBackend) -> None:
    with pytest.raises(NotFound, match="begins at event 1"):
        blame(memory, "login", at=0)


def test_an_argument_of_the_wrong_kind_is_refused(memory: LogBackend) -> None:
    with pytest.raises(ContractError):
        blame(memory, "")


def test_attributions_are_plain_data_and_back(memory: LogBackend) -> None:
    for one in blame(memory, "login", every=True):
        assert Attribution.from_dict(one.to_dict()) == one


def test_features_come_in_the_order_of_the_newest_list(empty: LogBackend) -> None:
    for names in ("ab", "cba", "bca"):
        empty.replace_feature_list("s", [FeatureRecord(name, "", "") for name in names])

    passing = [one.name for one in blame(empty, "s") if one.field == "passes"]
    assert passing == ["b", "c", "a"]
