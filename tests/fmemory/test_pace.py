"""However large events are, some megabytes of them are in memory at once.

Goal: a store of large messages can be read on a small machine. Method: what is asked of the journal
is added up by call. What would have to break: a number of events a read that does not look at
their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import fmemory
from fmemory import LogBackend, Message
from fmemory._engine.pace import BYTES_PER_READ
from fmemory._engine.work import payload_bytes
from fmemory.journal import Payload
from fmemory.journals._segments import SegmentJournal
from fmemory.replay import report, runs

MEGABYTE = 1 << 20
FIRST_READ = 16


def all_events(memory: LogBackend) -> object:
    return sum(1 for _ in memory.events())


def all_backwards(memory: LogBackend) -> object:
    return sum(1 for _ in memory.events(backwards=True))


def its_runs(memory: LogBackend) -> object:
    return runs(memory)[0].event_count


def its_report(memory: LogBackend) -> object:
    return report(memory, "s").event_count


@pytest.mark.parametrize("read", [all_events, all_backwards, its_runs, its_report])
def test_large_events_are_read_some_megabytes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[LogBackend], object]
) -> None:
    with fmemory.open(tmp_path, durability="os") as memory, memory.session("s").run("r1"):
        for number in range(70):
            memory.append_transcript_messages("s", [Message("user", f"{number:7} " * (1 << 17))])
    sizes: list[int] = []
    given = SegmentJournal.payloads

    def counted(journal: SegmentJournal, seqs: Sequence[int]) -> list[Payload]:
        found = given(journal, seqs)
        sizes.append(sum(map(payload_bytes, found)))
        return found

    monkeypatch.setattr(SegmentJournal, "payloads", counted)
    with fmemory.open(tmp_path, read_only=True) as memory:
        seen = read(memory)

    assert seen == 72
    assert sum(sizes) > 70 * MEGABYTE
    assert max(sizes) < (FIRST_READ + 1) * MEGABYTE
    assert sorted(sizes)[-2] < BYTES_PER_READ + MEGABYTE
