"""Record operations: notes with vectors, by namespace. Each sync one beside its async twin.

Four reads and four writes are abstract; a backend implements them under the rules in their
docstrings, which `fmemory.testing.MemoryBackendSuite` checks. Everything else stands on those.
Operations never keep what they are given, and what they return is the caller's to change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeVar, cast

import numpy as np

from fmemory._json_values import JsonObject, type_name
from fmemory._names import check_name, check_namespace
from fmemory._nearest import check_query, nearest_rows
from fmemory._runner import Runner
from fmemory.errors import ContractError, Reason
from fmemory.record_models import (
    SCAN_LIMIT_DEFAULT,
    ClearRequest,
    ClearResult,
    CountRequest,
    CountResult,
    DeleteRequest,
    DeleteResult,
    GetRequest,
    GetResult,
    MemoryRecord,
    MetaGetRequest,
    MetaResult,
    MetaSetRequest,
    Metric,
    Note,
    PutRequest,
    PutResult,
    ScanRequest,
    ScanResult,
    ScoredRecord,
    TimeRange,
    VectorBlock,
    VectorLike,
)
from fmemory_segments.event import VectorArray

__all__ = ["EMBEDDING_ID_KEY", "RecordReads", "RecordWrites", "check_request", "own_arguments"]

EMBEDDING_ID_KEY = "embedding_id"
"""Key of a namespace's metadata that names the model its vectors come from."""

R = TypeVar("R")


def check_request(request: object, kind: type[R]) -> R:
    """The request itself, when it is of the expected class or one derived from it.

    Args:
        request: What the caller passed.
        kind: The backend's own request class, such as `self.scan_request`.

    Raises:
        ContractError: It is not.

    >>> check_request("n1", GetRequest)
    Traceback (most recent call last):
    fmemory.errors.ContractError: request: expected GetRequest, got str; build it, for example\
 memory.get_request(...)
    """
    if isinstance(request, kind):
        return request
    name = kind.__name__.removesuffix("Request")
    attribute = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    raise ContractError(
        f"expected {kind.__name__}, got {type_name(request)}; build it, for example"
        f" memory.{attribute}_request(...)",
        where="request",
        reason=Reason.WRONG_TYPE,
    )


@contextmanager
def own_arguments(**names: str) -> Iterator[None]:
    """A block that builds a request of an operation's own arguments: errors name those.

    Args:
        names: Arguments that are called otherwise than the request's field, by field.

    Raises:
        ContractError: The block's own, without the request's class in its path.

    >>> with own_arguments(limit="page_size"):
    ...     ScanRequest(limit=0)
    Traceback (most recent call last):
    fmemory.errors.ContractError: page_size: expected 1 to 100000, got 0; follow next_cursor for\
 more
    """
    try:
        yield
    except ContractError as error:
        where = names.get(error.where, error.where)
        raise ContractError(error.problem, where=where, reason=error.reason) from None


