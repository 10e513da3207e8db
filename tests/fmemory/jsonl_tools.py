"""Small JSON Lines stores, what they hold, and what opening a changed one gives."""

from __future__ import annotations

from pathlib import Path

from fmemory.errors import MemoryBackendError
from fmemory.journal import Draft, Finding, Rows
from fmemory.journals import JsonlJournal
from fmemory.journals._jsonl.log import JsonlLog
from fmemory.journals._jsonl.verify import verify_folder
from fmemory.journals._segments import raise_translated
from fmemory.testing._journal_base import blob, commit, put
from fmemory_segments import FileSystem, LogError, PosixFileSystem

TIP = "events.tip"


def open_store(
    path: Path,
    *,
    fs: FileSystem | None = None,
    read_only: bool = False,
    file_bytes_max: int = 1 << 23,
) -> JsonlJournal:
    """A journal of the store at a path."""
    try:
        log = JsonlLog.open(path, fs=fs, read_only=read_only, file_bytes_max=file_bytes_max)
    except LogError as error:
        raise_translated(error)
    return JsonlJournal(log)


def batches() -> list[list[Draft]]:
    """Eight events in five batches, of one to three lines."""
    return [
        [put("a", "b", timestamps=[2.0, -0.5], embedding_ids=["m", None])],
        [blob(b"\x81\xa1x\x01"), blob(b"\x00\xff", revision=2)],
        [put("c", revision=2)],
        [blob(b"\xa2\xc2\x85", revision=3), put("d", revision=3), blob(b"", revision=4)],
        [put("e", revision=4)],
    ]


def small_store(path: Path, *, file_bytes_max: int = 1 << 23) -> list[object]:
    """A new store with the batches; its contents."""
    journal = open_store(path, file_bytes_max=file_bytes_max)
    for drafts in batches():
        commit(journal, *drafts)
    found = contents(journal)
    journal.close()
    return found


def contents(journal: JsonlJournal) -> list[object]:
    """Every event of a journal with its chain value, comparable."""
    head = journal.refresh()
    return [event(journal, seq) for seq in range(1, head + 1)]


def event(journal: JsonlJournal, seq: int) -> object:
    """One event, comparable."""
    payload = journal.payloads([seq])[0]
    plain: object = payload
    if isinstance(payload, Rows):
        plain = (
            payload.timestamps.tobytes(),
            payload.notes,
            payload.note_offsets.tolist(),
            payload.vectors.tobytes(),
            payload.embedding_ids,
            payload.nonces,
        )
    return next(journal.envelopes(seq - 1, seq)), plain, journal.head(seq)


def files_of(path: Path) -> list[Path]:
    """The files of events, in order."""
    return sorted(path.glob("events-*.jsonl"))


def lines_of(path: Path) -> list[bytes]:
    """The lines of a store with one file, the header first, newlines kept."""
    (file,) = files_of(path)
    return file.read_bytes().splitlines(keepends=True)


def write_lines(path: Path, lines: list[bytes]) -> None:
    """Replace the content of a store with one file."""
    files_of(path)[0].write_bytes(b"".join(lines))


def forget(path: Path) -> None:
    """Remove the witness, as a clone of a repository does."""
    (path / TIP).unlink()


def opened(path: Path, *, read_only: bool = False) -> list[object] | MemoryBackendError:
    """What the store holds, or the typed error that opening or reading it gives."""
    try:
        journal = open_store(path, read_only=read_only)
    except MemoryBackendError as error:
        return error
    try:
        return contents(journal)
    except MemoryBackendError as error:
        return error
    finally:
        journal.close()


def snapshot(path: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {
        str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()
    }


def damage(path: Path) -> list[Finding]:
    """What `verify` calls damage."""
    return [one for one in verify_folder(PosixFileSystem(), path) if one.damage]
