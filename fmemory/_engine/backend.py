"""`JournalBackend`: the whole contract, written once, over any journal.

A write goes: here → its arguments checked (`checked_operations.py`) → an operation
(`*_operations.py`) → `Engine.write` (`core.py`) → the journal's `commit`. A read goes: `reads.py` →
`State` (`state.py`) → the projection, then the journal's rows and payloads.
"""

from __future__ import annotations

import copy
import functools
import numbers
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from datetime import datetime
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

import msgspec

from fmemory._audit import Audit
from fmemory._checks import check_int, wrong_type
from fmemory._engine import record_operations, session_operations
from fmemory._engine.arguments import (
    check_flag,
    check_own_stream,
)
from fmemory._engine.auto_compact import AutoCompactor
from fmemory._engine.batch import JournalBatch
from fmemory._engine.checked_operations import CheckedOperations
from fmemory._engine.core import Engine
from fmemory._engine.erasure import erasure_at
from fmemory._engine.projection import Projection
from fmemory._engine.reads import JournalReads
from fmemory._engine.rows import NamespacePut, encode_puts
from fmemory._engine.state import State
from fmemory._engine.work import Work
from fmemory._json_values import check_text, type_name
from fmemory._receipt import Receipt
from fmemory.backend import LogBackend, LogView
from fmemory.errors import ContractError, NotFound, ReadOnlyStore, Reason
from fmemory.journal import DataErased, Durability, Journal
from fmemory.log import Batch
from fmemory.log_models import AutoCompact, CompactResult, Health, NewEvent
from fmemory.memory_file import MemoryFileReader, Source, Target
from fmemory.record_models import (
    ClearRequest,
    ClearResult,
    DeleteRequest,
    DeleteResult,
    MetaResult,
    MetaSetRequest,
    PutRequest,
    PutResult,
    check_namespace,
    check_records,
)
from fmemory.records import EMBEDDING_ID_KEY
from fmemory.session_models import (
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
    check_session_id,
)

if TYPE_CHECKING:
    from fmemory.copying import CopyResult

P = ParamSpec("P")
T = TypeVar("T")

_LOAD_RECORDS_MAX = 4096
_LOAD_LINES_BYTES = 8 * 1024 * 1024


class JournalView(JournalReads, LogView):
    """Everything as it was after one event. Reads only; keeps an index of what it was asked."""

    def __init__(self, state: State, journal: Journal, durability: str, path: str | None) -> None:
        self._state = state
        self._journal = journal
        self._durability = durability
        self._path = path

    @property
    def seq(self) -> int:
        assert self._state.fixed is not None
        return self._state.fixed

    def at(self, moment: int | datetime) -> JournalView:
        """Everything as it was at a moment not after this view's.

        Args:
            moment: A seq, 0 to the view's, or an aware time.

        Raises:
            ContractError: A negative seq, or a naive time.
            NotFound: The seq is after the view's.
            HistoryCompacted: That past is no longer kept; `floor` is the oldest that is.
            StorageError: The store failed. Nothing was changed.
        """
        seq = _moment(self._state, moment)
        return _view(self._state, self._journal, seq, self._durability, self._path)


