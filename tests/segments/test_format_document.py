"""docs/format.md says what the code does: its tables add up to the structs, its example is real."""

from __future__ import annotations

import re
from pathlib import Path
from struct import Struct, calcsize

import msgspec
import pytest

from fmemory_segments import (
    EVENT_BYTES_MAX,
    FRAME_BYTES_MAX,
    NONCE_BYTES,
    ROWS_MAX,
    Blob,
    Draft,
    Envelope,
    _columns,
    _compacted_index,
    _event_meta,
    _frame,
    _header,
    _manifest,
    _seal,
    _tip,
    digest,
)
from fmemory_segments._batch import finish, prepare
from fmemory_segments._block import BlockMeta
from fmemory_segments._compacted import BLOCK_BYTES_TARGET, LEDGER_BYTES_TARGET
from fmemory_segments._header import SegmentHeader, pack_header
from fmemory_segments._packer import FRAME_BYTES_TARGET

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "format.md"
MIB = 1 << 20

if not DOCUMENT.exists():
    pytest.skip("docs/format.md is not part of the installed package", allow_module_level=True)

TEXT = DOCUMENT.read_text(encoding="utf-8")

STRUCTS: dict[str, str] = {
    "segment header": _header._HEADER.format,
    "frame header": _frame._HEADER.format,
    "event column": _columns.EVENT_COLUMN.format,
    "slot column": _columns.SLOT_COLUMN.format,
    "placed slot column": _compacted_index.PLACED_SLOT_COLUMN.format,
    "stream column": _seal.STREAM_COLUMN.format,
    "trailer": _seal.TRAILER.format,
    "tip slot": _tip.FIELDS.format + _tip.CHECK.format[1:],
    "manifest head": _manifest.MANIFEST_HEAD.format,
    "canonical envelope, fixed part": digest._FIXED.format,
}
SIZES = {
    "segment header": _header.SEGMENT_HEADER_BYTES,
    "frame header": _frame.FRAME_HEADER_BYTES,
    "event column": 20,
    "slot column": 16,
    "placed slot column": 24,
    "stream column": 40,
    "trailer": _seal.TRAILER_BYTES,
    "tip slot": _tip.SLOT_BYTES,
    "manifest head": 16,
    "canonical envelope, fixed part": 41,
}
FIELDS: dict[str, type[msgspec.Struct]] = {
    "event meta": _event_meta.EventMeta,
    "blob place, tag 1": _event_meta.BlobPlace,
    "rows place, tag 2": _event_meta.RowsPlace,
    "erased place, tag 3": _event_meta.ErasedPlace,
    "block rows place, tag 4": _event_meta.BlockRows,
    "seal meta": _seal.SealMeta,
    "envelope": Envelope,
    "block meta": BlockMeta,
    "listed segment": _manifest.ListedSegment,
}


