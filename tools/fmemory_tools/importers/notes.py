"""Notes as JSON Lines (`id, text, timestamp, metadata`), with their vectors from a .npy file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fmemory import MemoryRecord, Note
from fmemory_tools.importers._lines import (
    Malformed,
    as_object,
    as_text,
    json_lines,
    kind_of,
    read_whole,
)
from fmemory_tools.importers.plan import BadLine, BadSource, NotesPlan, Source, counted

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject

FORMAT = "notes"

_FIELDS = frozenset({"id", "text", "timestamp", "metadata"})
_NO_VECTOR = np.zeros(0)


def plan_notes(
    path: Path,
    *,
    vectors: Path | None = None,
    namespace: Sequence[str] = (),
    embedding_id: str | None = None,
    skip_bad: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> NotesPlan:
    """What an import of this file would write.

    Args:
        vectors: A .npy file, float32 or float64, shape (lines, dim): row i belongs to line i, blank
            lines not counted.
        embedding_id: Name of what made the vectors, if there are any.
        skip_bad: Leave malformed lines, and their vectors, out instead of refusing the file.
        advance: Told the number of bytes of each line read.

    Raises:
        BadSource: A line is malformed and `skip_bad` is not set, or the vectors do not fit.
    """
    content, sha256 = read_whole(path)
    bad: list[BadLine] = []
    notes: list[tuple[int, Note]] = []
    first_line: dict[str, int] = {}
    for number, _, value in json_lines(content, bad, advance):
        try:
            note = _note(value)
            if note.id in first_line:
                raise Malformed(f"id {note.id!r} is that of line {first_line[note.id]} too")
        except Malformed as problem:
            bad.append(BadLine(number, str(problem)))
            continue
        first_line[note.id] = number
        notes.append((number, note))
    rows = _rows(content)
    matrix = None if vectors is None else _matrix(vectors, expected=len(rows))
    if matrix is not None:
        bad += [
            BadLine(number, "its vector holds NaN or infinity")
            for number, _ in notes
            if not np.isfinite(matrix[rows[number]]).all()
        ]
    bad.sort(key=lambda line: line.number)
    if bad and not skip_bad:
        raise BadSource(
            path.name, counted(len(bad), "malformed line"), lines=bad, skippable=bool(notes)
        )
    if not notes:
        raise BadSource(path.name, "no note in it", lines=bad)
    left_out = {line.number for line in bad}
    records = tuple(
        MemoryRecord(
            note=note,
            vector=_NO_VECTOR if matrix is None else np.array(matrix[rows[number]]),
            embedding_id=embedding_id,
            namespace=tuple(namespace),
        )
        for number, note in notes
        if number not in left_out
    )
    source = Source(path.name, FORMAT, None, sha256, len(content), tuple(bad))
    return NotesPlan(source, tuple(namespace), records, embedding_id)


def _note(value: JsonObject) -> Note:
    unknown = sorted(set(value) - _FIELDS)
    if unknown:
        raise Malformed(f"unknown field {unknown[0]!r}: expected id, text, timestamp, metadata")
    id_ = as_text(value.get("id"), "id")
    if not id_:
        raise Malformed("id: expected some text, got an empty string")
    timestamp = value.get("timestamp")
    if not isinstance(timestamp, int | float) or isinstance(timestamp, bool):
        raise Malformed(f"timestamp: expected seconds as a number, got {kind_of(timestamp)}")
    metadata = as_object(value.get("metadata", {}), "metadata")
    return Note(id_, as_text(value.get("text"), "text"), float(timestamp), metadata)


def _rows(content: bytes) -> dict[int, int]:
    """Line number → vector row, of every line that is not blank."""
    full = (number for number, line in enumerate(content.split(b"\n"), 1) if line.strip())
    return {number: row for row, number in enumerate(full)}


def _matrix(path: Path, *, expected: int) -> npt.NDArray[np.floating]:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise BadSource(
            path.name, f"expected one .npy array, got another file ({error})"
        ) from error
    if not isinstance(found, np.ndarray) or found.ndim != 2:
        shape = getattr(found, "shape", "an archive")
        raise BadSource(path.name, f"expected an array of shape (lines, dim), got {shape}")
    if found.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise BadSource(path.name, f"expected float32 or float64, got {found.dtype}")
    if len(found) != expected:
        raise BadSource(
            path.name, f"expected {counted(expected, 'row')}, one a line, got {len(found)}"
        )
    return found
