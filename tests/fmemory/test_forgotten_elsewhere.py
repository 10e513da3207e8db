"""A handle that read an event, whose deletion is forgotten before it reads that, lets go of it.

Goal: what was deleted is deleted for every handle, whenever it looks next. Method: two handles of
one store; the other one has read what is then deleted and forgotten at once. What would have to
break: a stub that is folded as if nothing had been deleted there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmemory
from fmemory import FeatureRecord, SessionManifest
from fmemory._engine.backend import JournalBackend

KINDS = ["sqlite:///{}/log.db", "jsonl:{}/log", "{}/log"]


@pytest.fixture(params=KINDS)
def handles(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[JournalBackend, JournalBackend]]:
    target = request.param.format(tmp_path)
    with fmemory.open(target) as one, fmemory.open(target) as other:
        yield one, other


def ids_of(memory: JournalBackend) -> list[str]:
    return sorted(found.record.id for found in memory.nearest([1.0], k=9))


def test_deleted_record_is_gone_from_every_handle(
    handles: tuple[JournalBackend, JournalBackend],
) -> None:
    one, other = handles
    one.add_note("goes", [1.0], id="goes")
    one.add_note("stays", [2.0], id="stays")
    assert ids_of(other) == ["goes", "stays"]

    one.delete(one.delete_request(["goes"]))
    assert one.compact(forget_before=one.head().seq + 1).forgotten_events == 2

    for memory in handles:
        assert ids_of(memory) == ["stays"]
        assert memory.count(memory.count_request()).count == 1
        assert memory.stats().record_count == 1
        assert memory.get(memory.get_request(["goes"])).missing == ("goes",)


def test_cleared_records_and_metadata_are_gone_from_every_handle(
    handles: tuple[JournalBackend, JournalBackend],
) -> None:
    one, other = handles
    one.add_note("goes", [1.0], id="goes")
    one.set_meta(one.meta_set_request("key", "value"))
    assert (ids_of(other), other.get_meta(other.meta_get_request("key")).value) == (
        ["goes"],
        "value",
    )

    one.clear(one.clear_request())
    one.add_note("new", [1.0], id="new")
    one.compact(forget_before=one.head().seq + 1)

    for memory in handles:
        assert ids_of(memory) == ["new"]
        assert memory.get_meta(memory.meta_get_request("key")).value is None


def test_deleted_session_that_began_again_is_the_new_one_for_every_handle(
    handles: tuple[JournalBackend, JournalBackend],
) -> None:
    one, other = handles
    features = [FeatureRecord("old", "core", "was there")]
    one.session("s").initialize_session_if_missing(SessionManifest("s", "main", "old"), features)
    assert other.session("s").load_bootstrap_state().feature_list[0].id == "old"

    one.delete_session("s")
    one.session("s").initialize_session_if_missing(SessionManifest("s", "main", "new"), [])
    one.compact(forget_before=one.head().seq + 1)

    for memory in handles:
        state = memory.session("s").load_bootstrap_state()
        assert state.feature_list == ()
        assert state.manifest is not None
        assert state.manifest.current_objective == "new"


def test_forgetting_again_rewrites_nothing(handles: tuple[JournalBackend, JournalBackend]) -> None:
    one, _ = handles
    one.add_note("goes", [1.0], id="goes")
    one.add_note("stays", [2.0], id="stays")
    one.delete(one.delete_request(["goes"]))
    one.compact(forget_before=99)

    again = one.compact(forget_before=99)

    assert (again.forgotten_events, again.notices) == (0, ())


@pytest.mark.parametrize("target", KINDS)
def test_backup_forgets_what_was_forgotten_together_with_its_deletion(
    handles: tuple[JournalBackend, JournalBackend], tmp_path: Path, target: str
) -> None:
    one, _ = handles
    backup = target.format(tmp_path / "backup")
    one.add_note("goes", [1.0], id="goes")
    one.backup(backup)
    one.delete(one.delete_request(["goes"]))
    one.compact(forget_before=99)

    result = one.backup(backup)

    assert (result.copied, result.head) == (1, str(one.head()))
    with fmemory.open(backup) as copied:
        assert ids_of(copied) == []
        assert [event.type for event in copied.events()] == ["event_forgotten"] * 2


@pytest.mark.parametrize("target", KINDS)
def test_backup_that_has_the_deletion_goes_on_after_it_is_forgotten(
    handles: tuple[JournalBackend, JournalBackend], tmp_path: Path, target: str
) -> None:
    one, _ = handles
    backup = target.format(tmp_path / "backup")
    one.add_note("goes", [1.0], id="goes")
    one.delete(one.delete_request(["goes"]))
    one.backup(backup)
    one.compact(forget_before=99)
    one.add_note("new", [1.0], id="new")

    assert one.backup(backup).copied == 1

    with fmemory.open(backup) as copied:
        assert ids_of(copied) == ["new"]
        assert copied.compact(forget_before=99).forgotten_events == 2
        assert copied.head() == one.head()
