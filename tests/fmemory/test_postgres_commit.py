"""A connection that is lost around COMMIT: the caller is told the truth, each way.

Goal: a receipt for what was written, an error that says "not written" for what was not, and where
the server stays away an error whose id settles it later. Method: a real server behind a proxy that
cuts the wire at the COMMIT, before it or behind it. What would have to break: an append that is
acknowledged and lost, refused and kept, or written twice by the retry that an error invites.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from fmemory import (
    CommitUnknown,
    ContractError,
    JournalBackend,
    LogCorrupt,
    Reason,
    StorageError,
    StoreBusy,
)
from fmemory.journal import Blob, Draft, Txn
from fmemory.journals import PostgresMemoryBackend
from tests.fmemory.postgres_proxy import Cut, Proxy, proxied
from tests.postgres import Postgres

WAIT_S = 30.0


class Scene(NamedTuple):
    """A memory behind a proxy, and another that is not."""

    proxy: Proxy
    memory: PostgresMemoryBackend
    direct: PostgresMemoryBackend


@pytest.fixture
def lock_timeout_s() -> float:
    """How long the memory waits; short, for those who wait in vain."""
    return 0.5


@pytest.fixture
def scene(postgres_server: Postgres, postgres_url: str, lock_timeout_s: float) -> Iterator[Scene]:
    if "host=%2F" not in postgres_server.url and "host=/" not in postgres_server.url:
        pytest.skip("the proxy needs a server that is reached by a socket")
    with (
        proxied(postgres_url) as (proxy, url),
        PostgresMemoryBackend.from_url(url, lock_timeout_s=lock_timeout_s) as memory,
        PostgresMemoryBackend.from_url(postgres_url) as direct,
    ):
        put(memory, "first")
        yield Scene(proxy, memory, direct)


@pytest.fixture
def impatient(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    del postgres_server  # the module that is changed needs the driver
    monkeypatch.setattr("fmemory.journals._postgres.commit.SETTLE_TIMEOUT_S", 0.3)


def put(memory: JournalBackend, record_id: str) -> None:
    memory.add_note("tea", [1.0], id=record_id)


def ids(memory: JournalBackend) -> list[str]:
    return [one.id for one in memory.iter_all()]


def execute(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def terminate_all(url: str) -> None:
    """End the connections of everybody else to a database."""
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def lost(scene: Scene, cut: Cut, kind: type[StorageError]) -> StorageError:
    """What the put of "second" raises when the wire is cut there, for good."""
    scene.proxy.arm(cut, refuse=True)
    with pytest.raises(kind) as caught:
        put(scene.memory, "second")
    return caught.value


def test_committed_append_whose_answer_was_lost_gets_its_receipt(scene: Scene) -> None:
    scene.proxy.arm(Cut.AFTER)
    put(scene.memory, "second")
    assert ids(scene.direct) == ["first", "second"]


# What a process of the server says before it ends, when it finds that the main one is gone.
LAST_WORDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0"


# On a busy machine one of its many appends may take longer than others would wait.
@pytest.mark.parametrize("lock_timeout_s", [WAIT_S], ids=["patient"])
@pytest.mark.parametrize(
    "last_words",
    [b"", b"E" + (len(LAST_WORDS) + 4).to_bytes(4, "big") + LAST_WORDS],
    ids=["silent", "fatal"],
)
def test_committed_append_gets_its_receipt_wherever_its_answer_ends(
    scene: Scene, last_words: bytes
) -> None:
    byte_count = 0
    while byte_count <= scene.proxy.answer_bytes:
        scene.proxy.arm_answer(byte_count, last_words)
        put(scene.memory, str(byte_count))
        byte_count += 1
    assert byte_count > len("COMMIT")
    assert ids(scene.direct) == ["first", *map(str, range(byte_count))]


@pytest.mark.usefixtures("postgres_server")
@pytest.mark.parametrize(
    ("name", "text", "lost"),
    [
        ("OperationalError", "cannot exit pipeline mode while busy", True),
        ("InterfaceError", "the connection is closed", True),
        ("DatabaseError", "server closed the connection unexpectedly", True),
        ("errors.AdminShutdown", "terminating connection", True),
        ("errors.UniqueViolation", "duplicate key", False),
        ("errors.QueryCanceled", "canceling statement", False),
        ("ProgrammingError", "cannot adapt type", False),
        ("DataError", "text may not hold NUL", False),
    ],
)
def test_only_what_the_server_says_of_a_statement_is_an_answer(
    name: str, text: str, lost: bool
) -> None:
    import psycopg

    from fmemory.journals._postgres.errors import is_lost

    raised = operator.attrgetter(name)(psycopg)(text)
    assert is_lost(raised) is lost


def test_append_whose_commit_was_lost_is_told_as_not_written(scene: Scene) -> None:
    scene.proxy.arm(Cut.BEFORE)
    with pytest.raises(StorageError) as caught:
        put(scene.memory, "second")
    assert (type(caught.value), caught.value.reason) == (StorageError, Reason.STORAGE_FAILED)
    assert ids(scene.direct) == ["first"]


def test_append_told_as_not_written_can_be_tried_again(scene: Scene) -> None:
    scene.proxy.arm(Cut.BEFORE)
    with pytest.raises(StorageError):
        put(scene.memory, "second")
    put(scene.memory, "second")
    assert [one.seq for one in scene.direct.events()] == [1, 2]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("cut", "written"), [(Cut.AFTER, True), (Cut.BEFORE, False)])
def test_unknown_append_is_settled_when_the_server_is_back(
    scene: Scene, cut: Cut, written: bool
) -> None:
    error = lost(scene, cut, CommitUnknown)
    scene.proxy.cut_done.wait(WAIT_S)
    scene.proxy.restore()
    assert isinstance(error, CommitUnknown)
    assert scene.memory.was_committed(error) is written
    assert ids(scene.direct) == (["first", "second"] if written else ["first"])


@pytest.mark.usefixtures("impatient")
def test_unknown_append_names_its_batch_as_it_is_stored(scene: Scene) -> None:
    error = lost(scene, Cut.AFTER, CommitUnknown)
    scene.proxy.cut_done.wait(WAIT_S)
    assert isinstance(error, CommitUnknown)
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.reason, copied.seq) == (Reason.COMMIT_UNKNOWN, 2)
    assert scene.direct.was_committed(copied)


def test_error_of_another_log_is_not_settled(scene: Scene) -> None:
    error = CommitUnknown("of another log", seq=2, batch_id="00" * 16, store_id="00" * 16)
    with pytest.raises(ContractError) as caught:
        scene.direct.was_committed(error)
    assert caught.value.reason is Reason.MISMATCH


@pytest.mark.usefixtures("impatient")
def test_commit_that_is_still_under_way_is_not_told_as_lost(scene: Scene) -> None:
    """The server has the rows and waits; only who holds the head row knows that it has ended."""
    scene.proxy.arm(Cut.HELD)
    with pytest.raises(CommitUnknown) as caught:
        put(scene.memory, "second")
    with pytest.raises(StoreBusy):
        scene.memory.was_committed(caught.value)
    scene.proxy.release()
    scene.proxy.cut_done.wait(WAIT_S)
    assert scene.direct.was_committed(caught.value)


def test_connection_lost_between_writes_is_made_again(scene: Scene, postgres_url: str) -> None:
    terminate_all(postgres_url)
    put(scene.memory, "second")
    assert ids(scene.memory) == ["first", "second"]


def test_connection_lost_while_a_plan_runs_writes_nothing(scene: Scene, postgres_url: str) -> None:
    def plan(_txn: Txn) -> list[Draft]:
        terminate_all(postgres_url)
        return [Draft(stream=("a",), revision=1, type="x", payload=Blob(b"x"))]

    with pytest.raises(StorageError) as caught:
        scene.memory.journal.commit(plan)
    assert (type(caught.value), scene.direct.head().seq) == (StorageError, 1)


def test_row_past_the_head_is_told_as_damage(scene: Scene, postgres_url: str) -> None:
    execute(
        postgres_url,
        "INSERT INTO fmemory_events SELECT log_id, 2, stream_hash, revision, type, event_key,"
        " batch_id, recorded_at_ns, meta_check, meta, data FROM fmemory_events",
    )
    with pytest.raises(LogCorrupt):
        put(scene.memory, "second")
    assert scene.direct.head().seq == 1
