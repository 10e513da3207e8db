"""Which run or session a name means, and what else in the log belongs to it.

A pass over the envelopes of the whole log, with the few payloads that name a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fmemory._engine.stored import StoredCheckpoint, StoredProgress, StoredSession
from fmemory._engine.types import SESSION, EventType
from fmemory.backend import LogBackend
from fmemory.errors import ContractError, NotFound, Reason, brief
from fmemory.journal import Envelope
from fmemory.replay._facts import Fact, State, facts

__all__ = ["Subject", "Subjects", "find_subject", "runs_named"]

_NAME_RUNS = frozenset(
    {
        EventType.CHECKPOINT_RECORDED,
        EventType.PROGRESS_APPENDED,
        EventType.SESSION_INITIALIZED,
    }
)
_NAMED_MAX = 8


@dataclass(slots=True)
class Subject:
    """What a report is about.

    Attributes:
        name: As it was given.
        session_id: The session; None for a run that wrote to none.
        run_id: The run; None where all of the session is meant.
        runs: The runs meant.
        outside: What they wrote outside of the session, by seq.
        unknown: Events of which not even the envelope can be read: they may belong to it.
        upto: The newest event when this was found; nothing behind it is looked at.
    """

    name: str
    session_id: str | None
    run_id: str | None
    runs: frozenset[str]
    outside: list[Envelope]
    unknown: list[Fact]
    upto: int


@dataclass(slots=True)
class _Found:
    """Sessions with their runs, and what runs wrote outside of sessions.

    Attributes:
        runs: Session → its runs.
        homes: Run → how many sessions have it.
        owner: Run → the session that it wrote to last.
        outside: Session then, if there was one, and run → what it wrote outside of sessions.
        unknown: Events of which not even the envelope can be read.
    """

    runs: dict[str, dict[str, None]] = field(default_factory=dict)
    homes: Counter[str] = field(default_factory=Counter)
    owner: dict[str, str] = field(default_factory=dict)
    outside: dict[tuple[str | None, str], list[Envelope]] = field(default_factory=dict)
    unknown: list[Fact] = field(default_factory=list)

    def add(self, fact: Fact) -> None:
        event = fact.event
        if fact.state is State.DAMAGED and not event.type:
            self.unknown.append(fact)
        elif event.stream[0] == SESSION and len(event.stream) > 1:
            runs = self.runs.setdefault(event.stream[1], {})
            for run in runs_named(fact):
                if run not in runs:
                    runs[run] = None
                    self.homes[run] += 1
                self.owner[run] = event.stream[1]
        elif event.run_id is not None:
            key = (self.owner.get(event.run_id), event.run_id)
            self.outside.setdefault(key, []).append(event)

    def sessions_of(self, run_id: str) -> list[str]:
        return [session for session, runs in self.runs.items() if run_id in runs]

    def names_outside(self) -> list[str]:
        """Runs that wrote before they came to a session, and came to none or to several."""
        return [run for session, run in self.outside if session is None and self.homes[run] != 1]

    def outside_of(self, session_id: str | None, runs: Iterable[str]) -> list[Envelope]:
        """What these runs wrote elsewhere; before a run came to its only session, too."""
        found: list[Envelope] = []
        for run in runs:
            found += self.outside.get((session_id, run), [])
            if session_id is not None and self.homes[run] == 1:
                found += self.outside.get((None, run), [])
        return sorted(found, key=lambda event: event.seq)


def find_subject(memory: LogBackend, name: str | None, session_id: str | None) -> Subject:
    """The run or session that is meant.

    Args:
        name: A run or a session; None = all of the session.
        session_id: The session that the run is to be of; empty = of none.

    Raises:
        NotFound: There is none.
        ContractError: There are several; the message names them.

    Cost: O(events), one pass without most payloads.
    """
    return Subjects(memory).find(name, session_id)


class Subjects:
    """The sessions of a log with what belongs to each, as of when this was made.

    Raises:
        StorageError: The log cannot be read.

    Cost: O(events), one pass without most payloads; each subject is then O(its runs).

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
        self._found = _Found()
        for fact in facts(memory, upto=self._upto, wanted=lambda event: event.type in _NAME_RUNS):
            self._found.add(fact)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._found.runs

    def find(self, name: str | None, session_id: str | None) -> Subject:
        """As `find_subject`."""
        session, run = _choose(self._found, name, session_id)
        return self._subject(name if name is not None else session or "", session, run)

    def of(self, session_id: str) -> Subject:
        """All of a session; of one that is not there, nothing."""
        return self._subject(session_id, session_id, None)

    def _subject(self, name: str, session_id: str | None, run_id: str | None) -> Subject:
        runs = list(self._found.runs.get(session_id or "", ())) if run_id is None else [run_id]
        return Subject(
            name=name,
            session_id=session_id,
            run_id=run_id,
            runs=frozenset(runs),
            outside=self._found.outside_of(session_id, runs),
            unknown=self._found.unknown,
            upto=self._upto,
        )