class RecordReads(Runner, ABC):
    """Reading records. All reads see one moment: what was written before they began."""

    get_request: ClassVar[type[GetRequest]] = GetRequest
    scan_request: ClassVar[type[ScanRequest]] = ScanRequest
    count_request: ClassVar[type[CountRequest]] = CountRequest
    meta_get_request: ClassVar[type[MetaGetRequest]] = MetaGetRequest

    @abstractmethod
    def get(self, request: GetRequest) -> GetResult:
        """The records with these ids, in the order asked for, and the ids that are not there.

        An unknown id is never an error. An id named twice counts once, at its first place.

        Raises:
            ContractError: Not a GetRequest.
            StorageError: The store failed. Nothing was changed.

        Cost: O(ids).
        """

    async def aget(self, request: GetRequest) -> GetResult:
        """As `get`, without blocking the event loop."""
        return await self._run(self.get, request)

    @abstractmethod
    def scan(self, request: ScanRequest) -> ScanResult:
        """One page of a namespace's records, by timestamp, then in the order written.

        The range is half-open and exact at every page size. The cursor names a place in that
        order, not a count, so it goes on correctly when records were deleted or put between pages;
        it is opaque, bound to store and namespace, and of a durable store survives reopening it.
        `next_cursor` is None at the end of the range.

        Raises:
            ContractError: Not a ScanRequest.
            InvalidCursor: Malformed, empty, another store's or another namespace's.
            StorageError: The store failed. Nothing was changed.

        Cost: O(limit), and a search for the first record.
        """

    async def ascan(self, request: ScanRequest) -> ScanResult:
        """As `scan`, without blocking the event loop."""
        return await self._run(self.scan, request)

    @abstractmethod
    def count(self, request: CountRequest) -> CountResult:
        """How many records of a namespace lie in a range.

        Raises:
            ContractError: Not a CountRequest.
            StorageError: The store failed. Nothing was changed.
        """

    async def acount(self, request: CountRequest) -> CountResult:
        """As `count`, without blocking the event loop."""
        return await self._run(self.count, request)

    @abstractmethod
    def get_meta(self, request: MetaGetRequest) -> MetaResult:
        """A value of a namespace's metadata; None if there is none.

        Raises:
            ContractError: Not a MetaGetRequest.
            StorageError: The store failed. Nothing was changed.
        """

    async def aget_meta(self, request: MetaGetRequest) -> MetaResult:
        """As `get_meta`, without blocking the event loop."""
        return await self._run(self.get_meta, request)

    def iter_all(
        self,
        time_range: TimeRange | None = None,
        namespace: Sequence[str] = (),
        page_size: int = SCAN_LIMIT_DEFAULT,
    ) -> Iterator[MemoryRecord]:
        """All records of a range, page by page.

        Records put or deleted meanwhile are seen or not, as their place in the order has it; no
        record that was there all along is left out or given twice. No lock is held between items.

        Args:
            time_range: None = all.
            namespace: Exactly this one.
            page_size: 1 to `SCAN_LIMIT_MAX` records read at a time.

        Raises:
            ContractError: An argument breaks a rule; raised by the call, not by the first item.
            StorageError: The store failed. Nothing was changed.
        """
        return self._all_records(self._first_page(time_range, namespace, page_size))

    def _all_records(self, request: ScanRequest) -> Iterator[MemoryRecord]:
        while True:
            page = self.scan(request)
            yield from page.records
            if page.next_cursor is None:
                return
            request = self._next_page(request, page.next_cursor)

    def aiter_all(
        self,
        time_range: TimeRange | None = None,
        namespace: Sequence[str] = (),
        page_size: int = SCAN_LIMIT_DEFAULT,
    ) -> AsyncGenerator[MemoryRecord, None]:
        """As `iter_all`, without blocking the event loop."""
        return self._aall_records(self._first_page(time_range, namespace, page_size))

    async def _aall_records(self, request: ScanRequest) -> AsyncGenerator[MemoryRecord, None]:
        while True:
            page = await self.ascan(request)
            for record in page.records:
                yield record
            if page.next_cursor is None:
                return
            request = self._next_page(request, page.next_cursor)

    def _first_page(
        self, time_range: TimeRange | None, namespace: Sequence[str], page_size: int
    ) -> ScanRequest:
        with own_arguments(limit="page_size"):
            return self.scan_request(
                time_range=time_range,
                namespace=cast("tuple[str, ...]", namespace),
                limit=page_size,
            )

    def _next_page(self, request: ScanRequest, cursor: str) -> ScanRequest:
        return self.scan_request(
            time_range=request.time_range,
            namespace=request.namespace,
            limit=request.limit,
            cursor=cursor,
        )

    def vectors(
        self,
        time_range: TimeRange | None = None,
        namespace: Sequence[str] = (),
        ids: Sequence[str] | None = None,
    ) -> VectorBlock:
        """The vectors of many records as one matrix, without record objects.

        Records without an embedding (vectors of length 0) are left out. float32 and float64 mixed
        become float64.

        Args:
            time_range: None = all.
            namespace: Exactly this one.
            ids: Only these records; unknown ids are left out. None = all.

        Returns:
            ids, timestamps float64 (n,) and matrix (n, dim), in scan order; (0, 0) if there are
            none.

        Raises:
            ContractError: An argument breaks a rule, or vectors differ in length.
            StorageError: The store failed. Nothing was changed.

        Cost: O(n * dim) memory. This base form builds the record objects on the way.
        """
        with own_arguments():
            wanted = (
                None if ids is None else set(self.get_request(cast("tuple[str, ...]", ids)).ids)
            )
        found = [
            record
            for record in self.iter_all(time_range, namespace)
            if len(record.vector) and (wanted is None or record.id in wanted)
        ]
        return VectorBlock(
            tuple(record.id for record in found),
            np.array([record.note.timestamp for record in found], np.float64),
            _stacked(found),
        )

    async def avectors(
        self,
        time_range: TimeRange | None = None,
        namespace: Sequence[str] = (),
        ids: Sequence[str] | None = None,
    ) -> VectorBlock:
        """As `vectors`, without blocking the event loop."""
        return await self._run(self.vectors, time_range, namespace, ids)

    def nearest(
        self,
        vector: VectorLike,
        k: int = 10,
        *,
        namespace: Sequence[str] = (),
        time_range: TimeRange | None = None,
        metric: Metric = "cosine",
    ) -> tuple[ScoredRecord, ...]:
        """The k records most similar to a vector, the most similar first. Exact: all are compared.

        Records without an embedding are left out; ties come in scan order. A vector of zeros has
        cosine 0 to everything.

        Args:
            vector: Shape (dim,), finite, not empty.
            k: 1 or more; fewer come back if there are fewer.
            namespace: Exactly this one.
            time_range: None = all.
            metric: "cosine", "dot", or "euclidean" (the score is minus the distance).

        Raises:
            ContractError: An argument breaks a rule, or the records' vectors differ in length from
                it or from each other.
            StorageError: The store failed. Nothing was changed.

        Cost: O(n * dim), in numpy.

        Source: scores are computed in float64 for the candidates that a bound on the rounding of
        the matrix product leaves, so equal vectors always have equal scores.
        """
        query, count, measure = check_query(vector, k, metric)
        labels = check_namespace(namespace, "namespace")
        block = self.vectors(time_range, labels)
        best = nearest_rows(block.matrix, query, count, measure)
        ids = tuple(block.ids[row] for row, _ in best)
        found = self.get(self.get_request(ids, labels)).records
        record_of = {record.id: record for record in found}
        return tuple(
            ScoredRecord(record_of[id_], score)
            for id_, (_, score) in zip(ids, best, strict=True)
            if id_ in record_of  # deleted by somebody since the vectors were read
        )

    async def anearest(
        self,
        vector: VectorLike,
        k: int = 10,
        *,
        namespace: Sequence[str] = (),
        time_range: TimeRange | None = None,
        metric: Metric = "cosine",
    ) -> tuple[ScoredRecord, ...]:
        """As `nearest`, without blocking the event loop."""
        return await self._run(
            self.nearest, vector, k, namespace=namespace, time_range=time_range, metric=metric
        )


