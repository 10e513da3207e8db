"""The engine under a backend: a journal, the projection of its events, and how a write is made.

The path of a write: an operation is handed to `write`; the journal calls the plan under its own
exclusion; the plan runs the operation on the folded state and returns drafts; the journal stores
them and says what it promises; the operation's result is made from that receipt. Locks are taken in
this order: the journal's commit lock, then the engine's, then the journal's internal ones. Reads
refresh the journal before they take the engine's lock and read payloads after they gave it back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from fmemory._engine.async_writer import AsyncWriter, current_deferral
from fmemory._engine.auto_compact import AutoCompactor
from fmemory._engine.cursors import CursorCodec
from fmemory._engine.projection import Projection
from fmemory._engine.results import receipt
from fmemory._engine.work import Operation, Work
from fmemory.journal import Commit, Draft, Durability, Journal, Txn
from fmemory.log_models import Receipt

T = TypeVar("T")


class _Outcome(msgspec.Struct, frozen=True):
    """What one operation did inside its plan."""

    finish: Callable[[Receipt], object]
    drafts: Sequence[Draft]
    first: int
    revision: int
    head: int
    repeated: Receipt | None


class Engine:
    """What all handles on one opened journal share."""

    def __init__(self, journal: Journal, *, durability: Durability) -> None:
        self.journal = journal
        self.durability = durability
        self.lock = threading.RLock()
        self.projection = Projection(by_stream=journal.capabilities.reads_streams)
        self.cursors = CursorCodec(journal.store_id)
        self.async_writer = AsyncWriter(self._make_durable)
        self.auto_compactor: AutoCompactor | None = None

    def write(self, operation: Operation[T]) -> T:
        """Run one operation and commit what it emits."""
        (result,) = self._commit([operation])
        return result

    def write_all(self, operations: Sequence[Operation[object]]) -> Receipt:
        """Run operations and commit what they emit as one batch; each sees those before it."""
        receipts: list[Receipt] = []

        def noting(operation: Operation[object]) -> Operation[None]:
            def noted(work: Work) -> Callable[[Receipt], None]:
                operation(work)
                return receipts.append

            return noted

        self._commit([noting(operation) for operation in operations])
        return Receipt(
            seq=max(one.seq for one in receipts),
            revision=receipts[-1].revision,
            event_count=sum(one.event_count for one in receipts),
            durable=all(one.durable for one in receipts),
        )

    def _commit(self, operations: Sequence[Operation[T]]) -> list[T]:
        outcomes: list[_Outcome] = []
        drafts: list[Draft] = []

        def plan(txn: Txn) -> Sequence[Draft] | None:
            outcomes.clear()
            with self.lock:
                work = Work(txn, self.projection, shared=len(operations) > 1)
                for operation in operations:
                    outcomes.append(_run(operation, work))
            drafts[:] = work.drafts
            return drafts or None

        deferral = current_deferral()
        # Only a sync before the answer can be put off; the other policies give none.
        deferred = deferral is not None and self.durability == "fsync"
        commit = self.journal.commit(plan, durability="os" if deferred else None)
        if commit is not None:
            with self.lock:
                self.projection.add(commit, drafts)
            if deferral is not None:
                deferral.seq = max(deferral.seq, commit.last_seq)
            if self.auto_compactor is not None:
                self.auto_compactor.touch(commit.last_seq)
        return [
            outcome.finish(self._receipt(outcome, commit))  # type: ignore[misc]
            for outcome in outcomes
        ]

    def _receipt(self, outcome: _Outcome, commit: Commit | None) -> Receipt:
        if outcome.drafts:
            assert commit is not None
            # A deferred commit is answered only after its sync.
            deferred = current_deferral() is not None and self.durability == "fsync"
            return receipt(
                commit.first_seq + outcome.first + len(outcome.drafts) - 1,
                outcome.revision,
                len(outcome.drafts),
                durable=commit.durable or deferred,
            )
        repeated = outcome.repeated
        seq = outcome.head if repeated is None else repeated.seq
        durable_seq = (
            self.journal.sync(seq)
            if self.durability == "fsync" and not self.journal.read_only
            else self.journal.health().durable_seq
        )
        return Receipt(
            seq=seq,
            revision=outcome.revision if repeated is None else repeated.revision,
            event_count=0 if repeated is None else repeated.event_count,
            durable=durable_seq >= seq,
        )

    def _make_durable(self, seq: int) -> None:
        if self.durability == "fsync":
            self.journal.sync(seq)


def _run(operation: Operation[T], work: Work) -> _Outcome:
    first = len(work.drafts)
    work.begin()
    finish = operation(work)
    return _Outcome(
        finish,
        work.drafts[first:],
        first,
        work.touched_revision(),
        work.txn.head_seq,
        work.repeated,
    )
