"""The suite for whoever writes a journal: their events under our engine."""

from __future__ import annotations

from fmemory.testing._journal_chain import ChainPart, ImportPart, VerifyPart
from fmemory.testing._journal_commit import BusyPart, CommitPart, DurabilityPart, PlanPart, TimePart
from fmemory.testing._journal_compact import CompactPart, ForgetPart
from fmemory.testing._journal_lifecycle import LifecyclePart, UsagePart, WatchPart
from fmemory.testing._journal_processes import ProcessesPart
from fmemory.testing._journal_read import (
    EnvelopesPart,
    FindPart,
    FoldPart,
    PayloadsPart,
    RowsPart,
    StreamsPart,
)

__all__ = ["JournalSuite"]


class JournalSuite(
    CommitPart,
    PlanPart,
    BusyPart,
    TimePart,
    DurabilityPart,
    EnvelopesPart,
    PayloadsPart,
    RowsPart,
    FoldPart,
    FindPart,
    StreamsPart,
    ChainPart,
    ImportPart,
    VerifyPart,
    CompactPart,
    ForgetPart,
    UsagePart,
    WatchPart,
    LifecyclePart,
    ProcessesPart,
):
    """Every rule of `fmemory.journal.Journal` as a test; subclass it and say how to open one.

        class TestMyJournal(JournalSuite):
            PERSISTENT = SHARED = True

            def open_journal(self, location, clock):
                return MyJournal(location, clock=clock)

    What is not declared is skipped with a reason that names it; `print(TestMyJournal.
    capability_report())` shows what is claimed. Journals report failures as `LogError`s of
    `fmemory_segments.errors`, whatever stores their events.
    """
