"""A child of a fork does nothing to its parent's connections, however it ends."""

from __future__ import annotations

import os
import select
import warnings

import pytest

from fmemory import ForkedStore
from fmemory.journals import PostgresMemoryBackend
from fmemory.testing._processes import Job, Start, run_together

ENDS = ["closes", "collects", "stops watching"]


def fork_and_look(start: Start, url: str, end: str) -> dict[str, object]:
    """Let a child end its copies; whether the parent's connections and its thread noticed."""
    start()
    with PostgresMemoryBackend.from_url(url) as memory:
        memory.add_note("tea", id="a")
        stop = memory.journal.watch(lambda: None)
        before = backend_pids(url)
        with warnings.catch_warnings():
            # Python warns of forking a process with threads; here the fork is the point.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            met = None
            try:
                memory.count(memory.count_request())
            except ForkedStore:
                met = 3
            if end == "closes":
                memory.close()
            elif end == "stops watching":
                stop()
            else:
                vars(memory.journal.table).clear()  # type: ignore[attr-defined]
            os._exit(met or 4)
        _, status = os.waitpid(child, 0)
        memory.add_note("tea", id="b")
        kept = before <= backend_pids(url)
        pipe = memory.journal.table._listener._thread._reading  # type: ignore[attr-defined]
        quiet = select.select([pipe], [], [], 0)[0] == []
        return {"child": os.waitstatus_to_exitcode(status), "kept": kept, "quiet": quiet}


def backend_pids(url: str) -> set[int]:
    """The server's processes for the connections of a memory."""
    import psycopg

    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'fmemory'"
    query += " AND datname = current_database()"
    with psycopg.connect(url, autocommit=True) as connection:
        return {int(row[0]) for row in connection.execute(query.encode()).fetchall()}


@pytest.mark.parametrize("end", ENDS)
def test_connections_of_the_parent_outlive_its_child(postgres_url: str, end: str) -> None:
    (seen,) = run_together([Job(fork_and_look, (postgres_url, end))])
    assert seen == {"child": 3, "kept": True, "quiet": True}
