"""Many processes on one store, and handles carried over a fork."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from typing import ClassVar, cast

import pytest

from fmemory.backend import MemoryBackend
from fmemory.errors import DuplicateRecord, ForkedStore, MemoryBackendError
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._log_base import as_log
from fmemory.testing._processes import Job, Start, run_together
from fmemory.testing._samples import count, record, scan_ids
from fmemory.testing._sessions_samples import manifest, said

Target = Callable[[], MemoryBackend]


def put_many(start: Start, target: Target, name: str, number: int) -> int:
    """Put records `name-0`, `name-1`, … one by one."""
    with target() as memory:
        start()
        for turn in range(number):
            memory.put(memory.put_request((record(f"{name}-{turn}", turn),)))
    return number


def open_and_put(start: Start, target: Target, name: str) -> int:
    """Open only when all are ready, then put one record; how many there are then."""
    start()
    with target() as memory:
        memory.put(memory.put_request((record(name),)))
        return count(memory)


def put_same(start: Start, target: Target, name: str) -> bool:
    """Put a record that all put, with one of one's own; whether it was this process's."""
    with target() as memory:
        start()
        try:
            memory.put(memory.put_request((record("same"), record(name))))
        except DuplicateRecord:
            return False
    return True


def initialize(start: Start, target: Target, name: str) -> bool:
    """Initialize a session that all initialize."""
    with target() as memory:
        start()
        return memory.initialize_session_if_missing("s1", manifest(objective=name), ())


def append_pairs(start: Start, target: Target, name: str, number: int) -> int:
    """Append pairs of messages."""
    with target() as memory:
        start()
        for turn in range(number):
            memory.append_transcript_messages("s1", said(f"{name}-{turn}", f"{name}-{turn}"))
    return number


def follow(start: Start, target: Target, number: int) -> list[int]:
    """Follow from the beginning until that many events came; their seqs."""
    seen: list[int] = []
    with target() as memory:
        start()
        for one in as_log(memory).follow(0):
            seen.append(one.seq)
            if len(seen) == number:
                break
    return seen


def use_after_fork(start: Start, target: Target) -> dict[str, object]:
    """Fork with an open handle; what the child meets, and what the parent can still do."""
    start()
    memory = target()
    memory.put(memory.put_request((record("before"),)))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns of forking a process with threads; here the fork is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _report_and_exit(memory, target, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        met = json.loads(pipe.read())
    os.waitpid(child, 0)
    memory.put(memory.put_request((record("after"),)))
    found = scan_ids(memory)
    memory.close()
    return {**met, "parent": found}


def _report_and_exit(memory: MemoryBackend, target: Target, writing: int) -> None:
    met: dict[str, object] = {}
    for name, use in (
        ("write", lambda: memory.put(memory.put_request((record("child"),)))),
        ("read", lambda: memory.count(memory.count_request())),
        ("close", memory.close),
    ):
        try:
            use()
            met[name] = None
        except MemoryBackendError as error:
            met[name] = type(error).__name__
        except BaseException as error:
            met[name] = repr(error)
    try:
        with target() as own:
            own.put(own.put_request((record("own"),)))
        met["own"] = True
    except BaseException as error:
        met["own"] = repr(error)
    os.write(writing, json.dumps(met).encode())
    os._exit(0)


@needs(Capability.MULTI_PROCESS, Capability.PERSISTENT)
class ProcessesPart(BackendSuiteBase):
    """What holds between processes."""

    _met: ClassVar[dict[type, dict[str, object]]] = {}

    def jobs(
        self, stores: Stores, function: Callable[..., object], number: int, *more: object
    ) -> list[Job]:
        target = self.spawn_target(stores.location())
        return [Job(function, (target, f"p{i}", *more)) for i in range(number)]

    def test_records_put_by_processes_are_all_there(self, stores: Stores) -> None:
        run_together(self.jobs(stores, put_many, 3, 40))
        expected = {f"p{process}-{turn}" for process in range(3) for turn in range(40)}
        assert set(scan_ids(stores.open())) == expected

    def test_handle_opened_before_sees_what_processes_put(self, stores: Stores) -> None:
        memory = stores.open()
        run_together(self.jobs(stores, put_many, 2, 10))
        assert count(memory) == 20

    def test_processes_opening_a_new_store_together_all_succeed(self, stores: Stores) -> None:
        run_together(self.jobs(stores, open_and_put, 8))
        assert sorted(scan_ids(stores.open())) == [f"p{i}" for i in range(8)]

    def test_put_of_one_id_by_processes_succeeds_once(self, stores: Stores) -> None:
        won = run_together(self.jobs(stores, put_same, 4))
        assert won.count(True) == 1
        assert sorted(scan_ids(stores.open())) == sorted(["same", f"p{won.index(True)}"])

    def test_initialize_raced_by_processes_is_true_once(self, stores: Stores) -> None:
        won = run_together(self.jobs(stores, initialize, 8))
        state = stores.open().load_bootstrap_state("s1")
        assert won.count(True) == 1
        assert state.manifest == manifest(objective=f"p{won.index(True)}")

    def test_pairs_appended_by_processes_stay_together(self, stores: Stores) -> None:
        run_together(self.jobs(stores, append_pairs, 3, 20))
        texts = [one.content for one in stores.open().load_transcript_messages("s1")]
        assert len(texts) == 120
        assert texts[::2] == texts[1::2]

    @needs(Capability.LOG)
    def test_four_writers_and_a_follower_agree_on_a_thousand_events(self, stores: Stores) -> None:
        target = self.spawn_target(stores.location())
        stores.open()
        jobs = [*self.jobs(stores, put_many, 4, 250), Job(follow, (target, 1000))]
        followed = cast("list[int]", run_together(jobs)[-1])
        memory = as_log(stores.open())
        assert followed == list(range(1, 1001))
        assert [one.seq for one in memory.events()] == followed
        assert count(memory) == 1000

    @pytest.fixture
    def met_after_fork(self, stores: Stores) -> dict[str, object]:
        """What a child met that carried an open handle over a fork, and its parent afterwards.

        One run serves all claims about it.
        """
        known = self._met.get(type(self))
        if known is None:
            target = self.spawn_target(stores.location())
            (found,) = run_together([Job(use_after_fork, (target,))])
            known = self._met[type(self)] = cast("dict[str, object]", found)
        return known

    @needs(Capability.FORK_GUARD)
    def test_handle_carried_over_a_fork_refuses(self, met_after_fork: dict[str, object]) -> None:
        assert (met_after_fork["write"], met_after_fork["read"]) == (
            ForkedStore.__name__,
            ForkedStore.__name__,
        )

    @needs(Capability.FORK_GUARD)
    def test_forked_child_may_close_its_handle(self, met_after_fork: dict[str, object]) -> None:
        assert met_after_fork["close"] is None

    @needs(Capability.FORK_GUARD)
    def test_forked_child_can_open_the_store_itself(
        self, met_after_fork: dict[str, object]
    ) -> None:
        assert met_after_fork["own"] is True

    @needs(Capability.FORK_GUARD)
    def test_parent_goes_on_after_a_fork(self, met_after_fork: dict[str, object]) -> None:
        assert met_after_fork["parent"] == ["before", "own", "after"]
