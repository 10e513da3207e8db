"""Reading a memory file: checked wholly first, then given record by record."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Annotated, Self, TypeAlias, cast

import msgspec
import numpy as np

from fmemory._file_lines import LineSource, Source
from fmemory._model import Model, Rule, check_int, check_keys, from_json_text
from fmemory._names import check_name, check_namespace
from fmemory._vectors import FLOAT64
from fmemory.errors import ContractError, MemoryFileError, Reason, brief
from fmemory.note_models import MemoryRecord, Note, check_record

__all__ = ["FORMAT_NAME", "FORMAT_VERSION", "MemoryFileHeader", "MemoryFileReader"]

FORMAT_NAME = "coniti-memory"
FORMAT_VERSION = "1.0.0"

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.\d{1,9}")
_HEADER_FIELDS = ("format", "version", "embedding_id", "namespace", "created_at", "count")
_RECORD_FIELDS = ("note", "vector", "embedding_id", "namespace")
_NOTE_FIELDS = ("id", "text", "timestamp", "metadata")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
_LONG_VECTOR_BYTES = 256
_SHORT_BYTES = 64

Namespace: TypeAlias = tuple[str, ...]


def _check_count(value: object) -> int:
    count = check_int(value)
    if count < 0:
        raise ContractError(f"expected 0 or more, got {count}", reason=Reason.OUT_OF_RANGE)
    return count


def _check_created_at(value: object) -> None:
    if type(value) is str and _TIME.fullmatch(value) is None:
        raise ContractError(
            f"expected a time in UTC such as 2026-01-31T12:00:00Z, got {brief(value)}",
            where="created_at",
            reason=Reason.BAD_VALUE,
        )


class MemoryFileHeader(Model, frozen=True):
    """The first line of a memory file, but for format and version.

    Attributes:
        embedding_id: Which model made the vectors; None = unknown.
        namespace: Where the records come from.
        created_at: When the file was written; UTC.
        count: Number of records that follow.
    """

    embedding_id: Annotated[str, Rule(check_name)] | None
    namespace: Annotated[tuple[str, ...], Rule(check_namespace)]
    created_at: datetime
    count: Annotated[int, Rule(_check_count, {"minimum": 0})]


class _VectorOf(msgspec.Struct):
    vector: msgspec.Raw


_find_vector = msgspec.json.Decoder(_VectorOf).decode
_decode_vector = msgspec.json.Decoder(list[float]).decode


class MemoryFileReader:
    """A memory file that was checked; a context manager.

    Entering checks format and version, then the header's fields, then every record, then repeated
    ids, then the count, and stores nothing. Afterwards the records can be read.

    Args:
        source: A path (gzip if it ends in `.gz`), or a text stream.
        namespace: Where all records are to go; None = each into its own.

    Raises:
        ContractError: Neither a path nor a text stream, or not a namespace.
        MemoryFileError: On entering: the file breaks a rule, at `line`.

    Cost: ids in memory, about 200 bytes each; one record at a time. The file is read twice.

    Attributes:
        header: The first line.
    """

    header: MemoryFileHeader

    def __init__(self, source: Source, namespace: object = None) -> None:
        self._home = None if namespace is None else check_namespace(namespace, "namespace")
        self._source = LineSource(source)
        self._line_of: dict[Namespace, dict[str, int]] = {}
        self._checksum = 0
        self._record_bytes = 0

    def __enter__(self) -> Self:
        self._source.__enter__()
        try:
            self._check()
        except BaseException:
            self._source.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._source.__exit__(kind, error, trace)

    @property
    def namespace(self) -> Namespace:
        """Where the header's embedding id belongs: the new home, else the header's namespace."""
        return self.header.namespace if self._home is None else self._home

    @property
    def ids(self) -> dict[Namespace, list[str]]:
        """Ids of all records by the namespace they go to, in the order of the file."""
        return {namespace: list(lines) for namespace, lines in self._line_of.items()}

    def records(self) -> Iterator[MemoryRecord]:
        """The records, in the order of the file, in the namespaces they go to.

        Raises:
            MemoryFileError: The file cannot be read any more, or is not the one that was checked;
                what was given until then must not be kept.
        """
        checksum = 0
        for number, line in enumerate(self._source.lines(), 1):
            checksum = zlib.crc32(line, checksum)
            if number > 1:
                self._record_bytes = len(line)
                yield self._record(line)
        if checksum != self._checksum or self._source.line != self.header.count + 1:
            raise self._source.error(
                "expected the file that was checked a moment before, got another content",
                Reason.FILE_CHANGED,
                line=0,
            )

    def groups(self, records_max: int, bytes_max: int) -> Iterator[list[MemoryRecord]]:
        """The same, some at a time: as many as their number and the bytes of their lines allow.

        Raises:
            MemoryFileError: As `records`.
        """
        group: list[MemoryRecord] = []
        size = 0
        for record in self.records():
            group.append(record)
            size += self._record_bytes
            if len(group) == records_max or size >= bytes_max:
                yield group
                group, size = [], 0
        if group:
            yield group

    def check_embedding_id(self, present: object) -> None:
        """Compares the header's embedding id with that of the target, where both have one.

        Raises:
            MemoryFileError: They differ.
        """
        expected = self.header.embedding_id
        if expected is not None and present is not None and present != expected:
            raise self._source.error(
                f"expected vectors of {brief(present)}, which namespace {self.namespace!r} has, got"
                f" {brief(expected)}; load it into another namespace",
                Reason.FILE_EMBEDDING,
                line=1,
            )

    def already_present(self, namespace: Namespace, id_: str) -> MemoryFileError:
        """The error for an id of the file that the target has already."""
        return self._source.error(
            f"expected new record ids, got {brief(id_)}, which namespace {namespace!r} has; delete"
            " it there, or load into another namespace",
            Reason.FILE_PRESENT,
            line=self._line_of.get(namespace, {}).get(id_),
        )

    def _check(self) -> None:
        lines = self._source.lines()
        first = next(lines, None)
        if first is None:
            raise self._source.error(
                "expected a header, got an empty file", Reason.FILE_FORMAT, line=1
            )
        self.header = self._header(first)
        self._checksum = zlib.crc32(first)
        repeated: tuple[int, str, int] | None = None
        count = 0
        for line in lines:
            count += 1
            self._checksum = zlib.crc32(line, self._checksum)
            record = self._record(line)
            line_of = self._line_of.setdefault(record.namespace, {})
            earlier = line_of.setdefault(record.note.id, self._source.line)
            if earlier != self._source.line and repeated is None:
                repeated = (self._source.line, record.note.id, earlier)
        if repeated is not None:
            number, id_, earlier = repeated
            raise self._source.error(
                f"expected every id once in a namespace, got {brief(id_)} again, which line"
                f" {earlier} has",
                Reason.FILE_DUPLICATE,
                line=number,
            )
        if count != self.header.count:
            raise self._source.error(
                f"expected {self.header.count} records, as the header says, got {count}",
                Reason.FILE_COUNT,
                line=1,
            )

    def _header(self, line: bytes) -> MemoryFileHeader:
        try:
            data = from_json_text(_text(line))
        except ContractError as error:
            raise self._source.error(f"header: {error}", Reason.FILE_FORMAT) from error
        if not isinstance(data, dict) or data.get("format") != FORMAT_NAME:
            raise self._source.error(
                f'header: expected {{"format": "{FORMAT_NAME}", ...}}, got {brief(_text(line))}',
                Reason.FILE_FORMAT,
            )
        version = data.get("version")
        match = _VERSION.fullmatch(version) if isinstance(version, str) else None
        if match is None or match[1] != FORMAT_VERSION.partition(".")[0]:
            raise self._source.error(
                f"header: expected version {FORMAT_VERSION} or a later 1.x, got {brief(version)};"
                " a newer fmemory may read it",
                Reason.FILE_FORMAT,
            )
        newer = match[2] != FORMAT_VERSION.split(".")[1]
        if newer:  # a later minor version may add fields to the header
            data = {key: value for key, value in data.items() if key in _HEADER_FIELDS}
        try:
            fields = check_keys(data, _HEADER_FIELDS)
            plain = {key: fields[key] for key in _HEADER_FIELDS[2:]}
            _check_created_at(plain["created_at"])
            return MemoryFileHeader.from_dict(plain)
        except ContractError as error:
            raise self._source.error(f"header: {error}", Reason.FILE_HEADER) from error

    def _record(self, line: bytes) -> MemoryRecord:
        try:
            if not line.strip():
                raise ContractError("expected a record, got a blank line", reason=Reason.EMPTY)
            fields = check_keys(_parsed(line), _RECORD_FIELDS)
            try:
                note = check_keys(fields["note"], _NOTE_FIELDS)
            except ContractError as error:
                raise error.within("note") from None
            return check_record(
                MemoryRecord(
                    Note(*(note[name] for name in _NOTE_FIELDS)),  # type: ignore[arg-type]
                    fields["vector"],  # type: ignore[arg-type]
                    cast("str | None", fields["embedding_id"]),
                    cast("Namespace", fields["namespace"]) if self._home is None else self._home,
                )
            )
        except ContractError as error:
            raise self._source.error(f"record: {error}", Reason.FILE_RECORD) from error


def _parsed(line: bytes) -> object:
    """The data of a line, strictly.

    The numbers of a long vector are decoded apart, ten times faster; all else goes through the
    strict parser, which then finds 0 in the vector's place. If it does not, the same bytes stood
    elsewhere in the line first, and the line is parsed whole.
    """
    try:
        raw = bytes(_find_vector(line).vector)
    except (msgspec.MsgspecError, RecursionError):
        return from_json_text(_text(line))
    start = line.find(raw[:_SHORT_BYTES])  # a short needle: a long one costs more than it saves
    if len(raw) < _LONG_VECTOR_BYTES or not line.startswith(raw, start):
        return from_json_text(_text(line))
    data = from_json_text(_text(line[:start] + b"0" + line[start + len(raw) :]))
    if not isinstance(data, dict) or data.get("vector") != 0 or "vector" not in data:
        return from_json_text(_text(line))
    try:
        data["vector"] = np.array(_decode_vector(raw), FLOAT64)
    except msgspec.MsgspecError:
        return from_json_text(_text(line))
    return data


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ContractError(
            f"expected UTF-8, got byte 0x{line[error.start]:02x} at byte {error.start}",
            reason=Reason.NOT_JSON,
        ) from None
