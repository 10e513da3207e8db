"""Mistakes that somebody could make in the log; each technique has to notice the ones it is for.

Each is a context manager that plants one for the length of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from unittest import mock

from fmemory_segments import Commit, Log, StoredEvent, _load, _walk
from fmemory_segments._sync import GroupSync, SyncTarget
from fmemory_segments.errors import LogError

Plant = Callable[[], AbstractContextManager[object]]


def acknowledges_before_the_sync() -> AbstractContextManager[object]:
    """A commit is called durable, and the sync is left for later."""
    return mock.patch.object(GroupSync, "sync", lambda _, upto: upto)


@contextmanager
def tells_tip_before_the_sync() -> Iterator[None]:
    """The witness says that events are on disk which are not there yet."""
    real = GroupSync._lead_or_wait

    def lead(self: GroupSync, upto: int) -> None:
        self._synced(self._target())
        real(self, upto)

    with mock.patch.object(GroupSync, "_lead_or_wait", lead):
        yield


def swallows_a_failed_sync() -> AbstractContextManager[object]:
    """An error of fdatasync is taken for nothing, or for something to be tried again."""
    real = GroupSync.__init__

    def begin(
        self: GroupSync,
        *,
        datasync: Callable[[int], None],
        target: Callable[[], SyncTarget],
        synced: Callable[[SyncTarget], int],
        failed: Callable[[OSError], LogError],
        durable_seq: int,
    ) -> None:
        def careless(fd: int) -> None:
            with suppress(OSError):
                datasync(fd)

        real(
            self,
            datasync=careless,
            target=target,
            synced=synced,
            failed=failed,
            durable_seq=durable_seq,
        )

    return mock.patch.object(GroupSync, "__init__", begin)


def trusts_a_stale_seal() -> AbstractContextManager[object]:
    """A SEAL is believed although nothing says that the frames before it are there."""
    return mock.patch.object(_load.Loader, "_stands", lambda *_: True)


def skips_the_checksum_of_data() -> AbstractContextManager[object]:
    """What a power cut left is taken in without looking at its content."""
    return mock.patch.object(_walk, "data_ok", lambda *_: True)


def leaves_a_failed_write() -> AbstractContextManager[object]:
    """What a write left that failed half-way stays where the next batch is to be."""
    return mock.patch("fmemory_segments._append.cut_back", lambda *_: None)


@contextmanager
def backs_up_what_is_not_synced() -> Iterator[None]:
    """A backup takes events that a power cut may still take from its source."""
    real = Log.sync

    def sync(self: Log, upto: int | None = None) -> int:
        return real(self) if upto is None else upto

    with mock.patch.object(Log, "sync", sync):
        yield


@contextmanager
def calls_a_backup_done_before_its_sync() -> Iterator[None]:
    """A backup is called durable, and its sync is left for later."""
    real = Log.import_exact

    def import_exact(self: Log, events: Iterable[StoredEvent]) -> Commit | None:
        with acknowledges_before_the_sync():
            return real(self, events)

    def sync(self: Log, upto: int | None = None) -> int:
        return self.refresh() if upto is None else upto

    with (
        mock.patch.object(Log, "import_exact", import_exact),
        mock.patch.object(Log, "sync", sync),
    ):
        yield


MISTAKES: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        acknowledges_before_the_sync,
        tells_tip_before_the_sync,
        swallows_a_failed_sync,
        trusts_a_stale_seal,
        skips_the_checksum_of_data,
        leaves_a_failed_write,
        backs_up_what_is_not_synced,
        calls_a_backup_done_before_its_sync,
    )
}
