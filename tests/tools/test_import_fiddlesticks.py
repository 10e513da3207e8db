"""What Fiddlesticks stored is in the store whole, once, and its source is as it was before."""

from __future__ import annotations

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmemory
from fmemory import (
    FeatureRecord,
    InitPlan,
    InitShell,
    InitStep,
    Message,
    NewEvent,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
)
from fmemory.journals import SqliteMemoryBackend
from fmemory_tools.importers.fiddlesticks import plan_fiddlesticks
from fmemory_tools.importers.fiddlesticks_apply import Fate, apply_fiddlesticks
from tests.tools.fiddlesticks_sources import (
    BARE,
    EVERYTHING,
    FULL,
    NANOS,
    ODD,
    TALK,
    WRITERS,
    Stored,
    at,
    import_into,
    session_file,
    stored_in,
    write_folder,
    write_sqlite,
)
from tests.tools.helpers import Command, bytes_of, only_line


@pytest.fixture(params=WRITERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def grown(stored: Stored) -> Stored:
    assert stored.manifest is not None
    return replace(
        stored,
        manifest=stored.manifest.with_active_branch("main"),
        features=stored.features[1:],
        progress=(*stored.progress, ProgressEntry("run-3", "more", at(5))),
        checkpoints=(*stored.checkpoints, RunCheckpoint("run-3", at(5))),
        transcript=(*stored.transcript, Message(Role.ASSISTANT, "more")),
    )


def test_every_session_is_in_the_store_as_the_crate_had_it(kind: str, tmp_path: Path) -> None:
    source = WRITERS[kind](tmp_path / "source")

    with fmemory.open(tmp_path / "store") as memory:
        fates = import_into(memory, source)

    assert fates == {one.session_id: Fate.IMPORTED for one in EVERYTHING}
    with fmemory.open(tmp_path / "store", read_only=True) as memory:
        assert {one.session_id: stored_in(memory, one.session_id) for one in EVERYTHING} == {
            one.session_id: one for one in EVERYTHING
        }


def test_a_session_without_a_manifest_has_none(kind: str, tmp_path: Path) -> None:
    source = WRITERS[kind](tmp_path / "source", [TALK])

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)

        assert not memory.is_initialized(TALK.session_id)
        assert [one.session_id for one in memory.list_sessions().sessions] == [TALK.session_id]


def test_the_source_is_in_the_metadata_and_in_an_event(kind: str, tmp_path: Path) -> None:
    source = WRITERS[kind](tmp_path / "old")

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)
        manifest = memory.load_bootstrap_state("bare").manifest
        events = list(memory.events(stream=("session", "bare")))

    assert manifest is not None
    assert isinstance(manifest.metadata["source"], dict)
    assert (
        manifest.metadata["source"].items()
        >= {
            "name": "old",
            "format": "fiddlesticks",
            "kind": kind,
        }.items()
    )
    assert [one.type for one in events] == ["fiddlesticks.imported", "manifest_saved"]
    assert events[0].data == {"source": manifest.metadata["source"]}
    assert {one.reason for one in events} == {"import of old"}


def test_metadata_that_has_a_source_of_its_own_keeps_it(kind: str, tmp_path: Path) -> None:
    manifest = SessionManifest("s", "main", "go", metadata={"source": "here"})
    source = WRITERS[kind](tmp_path / "source", [Stored("s", manifest)])

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)
        found = memory.load_bootstrap_state("s").manifest

    assert found is not None
    assert found.metadata["source"] == "here"
    assert found.metadata.keys() == {"source", "imported_source"}


def test_times_are_when_it_happened_to_the_nanosecond(kind: str, tmp_path: Path) -> None:
    source = WRITERS[kind](tmp_path / "source", [FULL])

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)
        events = list(memory.events(stream=("session", "login")))

    timed = ("progress_appended", "checkpoint_recorded")
    assert [one.occurred_at for one in events if one.type in timed] == [
        at(1_700_000_000, 123_456),
        at(0),
        at(1),
        at(1_700_000_000),
        at(1_700_000_060, 5),
        None,  # the year 9999 is in the model; nanoseconds of 64 bits end before it
    ]
    assert {one.occurred_at for one in events if one.type not in timed} == {None}
    assert [one.run_id for one in events if one.type == "progress_appended"] == [
        "run-1",
        "run-2",
        "run-1",
    ]
    assert isinstance(events[0].data, dict)
    assert events[0].data["nanos_below_microsecond"] == {
        "progress": [[NANOS]] * 3,
        "checkpoints": [[NANOS, None], [NANOS, NANOS], [NANOS, None]],
    }