class JournalBackend(CheckedOperations, JournalReads, LogBackend):
    """The contract over a journal. Threads and coroutines may share one.

    Args:
        journal: Where events are stored; closed with the backend.
        durability: The journal's policy.
        path: Where the store is, for `health()`.
    """

    kind = "journal"

    def __init__(
        self, journal: Journal, *, durability: Durability = "os", path: str | None = None
    ) -> None:
        self._engine = Engine(journal, durability=durability)
        self._journal = journal
        self._durability = durability
        self._path = path
        self._state = State(
            journal, self._engine.projection, self._engine.lock, self._engine.cursors
        )
        self._owner = self

    @property
    def journal(self) -> Journal:
        """The journal underneath."""
        return self._journal

    # Records

    def put(self, request: PutRequest) -> PutResult:
        return self._engine.write(self._put(request))

    def delete(self, request: DeleteRequest) -> DeleteResult:
        return self._engine.write(self._delete(request))

    def set_meta(self, request: MetaSetRequest) -> MetaResult:
        return self._engine.write(self._set_meta(request))

    def clear(self, request: ClearRequest) -> ClearResult:
        return self._engine.write(self._clear(request))

    def ensure_embedding_id(self, embedding_id: str, namespace: Sequence[str] = ()) -> None:
        """Say which model a namespace's vectors come from, once; later calls compare.

        Kept as the namespace's metadata value `embedding_id`. Compared and set under the store's
        lock: of several callers at once, one sets it and the others compare.

        Raises:
            ContractError: Not a non-empty str; or the namespace has another one, so its vectors
                cannot be compared with yours. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as `put`.
        """
        labels = check_namespace(namespace, "namespace")
        check_text(embedding_id, "embedding_id")
        request = self.meta_set_request(key=EMBEDDING_ID_KEY, value=embedding_id, namespace=labels)
        self._engine.write(
            record_operations.set_meta_once(
                labels, EMBEDDING_ID_KEY, request.value, self._options()
            )
        )

    # Sessions

    def initialize_session_if_missing(
        self,
        session_id: str,
        manifest: SessionManifest,
        feature_list: Sequence[FeatureRecord],
        initial_progress_entry: ProgressEntry | None = None,
        initial_checkpoint: RunCheckpoint | None = None,
    ) -> bool:
        return self._engine.write(
            self._initialize(
                session_id, manifest, feature_list, initial_progress_entry, initial_checkpoint
            )
        )

    def save_manifest(
        self,
        session_id: str,
        manifest: SessionManifest,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._save_manifest(session_id, manifest, self._options(event_id, expected_revision))
        )

    def append_progress_entry(
        self,
        session_id: str,
        entry: ProgressEntry,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._append_progress(session_id, entry, self._options(event_id, expected_revision))
        )

    def replace_feature_list(
        self,
        session_id: str,
        feature_list: Sequence[FeatureRecord],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._replace_features(
                session_id, feature_list, self._options(event_id, expected_revision)
            )
        )

    def update_feature_pass(
        self,
        session_id: str,
        feature_id: str,
        passes: bool,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._update_feature(
                session_id, feature_id, passes, self._options(event_id, expected_revision)
            )
        )

    def record_run_checkpoint(
        self,
        session_id: str,
        checkpoint: RunCheckpoint,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._record_checkpoint(
                session_id, checkpoint, self._options(event_id, expected_revision)
            )
        )

    def append_transcript_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._append_messages(session_id, messages, self._options(event_id, expected_revision))
        )

    def truncate_transcript(
        self,
        session_id: str,
        *,
        keep: int,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._truncate(session_id, keep, self._options(event_id, expected_revision))
        )

    def delete_session(
        self,
        session_id: str,
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(
            self._delete_session(session_id, self._options(event_id, expected_revision))
        )

    def fork_session(
        self,
        source: str,
        target: str,
        *,
        at: int | datetime | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        if check_session_id(source, "source") == check_session_id(target, "target"):
            raise ContractError(
                f"expected another id than the source's, got {target!r}",
                where="target",
                reason=Reason.BAD_VALUE,
            )
        moment = None if at is None else _moment(self._state, at)

        def seq(work: Work) -> int | None:
            del work
            return moment

        fork = session_operations.fork_session(source, target, seq, self._options(event_id))
        try:
            return self._engine.write(fork)
        except DataErased as erased:
            past = self._state if moment is None else self.at(moment)._state
            return past.ask_again(erased, lambda: self._engine.write(fork))
        except NotFound:
            if moment is not None:
                self.at(moment)._state.session(source)  # Refused where its events are forgotten.
            raise

    # The log

    def append(
        self,
        stream: Sequence[str],
        events: Sequence[NewEvent],
        *,
        expected_revision: int | None = None,
    ) -> Receipt:
        return self._engine.write(self._append(stream, events, expected_revision))

    def delete_stream(
        self,
        stream: Sequence[str],
        *,
        event_id: str | None = None,
        expected_revision: int | None = None,
    ) -> Receipt:
        labels = check_own_stream(stream, sessions=False)
        return self._engine.write(
            record_operations.delete_stream(labels, self._options(event_id, expected_revision))
        )

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        batch = JournalBatch(self)
        try:
            yield batch
        except BaseException:
            batch.end()
            raise
        self._write_batch(batch)

    @asynccontextmanager
    async def abatch(self) -> AsyncIterator[Batch]:
        batch = JournalBatch(self)
        try:
            yield batch
        except BaseException:
            batch.end()
            raise
        await self._run_write(self._write_batch, batch)

    def at(self, moment: int | datetime) -> JournalView:
        seq = _moment(self._state, moment)
        return _view(self._state, self._journal, seq, self._durability, self._path)

    def sync(self) -> int:
        return self._journal.sync()

    def compact(
        self, *, forget_before: int | datetime | None = None, exclusive: bool = False
    ) -> CompactResult:
        self._check_writable("compact")
        before = 0 if forget_before is None else self._forget_before(forget_before)
        check_flag(exclusive, "exclusive")
        erasure = erasure_at(self._journal, self._state.upto(), before)
        done = self._journal.compact(erasure, exclusive=exclusive)
        return CompactResult(
            upto=done.upto,
            erased_records=done.erased_rows,
            erased_events=done.erased_events,
            forgotten_events=done.forgotten_events,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            pending=done.pending,
            notices=done.notices,
        )

    def auto_compact(self, rules: AutoCompact | None = None) -> None:
        """Compact in the background from now on, after writes of this handle, when it is worth it.

        What fails there is in the notices of `health()`, and is tried again.

        Args:
            rules: When it is worth it; None = as `AutoCompact()` says. Replaces earlier rules.

        Raises:
            ContractError: Not an `AutoCompact`.
            ReadOnlyStore: The store was opened for reading.
        """
        chosen = AutoCompact() if rules is None else rules
        if not isinstance(chosen, AutoCompact):
            raise ContractError(
                f"expected an AutoCompact, got {type_name(chosen)}: use AutoCompact(), or"
                " AutoCompact(garbage_share=0.3)",
                where="rules",
                reason=Reason.WRONG_TYPE,
            )
        self._check_writable("auto_compact")
        before = self._engine.auto_compactor
        self._engine.auto_compactor = AutoCompactor(self._journal, self.compact, chosen)
        if before is not None:
            before.close()

    def health(self) -> Health:
        found = super().health()
        compactor = self._engine.auto_compactor
        if compactor is None or not compactor.notices:
            return found
        return msgspec.structs.replace(found, notices=(*found.notices, *compactor.notices))

    def backup(self, target: str | os.PathLike[str]) -> CopyResult:
        from fmemory import config, copying  # both need this module
        from fmemory._target import check_apart

        self._state.upto()  # A closed handle makes no target.
        check_apart(self._path, target)
        with config.open(target) as copied:
            return copying.copy_log(self, copied)

    def bind(
        self, *, actor: str | None = None, run_id: str | None = None, reason: str | None = None
    ) -> Self:
        bound = copy.copy(self)
        bound._bound = Audit(actor, run_id, reason).over(self._bound)
        return bound

    # The memory file

    def dump(self, target: Target, namespace: Sequence[str] = ()) -> int:
        """Write a namespace's records of one moment to a memory file; gives their number.

        What is written meanwhile is not in it.

        Args:
            target: A path (gzip if it ends in `.gz`), or a text stream. A path is written as
                `<name>.partial` and renamed when complete; a stream cannot be undone.
            namespace: Exactly this one.

        Raises:
            ContractError: An argument breaks a rule.
            MemoryFileError: The target cannot be written. A file that was there before is as it
                was, and no partial one is left.
            StorageError: The store failed; as above.

        Cost: O(records), a page in memory.
        """
        return self.at(self._state.upto()).dump(target, namespace)

    def load(self, source: Source, namespace: Sequence[str] | None = None) -> int:
        """Store all records of a memory file as one batch; gives their number.

        The whole file is checked before anything is written, and then all of them are there or
        none, also after a crash. Vectors come back as float64, of exactly the values that were
        dumped.

        Args:
            source: A path (gzip if it ends in `.gz`), or a text stream.
            namespace: Put all records into this one; None = each into its own.

        Raises:
            ContractError: An argument breaks a rule.
            MemoryFileError: The file breaks a rule, at `line`; or an id exists. Nothing was
                written.
            StorageError: The store failed; the class says what holds.

        Cost: O(records) and the file read twice. Memory: all encoded records at once (as msgpack
        and arrays: half the size of the file), some megabytes and 200 bytes for each id; what the
        journal makes of them, and the text of a stream beyond 16 MiB, is not held.
        """
        with MemoryFileReader(source, namespace) as file:
            puts: list[NamespacePut] = []
            for some in file.groups(_LOAD_RECORDS_MAX, _LOAD_LINES_BYTES):
                puts += encode_puts(check_records(some))
            return self._engine.write(record_operations.load(puts, file, self._options()))

    # Handle

    def close(self) -> None:
        if self._owner is not self:
            return
        self._engine.async_writer.close()
        if self._engine.auto_compactor is not None:
            self._engine.auto_compactor.close()
        self._close_threads()
        self._journal.close()

    def _check_writable(self, what: str) -> None:
        if self._journal.read_only:
            raise ReadOnlyStore(
                f"{what}: expected a store opened for writing, got read_only=True ({self._path});"
                " nothing was written; open it without read_only",
                path=self._path,
            )

    def _forget_before(self, moment: int | datetime) -> int:
        """The seq before which events are forgotten."""
        if isinstance(moment, datetime):
            return self._state.seq_before(moment, "forget_before") + 1
        try:
            seq = check_int(moment)
        except ContractError:
            raise ContractError(
                "expected a seq (an int) or a time (a datetime that knows its offset), got"
                f" {type_name(moment)}",
                where="forget_before",
                reason=Reason.WRONG_TYPE,
            ) from None
        if seq < 1:
            raise ContractError(
                f"expected a seq, 1 or more, or a time, got {seq}",
                where="forget_before",
                reason=Reason.OUT_OF_RANGE,
            )
        return seq

    # Private: async calls

    async def _run_write(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        import asyncio

        work = functools.partial(copy_context().run, call, *args, **kwargs)
        return await asyncio.wrap_future(self._engine.async_writer.submit(work))

    def _threads(self) -> ThreadPoolExecutor:
        # Bound views use the threads of the backend they came from.
        return super()._threads() if self._owner is self else self._owner._threads()

    def _write_batch(self, batch: JournalBatch) -> None:
        operations = batch.end()
        if not operations:
            return
        batch.receipt = self._engine.write_all(operations)


def _moment(state: State, moment: int | datetime) -> int:
    """The seq of a moment.

    Raises:
        ContractError: Neither a seq nor an aware time.
        NotFound: The seq is not written yet.
    """
    if isinstance(moment, datetime):
        return state.seq_at(moment, "moment")
    if not isinstance(moment, numbers.Number):
        raise wrong_type("a seq (int) or an aware datetime", moment).within("moment")
    try:
        seq = check_int(moment)
    except ContractError as error:
        raise error.within("moment") from None
    newest = state.upto()
    if seq < 0:
        raise ContractError(
            f"expected 0 (before everything) to {newest}, got {seq}",
            where="moment",
            reason=Reason.OUT_OF_RANGE,
        )
    if seq > newest:
        raise NotFound(
            f"moment: expected a seq from 0 to {newest}, got {seq}, which is not written yet",
            reason=Reason.EVENT_NOT_FOUND,
            key=str(seq),
        )
    return seq


def _view(
    state: State, journal: Journal, seq: int, durability: str, path: str | None
) -> JournalView:
    past = State(journal, Projection(by_stream=True), threading.RLock(), state.cursors, seq)
    return JournalView(past, journal, durability, path)