class RecordWrites(RecordReads):
    """Writing records. Each call happens whole or not at all."""

    put_request: ClassVar[type[PutRequest]] = PutRequest
    delete_request: ClassVar[type[DeleteRequest]] = DeleteRequest
    meta_set_request: ClassVar[type[MetaSetRequest]] = MetaSetRequest
    clear_request: ClassVar[type[ClearRequest]] = ClearRequest

    @abstractmethod
    def put(self, request: PutRequest) -> PutResult:
        """Store new records: all of the call, across namespaces, or none.

        The same id may exist in two namespaces. Records are copied.

        Raises:
            ContractError: Not a PutRequest, or a record breaks a rule; `where` is its path, such
                as `records[3].note.metadata["a"]`. Nothing was written.
            DuplicateRecord: An id exists, or is named twice. Nothing was written.
            Conflict: The expected revision is not the actual one. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as the store's policy has it; on disk when this returns, by default.
        """

    async def aput(self, request: PutRequest) -> PutResult:
        """As `put`, without blocking the event loop; if cancelled, all is written or nothing."""
        return await self._run_write(self.put, request)

    @abstractmethod
    def delete(self, request: DeleteRequest) -> DeleteResult:
        """Delete records; the ids that are not there are reported, never an error.

        Raises:
            ContractError: Not a DeleteRequest. Nothing was written.
            Conflict: The expected revision is not the actual one. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as `put`.
        """

    async def adelete(self, request: DeleteRequest) -> DeleteResult:
        """As `delete`, without blocking the event loop; if cancelled, all is done or nothing."""
        return await self._run_write(self.delete, request)

    @abstractmethod
    def set_meta(self, request: MetaSetRequest) -> MetaResult:
        """Set a value of a namespace's metadata; the result carries the value as stored.

        Raises:
            ContractError: Not a MetaSetRequest. Nothing was written.
            Conflict: The expected revision is not the actual one. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as `put`.
        """

    async def aset_meta(self, request: MetaSetRequest) -> MetaResult:
        """As `set_meta`, without blocking the event loop; if cancelled, all is done or nothing."""
        return await self._run_write(self.set_meta, request)

    @abstractmethod
    def clear(self, request: ClearRequest) -> ClearResult:
        """Delete all records and metadata of one namespace; those below it stay.

        Raises:
            ContractError: Not a ClearRequest. Nothing was written.
            Conflict: The expected revision is not the actual one. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as `put`.
        """

    async def aclear(self, request: ClearRequest) -> ClearResult:
        """As `clear`, without blocking the event loop; if cancelled, all is done or nothing."""
        return await self._run_write(self.clear, request)

    def add_note(
        self,
        text: str,
        vector: VectorLike = (),
        *,
        id: str | None = None,  # noqa: A002 - the note's field
        timestamp: float | None = None,
        metadata: JsonObject | None = None,
        namespace: Sequence[str] = (),
        embedding_id: str | None = None,
    ) -> Note:
        """Store one new note, filling in what is not given, and get it back.

        Args:
            text: Any text that UTF-8 can carry.
            vector: Shape (dim,), finite; empty = no embedding.
            id: None = a random one.
            timestamp: None = now, in Unix seconds.
            metadata: None = empty.
            namespace: Where it goes.
            embedding_id: Which model made the vector.

        Raises:
            ContractError: A value breaks a rule. Nothing was written.
            DuplicateRecord: The id exists. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as `put`.
        """
        note = Note.create(text, timestamp=timestamp, metadata=metadata, id=id)
        record = MemoryRecord.create(note, vector, embedding_id, namespace)
        self.put(self.put_request((record,)))
        return note

    async def aadd_note(
        self,
        text: str,
        vector: VectorLike = (),
        *,
        id: str | None = None,  # noqa: A002 - the note's field
        timestamp: float | None = None,
        metadata: JsonObject | None = None,
        namespace: Sequence[str] = (),
        embedding_id: str | None = None,
    ) -> Note:
        """As `add_note`, without blocking the event loop."""
        note = Note.create(text, timestamp=timestamp, metadata=metadata, id=id)
        record = MemoryRecord.create(note, vector, embedding_id, namespace)
        await self.aput(self.put_request((record,)))
        return note

    def ensure_embedding_id(self, embedding_id: str, namespace: Sequence[str] = ()) -> None:
        """Say which model a namespace's vectors come from, once; later calls compare.

        Kept as the namespace's metadata value `embedding_id`.

        Raises:
            ContractError: Not a non-empty str; or the namespace has another one, so its vectors
                cannot be compared with yours. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as `put`.
        """
        labels = check_namespace(namespace, "namespace")
        check_name(embedding_id, "embedding_id")
        wanted = self.meta_set_request(EMBEDDING_ID_KEY, embedding_id, labels)
        present = self.get_meta(self.meta_get_request(EMBEDDING_ID_KEY, labels)).value
        if present is None:
            self.set_meta(wanted)
        elif present != embedding_id:
            raise ContractError(
                f"expected {present!r}, which namespace {wanted.namespace!r} has, got"
                f" {embedding_id!r}; use another namespace, or embed its notes again",
                where="embedding_id",
                reason=Reason.MISMATCH,
            )

    async def aensure_embedding_id(self, embedding_id: str, namespace: Sequence[str] = ()) -> None:
        """As `ensure_embedding_id`, without blocking the event loop."""
        await self._run_write(self.ensure_embedding_id, embedding_id, namespace)


def _stacked(records: Sequence[MemoryRecord]) -> VectorArray:
    if not records:
        return np.empty((0, 0), np.float64)
    dims = {len(record.vector) for record in records}
    if len(dims) > 1:
        raise ContractError(
            f"expected vectors of one length, got lengths {sorted(dims)}; keep each model's"
            " vectors in a namespace of their own",
            where="vector",
            reason=Reason.WRONG_DIMENSION,
        )
    return cast("VectorArray", np.stack([record.vector for record in records]))
