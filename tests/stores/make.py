"""How the frozen stores were made: `python -m tests.stores.make FOLDER`, once for each format.

They hold what a format can hold: records of two shapes, a deleted one that was erased, a forgotten
one, a session, an event of a caller's own, metadata, a batch, and what came after the compaction.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fmemory
from fmemory import JournalBackend, Message, NewEvent, ProgressEntry, Role, SessionManifest

TARGETS = {
    "segments-1.0": "{}",
    "segments-1.0-deflated": "{}",
    "jsonl-1": "jsonl:{}",
    "sqlite-1": "sqlite:///{}/memory.db",
}


def live(memory: JournalBackend) -> None:
    """Everything that is in a frozen store."""
    with fmemory.audit(actor="ada", run_id="run-1", reason="to be kept"):
        memory.add_note("forgotten", [9.0], id="forgotten", timestamp=1.0)
        memory.delete(memory.delete_request(["forgotten"]))
        with memory.batch() as batch:
            batch.add_note("tea at four", [0.5, -1.0], id="tea", timestamp=2.5, namespace=("n",))
            batch.add_note("erased", [1.0, 2.0], id="gone", timestamp=3.5, namespace=("n",))
            batch.append(("tools",), [NewEvent("tool.finished", {"exit": 0}, "call-1")])
        memory.session("s1").initialize_session_if_missing(
            SessionManifest("s1", "main", "read old stores"), ()
        )
        memory.session("s1").append_transcript_messages([Message(Role.USER, "h\u00e9llo")])
        memory.delete(memory.delete_request(["gone"], ("n",)))
        memory.set_meta(memory.meta_set_request("embedding_id", "m1", ("n",)))
    memory.compact(forget_before=3, exclusive=True)
    with fmemory.audit(actor="bob"):
        memory.session("s1").append_progress_entry(ProgressEntry("run-2", "after"))
        memory.add_note("written after", id="after", timestamp=4.5, metadata={"a": [1, None]})


def make(folder: Path) -> None:
    """Make all stores below a folder, and print the head of each."""
    for name, target in TARGETS.items():
        place = folder / name
        place.mkdir(parents=True)
        with fmemory.open(target.format(place)) as memory:
            live(memory)
            print(name, memory.head())
        for path in place.rglob("*.log"):
            data = path.read_bytes().rstrip(b"\0")  # Zeros ahead say nothing, but for padding.
            path.write_bytes(data + bytes(-len(data) % 8))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
