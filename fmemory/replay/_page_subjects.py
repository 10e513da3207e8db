"""All sessions of a log with what belongs to each, from one pass over its envelopes.

Each is as `find_subject` gives it, which makes that pass for one session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fmemory.backend import LogBackend
from fmemory.journal import Envelope
from fmemory.replay._facts import facts
from fmemory.replay._names import NAME_RUNS, Found, Subject

__all__ = ["Subjects"]


class Subjects:
    """The sessions of a log, as of when this was made.

    Raises:
        StorageError: The log cannot be read.

    Cost: O(events), one pass without most payloads; each session is then O(its runs).

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     with memory.session("login").run("r1"):
    ...         pass
    ...     found = Subjects(memory)
    >>> "login" in found, "other" in found, found.of("login").runs
    (True, False, frozenset({'r1'}))
    """

    def __init__(self, memory: LogBackend) -> None:
        self._upto = memory.health().head_seq
        self._found = Found()
        for fact in facts(memory, upto=self._upto, wanted=lambda event: event.type in NAME_RUNS):
            self._found.add(fact)
        self._homes = Counter(run for runs in self._found.runs.values() for run in runs)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._found.runs

    def of(self, session_id: str) -> Subject:
        """All of a session; of one that is not there, nothing."""
        runs = frozenset(self._found.runs.get(session_id, ()))
        return Subject(
            name=session_id,
            session_id=session_id,
            run_id=None,
            runs=runs,
            outside=self._outside_of(session_id, runs),
            unknown=self._found.unknown,
            upto=self._upto,
        )

    def _outside_of(self, session_id: str, runs: Iterable[str]) -> list[Envelope]:
        """What these runs wrote elsewhere; before a run came to its only session, too."""
        found: list[Envelope] = []
        for run in runs:
            found += self._found.outside.get((session_id, run), [])
            if self._homes[run] == 1:
                found += self._found.outside.get((None, run), [])
        return sorted(found, key=lambda event: event.seq)
