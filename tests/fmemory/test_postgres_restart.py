"""The server is killed in the middle of a write load and started again, twice.

Goal: nothing acknowledged is lost and nothing is there twice, while writers do no more than what
the errors tell them: try again, or ask what became of a write. Method: a server of the test's own,
SIGKILL, writers in threads with handles of their own. What would have to break: an error that says
"not written" for a write that is there (its retry would be refused as a duplicate), a receipt for
one that is not, or a handle that does not find back to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Condition, Thread

import pytest

from fmemory import CommitUnknown, Reason, StorageError
from fmemory.journals import PostgresMemoryBackend
from tests.postgres import OwnServer, own_server

WAIT_S = 60.0
STEP = 40


@pytest.fixture
def server() -> Iterator[OwnServer]:
    with own_server() as own:
        yield own


class Load:
    """Writers that put records until they are stopped."""

    def __init__(self, url: str, names: str) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[BaseException] = []
        self._changed = Condition()
        self._stopped = False
        self._threads = [Thread(target=self._write, args=(url, name)) for name in names]
        for thread in self._threads:
            thread.start()

    def wait_for(self, number: int) -> None:
        """Until that many writes were acknowledged."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.failures or len(self.acknowledged) >= number, WAIT_S
            )
        assert self.failures == []

    def stop(self) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join(WAIT_S)
        assert self.failures == []

    def _write(self, url: str, name: str) -> None:
        try:
            with PostgresMemoryBackend.from_url(url, lock_timeout_s=WAIT_S) as memory:
                number = 0
                while not self._stopped:
                    self._put(memory, f"{name}{number}")
                    number += 1
        except BaseException as error:
            with self._changed:
                self.failures.append(error)
                self._changed.notify_all()

    def _put(self, memory: PostgresMemoryBackend, record_id: str) -> None:
        written = False
        while not written:
            try:
                memory.add_note("tea", [1.0], id=record_id)
                written = True
            except CommitUnknown as error:
                written = memory.was_committed(error)
            except StorageError as error:
                assert error.reason in (Reason.STORAGE_FAILED, Reason.STORE_BUSY)
        with self._changed:
            self.acknowledged.append(record_id)
            self._changed.notify_all()


def test_server_killed_under_load_loses_nothing_and_doubles_nothing(server: OwnServer) -> None:
    url = server.postgres.url
    load = Load(url, "ab")
    for turn in range(1, 3):
        load.wait_for(turn * STEP)
        server.kill()
        server.start()
    load.wait_for(3 * STEP)
    load.stop()
    with PostgresMemoryBackend.from_url(url) as memory:
        assert sorted(one.id for one in memory.iter_all()) == sorted(load.acknowledged)
        assert [one.seq for one in memory.events()] == list(range(1, len(load.acknowledged) + 1))
        assert memory.verify() == ()


def test_handle_finds_back_to_a_server_that_was_restarted(server: OwnServer) -> None:
    with PostgresMemoryBackend.from_url(server.postgres.url) as memory:
        memory.add_note("tea", id="a")
        server.stop()
        server.start()
        memory.add_note("tea", id="b")
        assert [one.id for one in memory.iter_all()] == ["a", "b"]


def test_read_finds_back_to_a_server_that_was_killed(server: OwnServer) -> None:
    with PostgresMemoryBackend.from_url(server.postgres.url) as memory:
        memory.add_note("tea", id="a")
        server.kill()
        server.start()
        assert memory.count(memory.count_request()).count == 1


@pytest.mark.parametrize("use", ["read", "write", "open"])
def test_server_that_stays_away_is_a_typed_error(server: OwnServer, use: str) -> None:
    url = server.postgres.url
    with PostgresMemoryBackend.from_url(url, lock_timeout_s=0.2) as memory:
        memory.add_note("tea", id="a")
        server.stop()
        uses: dict[str, Callable[[], object]] = {
            "read": lambda: memory.count(memory.count_request()),
            "write": lambda: memory.add_note("tea", id="b"),
            "open": lambda: PostgresMemoryBackend.from_url(url),
        }
        with pytest.raises(StorageError) as caught:
            uses[use]()
        assert (type(caught.value), caught.value.reason) == (StorageError, Reason.STORAGE_FAILED)
