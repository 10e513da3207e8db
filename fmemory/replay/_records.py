"""Records of a namespace as a person looks for them: by time, by text, by likeness to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from fmemory._model import Model
from fmemory._names import check_namespace
from fmemory.errors import ContractError, NotFound, Reason, brief
from fmemory.record_models import MemoryRecord, TimeRange

if TYPE_CHECKING:
    from fmemory.backend import MemoryView

__all__ = ["FoundRecord", "FoundRecords", "records"]


class FoundRecord(Model, frozen=True):
    """A record, and how similar it is to the one that was asked for.

    Attributes:
        record: The record.
        score: Cosine of the two vectors, -1 to 1; None where likeness was not asked for.
    """

    record: MemoryRecord
    score: float | None = None


class FoundRecords(Model, frozen=True):
    """Records that were found; `complete` = there are no more than these."""

    records: tuple[FoundRecord, ...]
    complete: bool = True


def records(
    memory: MemoryView,
    *,
    namespace: Sequence[str] = (),
    time_range: TimeRange | None = None,
    text: str | None = None,
    near: str | None = None,
    limit: int | None = None,
) -> FoundRecords:
    """Records of a namespace by their time, or the most similar to one of them first.

    Args:
        memory: A memory, or a view of its past.
        namespace: Exactly this one.
        time_range: None = all.
        text: Only notes with this text in them, in whatever capitals.
        near: Id of a record with a vector: the others by likeness to it; it is not among them.
        limit: At most so many, 1 or more; None = all.

    Raises:
        ContractError: An argument breaks a rule; the record named has no vector.
        NotFound: There is no record `near`.
        StorageError: The store failed.

    Cost: O(records looked at); all of the range for `near`.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     for id, vector in (("a", [1, 0]), ("b", [0, 1]), ("c", [1, 1])):
    ...         _ = memory.add_note(f"note {id}", vector, id=id, timestamp=1.0)
    ...     [one.record.id for one in records(memory, near="a").records]
    ['c', 'b']
    """
    labels = check_namespace(namespace, "namespace")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ContractError(
            f"expected 1 or more, got {limit!r}", where="limit", reason=Reason.OUT_OF_RANGE
        )
    every: Iterator[FoundRecord] = (
        map(FoundRecord, memory.iter_all(time_range, labels))
        if near is None
        else _by_likeness(memory, near, labels, time_range)
    )
    wanted = (one for one in every if text is None or _has(one.record, text))
    found = tuple(islice(wanted, limit))
    return FoundRecords(found, complete=next(wanted, None) is None)


def _named(namespace: tuple[str, ...]) -> str:
    return f"namespace {'/'.join(namespace)}" if namespace else "the root namespace"


def _by_likeness(
    memory: MemoryView, near: str, namespace: tuple[str, ...], time_range: TimeRange | None
) -> Iterator[FoundRecord]:
    known = memory.get(memory.get_request([near], namespace)).records
    if not known:
        raise NotFound(
            f"near: expected a record of {_named(namespace)}, got {brief(near)}, not in it",
            reason=Reason.RECORD_NOT_FOUND,
            key=near,
        )
    vector = known[0].vector
    if not len(vector):
        raise ContractError(
            f"expected a record with a vector, got {brief(near)}, which has none",
            where="near",
            reason=Reason.EMPTY,
        )
    count = max(1, memory.count(memory.count_request(time_range, namespace)).count)
    for one in memory.nearest(vector, count, namespace=namespace, time_range=time_range):
        if one.record.id != near:
            yield FoundRecord(one.record, one.score)


def _has(record: MemoryRecord, text: str) -> bool:
    return text.casefold() in record.note.text.casefold()