def runs_named(fact: Fact) -> Iterator[str]:
    """The runs an event belongs to: that of its envelope, and those it tells of."""
    event = fact.event
    if event.run_id is not None:
        yield event.run_id
    match fact.detail:
        case StoredCheckpoint(run_id=run) | StoredProgress(run_id=run):
            yield run
        case StoredSession() as session if event.type == EventType.SESSION_INITIALIZED:
            # What a fork copied are runs of the session it came from.
            yield from (one.run_id for one in session.checkpoints)
            yield from (one.run_id for one in session.progress)
        case _:
            pass


def _choose(
    found: _Found, name: str | None, session_id: str | None
) -> tuple[str | None, str | None]:
    """Session and run; no run where all of the session is meant."""
    if session_id == "" and name is not None:
        if (None, name) in found.outside and found.homes[name] != 1:
            return None, name
        raise _missing("run outside of sessions", name, found.names_outside())
    if session_id is not None:
        if session_id not in found.runs:
            raise _missing("session", session_id, found.runs)
        runs = found.runs[session_id]
        if name is None or (name == session_id and name not in runs):
            return session_id, None
        if name not in runs:
            raise _missing(f"run of session {session_id}", name, runs)
        return session_id, name
    if name is None:
        if len(found.runs) == 1:
            return next(iter(found.runs)), None
        raise _missing("session, and which", "none", found.runs)
    of = found.sessions_of(name)
    if name in found.runs:
        # The only run of a session that is called as the session is all there is of it.
        is_whole = of == [name] and len(found.runs[name]) == 1
        if is_whole or not of:
            return name, None
        raise _ambiguous(name, [f"session {name}", *(f"a run of session {one}" for one in of)])
    if len(of) > 1:
        outside = ["what it wrote before it came to any"] if (None, name) in found.outside else []
        raise _ambiguous(name, [*(f"a run of session {one}" for one in of), *outside])
    if of:
        return of[0], name
    if (None, name) in found.outside:
        return None, name
    known = dict.fromkeys(found.runs)
    known.update({run: None for runs in found.runs.values() for run in runs})
    raise _missing("run or session", name, known)


def _missing(kind: str, name: str, known: Iterable[str]) -> NotFound:
    names = list(known)
    some = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    there = f"there are: {some}{f' and {more} more' if more > 0 else ''}" if names else "none is"
    return NotFound(
        f"{kind}: expected one of this store, got {brief(name)}; {there}",
        reason=Reason.SESSION_NOT_FOUND,
        key=name,
    )


def _ambiguous(name: str, meanings: list[str]) -> ContractError:
    return ContractError(
        f"expected the name of one run or session, got {brief(name)}, which could be"
        f" {' or '.join(meanings)}; give session_id as well: alone for all of a session,"
        " empty for a run of none",
        where="name",
        reason=Reason.BAD_VALUE,
    )