NAMES = st.text(min_size=1, max_size=8)
TIMES = st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC))
STEPS = st.one_of(
    st.builds(InitStep.command, NAMES, st.lists(st.text(max_size=5), max_size=3)),
    st.builds(InitStep.shell, st.sampled_from(InitShell), st.text(max_size=9)),
)
MANIFESTS = st.builds(
    SessionManifest,
    st.just("to be named"),
    st.text(max_size=5),
    st.text(max_size=9),
    schema_version=st.integers(1, 2**32 - 1),
    harness_version=st.text(max_size=5),
    last_known_good_commit=st.none() | st.text(max_size=5),
    init_plan=st.none() | st.lists(STEPS, min_size=1, max_size=3).map(InitPlan),
    metadata=st.dictionaries(st.text(max_size=5).filter(lambda one: one != "source"), st.text()),
)
FEATURES = st.builds(
    FeatureRecord, NAMES, st.text(), st.text(), st.lists(st.text(), max_size=2), st.booleans()
)


@st.composite
def sessions(draw: st.DrawFn) -> Stored:
    session_id = draw(NAMES)
    manifest = draw(st.none() | MANIFESTS)
    if manifest is not None:
        manifest = SessionManifest.from_dict({**manifest.to_dict(), "session_id": session_id})
    checkpoints = st.builds(
        RunCheckpoint,
        NAMES,
        TIMES,
        st.none() | TIMES,
        st.sampled_from(RunStatus),
        st.none() | st.text(),
    )
    messages = st.builds(Message, st.sampled_from(Role), st.text())
    return Stored(
        session_id,
        manifest,
        tuple(draw(st.lists(FEATURES, max_size=3, unique_by=lambda one: one.id))),
        tuple(draw(st.lists(st.builds(ProgressEntry, NAMES, st.text(), TIMES), max_size=3))),
        tuple(draw(st.lists(checkpoints, max_size=3))),
        tuple(draw(st.lists(messages, min_size=1, max_size=4))),
    )