def table(mark: str) -> list[list[str]]:
    """The cells of the table under this mark, without its head."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n\|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT)
    assert found, f"docs/format.md has no table {mark!r}"
    return [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in found[1].splitlines()
    ]


def field_sizes(layout: str) -> list[int]:
    """The size of each field of a struct; a repeated number is as many fields."""
    sizes: list[int] = []
    for count, code in re.findall(r"(\d*)([a-zA-Z])", layout):
        if code in "sx":
            sizes.append(int(count or 1))
        else:
            sizes += [calcsize(f"<{code}")] * int(count or 1)
    return sizes


def test_every_table_of_the_document_is_checked_here() -> None:
    assert set(re.findall(r"<!-- table: (.*) -->", TEXT)) == set(STRUCTS)
    assert set(re.findall(r"<!-- fields: (.*) -->", TEXT)) == set(FIELDS)


@pytest.mark.parametrize("name", STRUCTS)
def test_a_table_adds_up(name: str) -> None:
    end = 0
    for offset, size, *_ in table(f"table: {name}"):
        assert int(offset) == end
        end += int(size)
    assert end == SIZES[name]


@pytest.mark.parametrize("name", STRUCTS)
def test_a_table_has_the_fields_of_the_struct(name: str) -> None:
    sizes = [int(size) for _, size, *_ in table(f"table: {name}")]
    assert sizes == field_sizes(STRUCTS[name])
    assert STRUCTS[name][0] == "<"
    assert sum(sizes) == Struct(STRUCTS[name]).size


def test_the_frame_header_has_the_names_of_the_document() -> None:
    names = [row[2] for row in table("table: frame header")]
    assert tuple(names) == _frame.FrameHeader._fields


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("event column", _columns.EVENT_FIELDS),
        ("slot column", _columns.SLOT_FIELDS),
        ("placed slot column", _compacted_index.PLACED_SLOT_FIELDS),
    ],
)
def test_columns_have_the_names_of_the_document(name: str, names: tuple[str, ...]) -> None:
    assert tuple(row[2] for row in table(f"table: {name}")) == names


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_those_of_the_struct_in_order(name: str) -> None:
    rows = table(f"fields: {name}")
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    names = [row[1] for row in rows]
    tag = FIELDS[name].__struct_config__.tag
    if tag is not None:
        assert names.pop(0) == "tag"
        assert name.endswith(f"tag {tag}")
    assert tuple(names) == FIELDS[name].__struct_fields__


def test_the_map_of_a_manifest_is_that_of_the_document() -> None:
    names = [row[0] for row in table("map: manifest")]
    assert tuple(names) == _manifest.Manifest.__struct_fields__


def test_the_sections_of_a_seal_are_those_of_the_document() -> None:
    found = re.search(r"\| section \| content \|\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT)
    assert found
    content = _seal.SealMeta(1, 0, 0, 0, 0, 0, (), (), 0, 0, 0, b"")
    assert len(found[1].splitlines()) == len(content.sections())


@pytest.mark.parametrize(
    "magic",
    [
        _frame.FRAME_MAGIC,
        _header.SEGMENT_MAGIC,
        _seal.TRAILER_MAGIC,
        _manifest.MANIFEST_MAGIC,
    ],
)
def test_magic_numbers_are_those_of_the_document(magic: bytes) -> None:
    assert f"`{magic.hex(' ').upper()}`" in TEXT


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (FRAME_BYTES_MAX, f"at most {FRAME_BYTES_MAX // MIB} MiB"),
        (FRAME_BYTES_TARGET, f"beyond {FRAME_BYTES_TARGET // MIB} MiB"),
        (LEDGER_BYTES_TARGET, f"take it beyond {LEDGER_BYTES_TARGET // 1024} KiB"),
        (BLOCK_BYTES_TARGET, f"take it beyond {BLOCK_BYTES_TARGET // MIB} MiB"),
        (EVENT_BYTES_MAX, f"more than {EVENT_BYTES_MAX // MIB} MiB"),
        (ROWS_MAX, f"n ≤ {ROWS_MAX:,}"),
        (NONCE_BYTES, f"({NONCE_BYTES} random bytes)"),
    ],
)
def test_limits_are_those_of_the_document(value: int, text: str) -> None:
    assert value > 0
    assert " ".join(text.split()) in " ".join(TEXT.split())


@pytest.mark.parametrize("kind", _frame.FrameKind)
def test_frame_kinds_are_those_of_the_document(kind: _frame.FrameKind) -> None:
    [row] = [row for row in table("table: frame header") if row[2] == "kind"]
    assert f"{int(kind)} {kind.name}" in row[3]


def test_the_example_is_what_the_code_writes() -> None:
    header = SegmentHeader(
        bytes(range(16)), 1, 1, 0, 1_700_000_000_000_000_000, bytes(32), salt=0x0102_0304
    )
    draft = Draft(("session", "s1"), 1, "note.taken", Blob(b"\xa5it works", b"N" * 16), actor="me")
    finished = finish(
        prepare([draft]),
        first_seq=1,
        recorded_at_ns=1_700_000_000_000_000_000,
        synced_to=0,
        prev_frame_bytes=0,
        salt=header.salt,
        offset=_header.SEGMENT_HEADER_BYTES,
    )
    written = pack_header(header) + b"".join(finished.buffers)
    lines = re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)$", TEXT, re.MULTILINE)
    assert [int(at, 16) for at, _ in lines] == list(range(0, len(written), 16))
    assert bytes.fromhex("".join(line for _, line in lines)) == written
