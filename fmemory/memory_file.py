"""The memory file: a namespace's records as JSON Lines that any tool can read.

The first line is the header, then one record a line with `note, vector, embedding_id, namespace`
and nothing else; UTF-8, `\\n`, gzip if the path ends in `.gz`. Numbers come back exactly. The file
knows no dtype: vectors are read as float64, and those of float32 have exactly the same values then.

`dump_file` and `load_file` stand on the public operations of any backend. A backend that can pin a
moment or write one batch uses the pieces: `write_memory_file` and `MemoryFileReader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from fmemory._file_lines import LINE_BYTES_MAX, Source
from fmemory._file_reader import (
    FORMAT_NAME,
    FORMAT_VERSION,
    MemoryFileHeader,
    MemoryFileReader,
)
from fmemory._file_writer import FileWriter, Target
from fmemory._names import check_namespace
from fmemory.errors import DuplicateRecord, MemoryBackendError, MemoryFileError, Reason
from fmemory.note_models import MemoryRecord
from fmemory.records import EMBEDDING_ID_KEY

if TYPE_CHECKING:
    from fmemory.backend import MemoryBackend, MemoryView

__all__ = [
    "FORMAT_NAME",
    "FORMAT_VERSION",
    "LINE_BYTES_MAX",
    "LOAD_BATCH_RECORDS",
    "MemoryFileHeader",
    "MemoryFileReader",
    "Source",
    "Target",
    "dump_file",
    "load_file",
    "write_memory_file",
]

LOAD_BATCH_RECORDS = 500
"""Records that a backend without batches of its own is given at a time."""

_encode = msgspec.json.Encoder().encode


def write_memory_file(
    target: Target, header: MemoryFileHeader, records: Iterable[MemoryRecord]
) -> int:
    """Write a header and its records; gives their number.

    Args:
        target: A path (gzip if it ends in `.gz`), or a text stream.
        header: Its count must be that of the records.
        records: Taken one by one.

    Raises:
        ContractError: The target is neither a path nor a text stream.
        MemoryFileError: It cannot be written, or there are more or fewer records than the header
            says. A file that was there before is as it was.
    """
    with FileWriter(target) as file:
        line = {"format": FORMAT_NAME, "version": FORMAT_VERSION, **header.to_dict()}
        file.write(_encode(line) + b"\n")
        count = 0
        for record in records:
            file.write(_encode(record.to_dict()) + b"\n")
            count += 1
        if count != header.count:
            raise MemoryFileError(
                f"expected {header.count} records, as counted before, got {count}: they changed"
                " meanwhile; dump again",
                reason=Reason.FILE_CHANGED,
            )
    return count


def dump_file(view: MemoryView, target: Target, namespace: Sequence[str] = ()) -> int:
    """Write a namespace's records, by public operations only; gives their number.

    Raises:
        ContractError: An argument breaks a rule.
        MemoryFileError: The target cannot be written, or the count changed meanwhile. A file that
            was there before is as it was.
        StorageError: The store failed; as above.
    """
    labels = check_namespace(namespace, "namespace")
    count = view.count(view.count_request(namespace=labels)).count
    embedding_id = view.get_meta(view.meta_get_request(EMBEDDING_ID_KEY, labels)).value
    header = MemoryFileHeader(
        embedding_id if isinstance(embedding_id, str) and embedding_id else None,
        labels,
        datetime.now(UTC),
        count,
    )
    return write_memory_file(target, header, view.iter_all(namespace=labels))


def load_file(
    backend: MemoryBackend, source: Source, namespace: Sequence[str] | None = None
) -> int:
    """Store the records of a memory file, by public operations only; gives their number.

    Raises:
        ContractError: An argument breaks a rule.
        MemoryFileError: The file breaks a rule, or an id exists. The target is unchanged.
        MemoryBackendError: Writing failed. What had been written was deleted again as far as could
            be; the error's notes say what was.
    """
    with MemoryFileReader(source, namespace) as file:
        key = backend.meta_get_request(EMBEDDING_ID_KEY, file.namespace)
        present = backend.get_meta(key).value
        file.check_embedding_id(present)
        _check_absent(backend, file)
        written: dict[tuple[str, ...], list[str]] = {}
        try:
            _write(backend, file, written)
            if present is None and file.header.embedding_id is not None:
                backend.ensure_embedding_id(file.header.embedding_id, file.namespace)
        except BaseException as error:
            error.add_note(_undone(backend, written))
            raise
    return file.header.count


def _check_absent(backend: MemoryBackend, file: MemoryFileReader) -> None:
    """Refuses the file if an id of it exists. The first in the file's order is named."""
    for namespace, ids in file.ids.items():
        for start in range(0, len(ids), LOAD_BATCH_RECORDS):
            some = tuple(ids[start : start + LOAD_BATCH_RECORDS])
            found = backend.get(backend.get_request(some, namespace)).records
            if found:
                raise file.already_present(namespace, found[0].id)


def _write(
    backend: MemoryBackend, file: MemoryFileReader, written: dict[tuple[str, ...], list[str]]
) -> None:
    """Puts all records, batch by batch, and adds the ids of each batch to `written`."""
    records = file.records()
    while batch := tuple(islice(records, LOAD_BATCH_RECORDS)):
        try:
            backend.put(backend.put_request(batch))
        except DuplicateRecord as error:  # somebody put it since the check
            raise file.already_present(error.namespace, error.ids[0]) from error
        for record in batch:
            written.setdefault(record.namespace, []).append(record.id)


def _undone(backend: MemoryBackend, written: dict[tuple[str, ...], list[str]]) -> str:
    """Deletes what was written, as far as can be, and says how it went."""
    count = sum(map(len, written.values()))
    left = count
    try:
        for namespace, ids in written.items():
            for start in range(0, len(ids), LOAD_BATCH_RECORDS):
                some = tuple(ids[start : start + LOAD_BATCH_RECORDS])
                left -= backend.delete(backend.delete_request(some, namespace)).deleted
    except MemoryBackendError as error:
        return f"{left} of {count} records that were loaded could not be deleted again: {error}"
    return f"{count} records that were loaded before have been deleted again"
