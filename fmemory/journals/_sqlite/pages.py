"""Pages of an SQLite file and its write-ahead log, read without SQLite.

SQLite refuses a file whose first page is damaged, finds rows only through pages that lead to them,
and makes files beside the one it reads. Here each page is read by itself: a leaf of a table tells
its own rows. Of the write-ahead log the newest whole copy of a page counts, up to the last commit.
What a row says is for the caller to check. The bytes are those of SQLite's file format, section 1
to 4 of https://www.sqlite.org/fileformat.html. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from fmemory.journals._sqlite.descriptors import give_back, read_at, take

Value = int | float | str | bytes | None

LEAF_TABLE: Final = 0x0D
WAL_PAGES: Final = 1 << 22
"""So many pages may a write-ahead log add to a file."""
_OTHER_KINDS: Final = frozenset({0x02, 0x05, 0x0A})
_PAGE_SIZES: Final = (4096, 8192, 16384, 32768, 65536, 2048, 1024, 512)
_DATABASE_HEADER: Final = Struct(">16sH2xB3x4xI")
_DATABASE_HEADER_BYTES: Final = 100
_LEAF: Final = Struct(">BHHHB")
_WAL_HEADER: Final = Struct(">8I")
_FRAME_HEADER: Final = Struct(">6I")
_POINTER: Final = Struct(">I")
_CELL: Final = Struct(">H")
_MASK: Final = 0xFFFF_FFFF
_WAL_MAGIC: Final = 0x377F_0682
_SIZES: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)


class Cell(NamedTuple):
    """A row of a leaf, where it is.

    Attributes:
        rowid: Its number.
        page: Number of the page.
        start: Where in the page its payload begins.
        size: Of its payload.
    """

    rowid: int
    page: int
    start: int
    size: int


class Pages:
    """The newest whole copy of each page.

    Args:
        path: The database file.

    Attributes:
        problems: Sentences about the file itself.
        page_count: Pages that there are.
        stored_bytes: Bytes that there are, or were.
        is_end_torn: The last commit of the write-ahead log is not whole; whether anybody was told
            of it, nothing tells.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.problems: list[str] = []
        self.is_end_torn = False
        self._wal_path = path.with_name(path.name + "-wal")
        self._file = take(path)
        self._is_open = True
        self._wal: FileIO | None = None
        try:
            self._size = path.stat().st_size
            if self._wal_path.exists():
                self._wal = self._wal_path.open("rb", buffering=0)
            self._in_wal: dict[int, int] = {}
            wal_page_bytes = self._wal_page_bytes()
            self._page_bytes, reserved, count = self._geometry(wal_page_bytes)
            self.usable_bytes = self._page_bytes - reserved
            if wal_page_bytes:
                self._read_wal()
        except BaseException:
            self.close()
            raise
        stored = -(-self._size // self._page_bytes)
        # A number of pages that is damaged itself must not have billions looked for.
        self.page_count = max([stored, *(one for one in self._in_wal if one <= stored + WAL_PAGES)])
        if (count > stored and not self._in_wal) or self._size % self._page_bytes:
            self.problems.append(
                f"the file should have {count} pages and has {self._size / self._page_bytes:.3g}:"
                " bytes are missing"
            )
        believed = min(count, WAL_PAGES + 64 * self.page_count)
        self.stored_bytes = max(self.page_count, believed) * self._page_bytes

    def close(self) -> None:
        """Close the files; twice is fine."""
        if self._is_open:
            self._is_open = False
            give_back(self._file)
        if self._wal is not None:
            self._wal.close()

    def page(self, number: int) -> bytes:
        """A page, counted from 1; shorter where the file ends, empty where it cannot be read."""
        at = self._in_wal.get(number)
        try:
            if at is not None:
                return self._wal_bytes(self._page_bytes, at)
            return read_at(self._file, self._page_bytes, (number - 1) * self._page_bytes)
        except OSError as error:
            problem = f"the system cannot read page {number}: {error}"
            if problem not in self.problems:
                self.problems.append(problem)
            return b""

    def cells(self) -> Iterator[Cell]:
        """The rows of every page that is, or may be, a leaf of a table."""
        for number in range(1, self.page_count + 1):
            yield from self._cells_of(number)

    def look_sound(self) -> bool:
        """Whether every page looks as one of a file in which tables and indexes are small."""
        for number in range(1, self.page_count + 1):
            page = self.page(number)[_DATABASE_HEADER_BYTES if number == 1 else 0 :]
            if len(page) < _LEAF.size or page[0] not in (LEAF_TABLE, *_OTHER_KINDS):
                return False
            if _LEAF.unpack_from(page)[2] and not _fits(page, self._page_bytes):
                return False
        return True

    def holds(self, text: bytes) -> bool:
        """Whether these bytes stand in some page."""
        return any(text in self.page(number) for number in range(1, self.page_count + 1))

    def payload(self, cell: Cell, size: int | None = None) -> bytes:
        """The first bytes of a row's payload; fewer where its chain of pages breaks.

        Args:
            size: How many; None = all.
        """
        wanted = cell.size if size is None else min(size, cell.size)
        page = self.page(cell.page)
        local = self._local_bytes(cell.size)
        parts = [page[cell.start : cell.start + min(local, wanted)]]
        got = len(parts[0])
        if got < min(local, wanted) or wanted <= local:
            return parts[0]
        end = cell.start + local
        following = _POINTER.unpack_from(page, end)[0] if len(page) >= end + 4 else 0
        seen: set[int] = set()
        while got < wanted and following and following not in seen:
            seen.add(following)
            page = self.page(following)
            if len(page) < 4:
                break
            part = page[4 : min(self.usable_bytes, 4 + wanted - got)]
            parts.append(part)
            got += len(part)
            following = _POINTER.unpack_from(page)[0]
        return b"".join(parts)

    # Private

    def _geometry(self, wal_page_bytes: int) -> tuple[int, int, int]:
        """Bytes of a page, reserved bytes in it, and how many pages there should be."""
        head = read_at(self._file, _DATABASE_HEADER_BYTES, 0)
        if len(head) == _DATABASE_HEADER_BYTES:
            magic, size, reserved, count = _DATABASE_HEADER.unpack_from(head)
            size = 65536 if size == 1 else size
            if magic == b"SQLite format 3\x00" and size in _PAGE_SIZES and reserved < 255:
                return size, reserved, count
        self.problems.append("the file's header is damaged")
        if wal_page_bytes in _PAGE_SIZES:
            return wal_page_bytes, 0, 0
        return max(_PAGE_SIZES, key=self._leaves_at), 0, 0

    def _leaves_at(self, page_bytes: int) -> tuple[int, int]:
        """How many bytes of leaves stand where pages of this size begin."""
        found = 0
        for at in range(0, min(self._size, 1 << 24), page_bytes):
            head = read_at(self._file, _LEAF.size, at)
            if len(head) == _LEAF.size:
                is_known = head[0] in (LEAF_TABLE, *_OTHER_KINDS)
                found += page_bytes if is_known and _fits(head, page_bytes) else 0
        return found, -_PAGE_SIZES.index(page_bytes)

    def _cells_of(self, number: int) -> Iterator[Cell]:
        page = self.page(number)
        start = _DATABASE_HEADER_BYTES if number == 1 else 0
        if len(page) < start + _LEAF.size or page[start] in _OTHER_KINDS:
            return
        # A page whose kind is none at all may be a leaf that was damaged just there.
        if page[start] != LEAF_TABLE and not _fits(page[start:], self._page_bytes):
            return
        count = _LEAF.unpack_from(page, start)[2]
        for at in range(start + 8, min(start + 8 + 2 * count, len(page) - 1), 2):
            where = _CELL.unpack_from(page, at)[0]
            if not start + 8 <= where < len(page):
                continue
            size, where = _varint(page, where)
            rowid, where = _varint(page, where)
            if 0 < size < 1 << 31 and where < len(page):
                yield Cell(rowid, number, where, size)

    def _local_bytes(self, size: int) -> int:
        """How much of a payload stands in its leaf."""
        usable = self.usable_bytes
        if size <= usable - 35:
            return size
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        return local if local <= usable - 35 else least

    # The write-ahead log

    def _wal_bytes(self, size: int, at: int) -> bytes:
        return b"" if self._wal is None else read_at(self._wal.fileno(), size, at)

    def _wal_page_bytes(self) -> int:
        """Bytes of a page as the write-ahead log says; 0 = there is none, or an empty one."""
        head = self._wal_bytes(_WAL_HEADER.size, 0)
        if len(head) < _WAL_HEADER.size:
            return 0
        size = int(_WAL_HEADER.unpack(head)[2])
        return size if size in _PAGE_SIZES else -1

    def _read_wal(self) -> None:
        """Learn where the newest committed copy of each page is."""
        head = self._wal_bytes(_WAL_HEADER.size, 0)
        fields = _WAL_HEADER.unpack(head)
        order = "big" if fields[0] & 1 else "little"
        salts, before = fields[3 + 1 : 3 + 3], fields[6:8]
        size = self._wal_path.stat().st_size
        if fields[0] & ~1 != _WAL_MAGIC or _sums(head[:24], (0, 0), order) != before:
            self.problems.append("the header of the write-ahead log is damaged")
            first = self._wal_bytes(_FRAME_HEADER.size, _WAL_HEADER.size)
            if len(first) < _FRAME_HEADER.size:
                return
            salts, order = _FRAME_HEADER.unpack(first)[2:4], "little"
        pending: dict[int, int] = {}
        bad = after_bad = torn = 0
        step = _FRAME_HEADER.size + self._page_bytes
        for at in range(_WAL_HEADER.size, size - step + 1, step):
            data = self._wal_bytes(step, at)
            page, commit_pages, *rest = _FRAME_HEADER.unpack_from(data)
            if (rest[0], rest[1]) != salts:
                bad += 1  # Of an earlier round, unless whole ones follow.
                before = (rest[2], rest[3])
                continue
            content = data[:8] + data[_FRAME_HEADER.size :]
            is_whole = _sums(content, before, order) == (rest[2], rest[3])
            before = (rest[2], rest[3])
            if not is_whole:
                bad += 1
                torn += 1
                self.is_end_torn = self.is_end_torn or bool(commit_pages)
                continue
            after_bad = max(after_bad, bad)
            self.is_end_torn = False
            pending[page] = at + _FRAME_HEADER.size
            if commit_pages:
                self._in_wal.update(pending)
                pending.clear()
        if after_bad:
            self.problems.append(
                f"{after_bad} pages of the write-ahead log are damaged: older ones were taken"
            )
        elif pending or torn:
            self.problems.append(
                "the write-ahead log ends within a commit, which was left out: it was cut short and"
                " nobody was told of it, or its end is damaged"
            )


def _fits(head: bytes, page_bytes: int) -> bool:
    """Whether the beginning of a page may be that of a leaf."""
    _, _, count, start, fragments = _LEAF.unpack_from(head)
    return bool(8 + 2 * count <= start <= page_bytes and fragments < 60 and count)


def values_of(payload: bytes, columns: int) -> list[Value] | None:
    """The first columns of a row; bytes are cut where the payload is; None if it is no row.

    Args:
        payload: From its beginning; its end may be missing.
    """
    header_bytes, at = _varint(payload, 0)
    if not at < header_bytes <= len(payload):
        return None
    kinds: list[int] = []
    while at < header_bytes and len(kinds) < columns:
        kind, at = _varint(payload, at)
        if kind < 0 or kind in (10, 11):
            return None  # SQLite writes no such value.
        kinds.append(kind)
    if len(kinds) < columns:
        return None
    found: list[Value] = []
    at = header_bytes
    for kind in kinds:
        size = _SIZES[kind] if kind < 10 else (kind - 12) // 2
        part = payload[at : at + size]
        at += size
        if kind < 12 and len(part) < size:
            return None
        found.append(_value(kind, part))
    return found


def end_of_column(payload: bytes, column: int) -> int:
    """Offset in a row's payload behind a column; 0 if it is no row."""
    header_bytes, at = _varint(payload, 0)
    end, number = header_bytes, 0
    while at < min(header_bytes, len(payload)) and number <= column:
        kind, at = _varint(payload, at)
        if kind < 0 or kind in (10, 11):
            return 0
        end += _SIZES[kind] if kind < 10 else (kind - 12) // 2
        number += 1
    return end if number > column else 0


def _value(kind: int, part: bytes) -> Value:
    if kind == 0:
        return None
    if kind == 7:
        return float(Struct(">d").unpack(part)[0])
    if kind < 10:
        return kind - 8 if kind >= 8 else int.from_bytes(part, "big", signed=True)
    if kind % 2 == 0:
        return part
    return part.decode(errors="replace")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to nine bytes, and where it ends; 0 where the data do."""
    value = 0
    for number in range(9):
        if at + number >= len(data):
            return 0, len(data)
        byte = data[at + number]
        if number == 8:
            value = value << 8 | byte
            break
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, at + number + 1
    return value - (1 << 64) if value >= 1 << 63 else value, at + 9


def _sums(data: bytes, sums: Sequence[int], order: str) -> tuple[int, int]:
    """The checksums of SQLite's write-ahead log, gone on with."""
    first, second = sums
    words = Struct(f"{'>' if order == 'big' else '<'}{len(data) // 4}I").unpack(data)
    for number in range(0, len(words), 2):
        first = first + words[number] + second & _MASK
        second = second + words[number + 1] + first & _MASK
    return first, second
