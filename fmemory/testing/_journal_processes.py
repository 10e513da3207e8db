"""Several processes on one journal: check-then-append stays exclusive."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from fmemory.journal import Journal
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._journal_base import Journals, JournalSuiteBase, counted
from fmemory.testing._processes import Job, Start, run_together

PROCESSES = 3
COMMITS = 30


def append_counted(start: Start, open_journal: Callable[[], Journal], count: int) -> list[int]:
    """Append `count` events one by one; the seqs they got."""
    journal = open_journal()
    start()
    made = [journal.commit(counted()) for _ in range(count)]
    journal.close()
    return [one.last_seq for one in made if one is not None]


@needs(Capability.MULTI_PROCESS, Capability.PERSISTENT)
class ProcessesPart(JournalSuiteBase):
    """What holds between processes."""

    def test_check_then_append_from_processes_loses_nothing(self, journals: Journals) -> None:
        target = self.spawn_target(journals.location())
        jobs = [Job(append_counted, (target, COMMITS))] * PROCESSES
        run_together(jobs)
        journal = journals.open()
        revisions = [one.revision for one in journal.envelopes(0, journal.refresh())]
        assert revisions == list(range(1, PROCESSES * COMMITS + 1))

    def test_commits_of_processes_name_disjoint_seqs(self, journals: Journals) -> None:
        target = self.spawn_target(journals.location())
        results = run_together([Job(append_counted, (target, COMMITS))] * PROCESSES)
        made = sorted(seq for one in results for seq in cast("list[int]", one))
        assert made == list(range(1, PROCESSES * COMMITS + 1))

    def test_handle_opened_before_sees_what_processes_committed(self, journals: Journals) -> None:
        journal = journals.open()
        run_together([Job(append_counted, (self.spawn_target(journals.location()), COMMITS))])
        assert journal.refresh() == COMMITS