@settings(max_examples=30)
@given(some=st.lists(sessions(), max_size=3, unique_by=lambda one: one.session_id))
@pytest.mark.parametrize("written_as", WRITERS)
def test_any_session_comes_through_both_ways(
    written_as: str, some: list[Stored], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    source = folder / "source"
    (source / "sessions").mkdir(parents=True) if written_as == "filesystem" else None
    WRITERS[written_as](source, some)

    with fmemory.open(":memory:") as memory:
        import_into(memory, source)
        found = [stored_in(memory, one.session_id) for one in some]

    shutil.rmtree(folder)
    assert found == some


def test_no_byte_of_the_source_changes(kind: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = WRITERS[kind](tmp_path / "in" / "source")
    before = bytes_of(tmp_path / "in")

    with fmemory.open(tmp_path / "store") as memory:
        import_into(memory, source)

    assert bytes_of(tmp_path / "in") == before


def test_the_same_source_twice_adds_nothing(kind: str, tmp_path: Path) -> None:
    source = WRITERS[kind](tmp_path / "source")
    with fmemory.open(tmp_path / "store") as memory:
        import_into(memory, source)
        before = memory.head()

        fates = import_into(memory, source)

        assert fates == {one.session_id: Fate.PRESENT for one in EVERYTHING}
        assert memory.head() == before


def test_a_copy_of_the_sessions_in_another_kind_of_source_adds_nothing(tmp_path: Path) -> None:
    with fmemory.open(":memory:") as memory:
        import_into(memory, write_sqlite(tmp_path / "a"))
        before = memory.head()

        fates = import_into(memory, write_folder(tmp_path / "b"))

        assert set(fates.values()) == {Fate.PRESENT}
        assert memory.head() == before


def test_what_a_session_gained_in_its_source_is_added(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with fmemory.open(":memory:") as memory:
        import_into(memory, WRITERS[kind](source, [FULL, BARE]))
        source.unlink() if kind == "sqlite" else None
        after = memory.head().seq
        WRITERS[kind](source, [grown(FULL), BARE])

        fates = import_into(memory, source)

        assert fates == {"login": Fate.GROWN, "bare": Fate.PRESENT}
        assert stored_in(memory, "login") == grown(FULL)
        assert [one.type for one in memory.events(after=after)] == [
            "fiddlesticks.imported",
            "manifest_saved",
            "features_replaced",
            "progress_appended",
            "checkpoint_recorded",
            "transcript_appended",
        ]
        assert set(import_into(memory, source).values()) == {Fate.PRESENT}


def test_a_manifest_that_went_back_to_what_it_was_is_followed(tmp_path: Path) -> None:
    assert BARE.manifest is not None
    other = replace(BARE, manifest=BARE.manifest.with_active_branch("other"))
    with fmemory.open(":memory:") as memory:
        for stored in (BARE, other, BARE):
            import_into(memory, write_folder(tmp_path / "source", [stored]))

            assert stored_in(memory, "bare") == stored


def test_a_session_written_to_here_is_left_alone_when_its_source_grows(tmp_path: Path) -> None:
    with fmemory.open(":memory:") as memory:
        import_into(memory, write_folder(tmp_path / "source", [FULL]))
        memory.append_transcript_messages("login", [Message(Role.USER, "here")])
        before = memory.head()

        same = import_into(memory, tmp_path / "source")
        more = import_into(memory, write_folder(tmp_path / "source", [grown(FULL)]))

        assert (same, more) == ({"login": Fate.PRESENT}, {"login": Fate.LEFT_ALONE})
        assert memory.head() == before


@pytest.mark.parametrize(
    "other",
    [
        replace(TALK, transcript=(Message(Role.USER, "another"),)),
        replace(TALK, transcript=(*TALK.transcript, Message(Role.USER, "more"))),
        replace(FULL, session_id=TALK.session_id, manifest=None, transcript=TALK.transcript),
    ],
    ids=["other", "longer", "richer"],
)
def test_a_session_of_the_same_id_in_another_source_is_left_alone(
    other: Stored, tmp_path: Path
) -> None:
    with fmemory.open(":memory:") as memory:
        import_into(memory, write_folder(tmp_path / "one", [TALK]))
        before = memory.head()

        fates = import_into(memory, write_folder(tmp_path / "other", [other]))

        assert fates == {TALK.session_id: Fate.LEFT_ALONE}
        assert memory.head() == before


def test_an_older_copy_of_the_source_changes_nothing(tmp_path: Path) -> None:
    with fmemory.open(":memory:") as memory:
        import_into(memory, write_folder(tmp_path / "source", [grown(FULL)]))
        before = memory.head()

        fates = import_into(memory, write_folder(tmp_path / "source", [FULL]))

        assert fates == {"login": Fate.LEFT_ALONE}
        assert memory.head() == before


def test_a_session_that_is_there_already_is_named_and_the_others_are_imported(
    kind: str, store: Path, run: Command
) -> None:
    source = WRITERS[kind](store.parent / "source", [FULL, TALK])
    with fmemory.open(store) as memory:
        before = stored_in(memory, "login")

    result = run("import", "fiddlesticks", source, "-s", store)

    assert result.exit_code == 1
    assert only_line(result.stderr) == (
        "source: session 'login' is there already, and was not imported from Fiddlesticks; it was"
        " left alone"
    )
    with fmemory.open(store) as memory:
        assert stored_in(memory, "login") == before
        assert stored_in(memory, TALK.session_id) == TALK


def test_a_session_that_was_deleted_here_is_imported_anew(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", [FULL])
    with fmemory.open(tmp_path / "store") as memory:
        for _ in range(2):
            assert import_into(memory, source) == {"login": Fate.IMPORTED}
            assert import_into(memory, source) == {"login": Fate.PRESENT}
            assert stored_in(memory, "login") == FULL
            memory.delete_session("login")


def test_imports_that_run_at_the_same_time_write_each_session_once(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source")
    begin = Barrier(4)

    def import_it(_: int) -> None:
        with fmemory.open(tmp_path / "store") as memory:
            begin.wait()
            import_into(memory, source)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(import_it, range(4)))

    with fmemory.open(tmp_path / "store") as memory:
        ids = [one.event_id for one in memory.events()]
        assert None not in ids
        assert len({(one.stream, one.event_id) for one in memory.events()}) == len(ids)
        assert [stored_in(memory, one.session_id) for one in EVERYTHING] == list(EVERYTHING)


def test_a_log_in_the_same_file_leaves_the_tables_it_came_from_as_they_are(
    tmp_path: Path,
) -> None:
    source = write_sqlite(tmp_path / "source")
    before = rows_in(source)

    for fate in (Fate.IMPORTED, Fate.PRESENT):
        plan = plan_fiddlesticks(str(source))
        with SqliteMemoryBackend(source) as memory:
            assert {one.fate for one in apply_fiddlesticks(memory, plan)} == {fate}
            assert [stored_in(memory, one.session_id) for one in EVERYTHING] == list(EVERYTHING)

    assert rows_in(source).items() >= before.items()


def rows_in(database: Path) -> dict[str, list[object]]:
    """The rows of every table of a database."""
    with closing(sqlite3.connect(database)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for (name,) in names
            if name != "sqlite_sequence"
        }


def test_many_sessions_are_imported_once_too(tmp_path: Path) -> None:
    many = [replace(TALK, session_id=f"s{number}") for number in range(120)]
    source = write_folder(tmp_path / "source", many)
    with fmemory.open(":memory:") as memory:
        memory.append_transcript_messages("s7", [Message(Role.USER, "here")])
        memory.append_transcript_messages("other", [Message(Role.USER, "here")])
        mine = NewEvent("fiddlesticks.mine", 1, event_id="fiddlesticks:mine")
        memory.append(("session", "s8"), [mine])
        first = import_into(memory, source)
        before = memory.head()

        second = import_into(memory, source)

        assert memory.head() == before
    for session_id in ("s7", "s8"):
        assert first.pop(session_id) is second.pop(session_id) is Fate.LEFT_ALONE
    assert (set(first.values()), set(second.values())) == ({Fate.IMPORTED}, {Fate.PRESENT})


def test_a_session_with_nothing_in_it_is_not_made(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", [Stored("empty")])
    with fmemory.open(":memory:") as memory:
        assert import_into(memory, source) == {"empty": Fate.EMPTY}
        assert memory.head().seq == 0


def test_names_of_any_characters_are_those_of_their_files(tmp_path: Path, run: Command) -> None:
    source = write_folder(tmp_path / "source", [ODD])
    assert session_file(source, ODD.session_id).is_file()

    result = run("import", "fiddlesticks", source, "--json", "-s", tmp_path / "store")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "source": "source",
        "session_id": ODD.session_id,
        "fate": "imported",
        "messages_added": 1,
        "events_added": 2,
        "why": None,
        "skipped": [],
    }


def test_the_command_says_what_it_did_and_then_that_it_is_done(
    kind: str, tmp_path: Path, run: Command
) -> None:
    source = WRITERS[kind](tmp_path / "source", [FULL, TALK])

    first = run("import", "fiddlesticks", source, "-s", tmp_path / "store")
    second = run("import", "fiddlesticks", source, "-s", tmp_path / "store")

    assert first.exit_code == second.exit_code == 0, first.output + second.output
    assert [line.split() for line in first.stdout.splitlines()] == [
        ["session", "messages", "events"],
        ["login", "+5", "+14", "imported"],
        ["only", "talk", "+2", "+3", "imported"],
    ]
    assert second.stdout == "source: already imported, 2 sessions\n"
    assert run("verify", "-s", tmp_path / "store").exit_code == 0
