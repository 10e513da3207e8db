"""Capabilities: what a backend or journal declares of itself; what it does not is skipped.

Nothing is inferred from the presence of a method, because then a forgotten method would be skipped
in silence. A test names what it needs with `@needs`; where that is not declared it is skipped, and
the reason names the capability.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

__all__ = ["Capability", "CapabilityReport", "CapabilityRow", "missing", "needs", "report_of"]

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_NEEDS = "_fmemory_needs"


class Capability(StrEnum):
    """The names of the class attributes that a suite's subclass may set to True."""

    PERSISTENT = "PERSISTENT"
    SHARED = "SHARED"
    MULTI_PROCESS = "MULTI_PROCESS"
    READ_ONLY = "READ_ONLY"
    FORK_GUARD = "FORK_GUARD"
    LOG = "LOG"
    TIME_TRAVEL = "TIME_TRAVEL"
    CLOCK = "CLOCK"
    WATCH = "WATCH"


MEANINGS: Mapping[Capability, str] = {
    Capability.PERSISTENT: "what was written is there when the location is opened again",
    Capability.SHARED: "handles open at once on one location see one store",
    Capability.MULTI_PROCESS: "several processes may use one location at once (spawn_target)",
    Capability.READ_ONLY: "a location can be opened for reading only (open_read_only)",
    Capability.FORK_GUARD: "a handle carried over a fork refuses and harms nothing",
    Capability.LOG: "events, append, batch, audit, idempotency, expected revisions, head, verify",
    Capability.TIME_TRAVEL: "views of the past: at(), and fork_session(at=)",
    Capability.CLOCK: "the time comes from a clock that the test passes in",
    Capability.WATCH: "a watcher is called after commits of its own handle",
}


def needs(*capabilities: Capability) -> Callable[[Decorated], Decorated]:
    """Mark a test, or every test written in a class, as one for backends that declare these.

    >>> @needs(Capability.LOG)
    ... def test_head_grows() -> None: ...
    >>> sorted(missing(test_head_grows, {Capability.PERSISTENT}))
    [<Capability.LOG: 'LOG'>]
    """

    def mark(target: Decorated) -> Decorated:
        if isinstance(target, type):
            for name, value in vars(target).items():
                if name.startswith("test_"):
                    _add_needs(value, capabilities)
        else:
            _add_needs(target, capabilities)
        return target

    return mark


def missing(test: object, declared: set[Capability]) -> set[Capability]:
    """What a test needs and is not declared."""
    wanted: frozenset[Capability] = getattr(test, _NEEDS, frozenset())
    return set(wanted) - declared


@dataclass(frozen=True, slots=True)
class CapabilityRow:
    """One capability of a report.

    Attributes:
        name: The class attribute.
        declared: Whether the suite's subclass sets it.
        test_count: Tests that need it; all of them are skipped where it is not declared.
        meaning: What is declared with it.
    """

    name: str
    declared: bool
    test_count: int
    meaning: str


@dataclass(frozen=True, slots=True)
class CapabilityReport:
    """What a suite will claim of a backend and what it leaves open; print it or dump it.

    Attributes:
        suite: Name of the suite's subclass.
        rows: One per capability that the suite knows.
        run_count: Tests that run.
        skip_count: Tests that are skipped because a capability is not declared.
    """

    suite: str
    rows: tuple[CapabilityRow, ...]
    run_count: int
    skip_count: int

    def to_dict(self) -> dict[str, object]:
        """Plain data, for a file beside a release."""
        return {
            "suite": self.suite,
            "run_count": self.run_count,
            "skip_count": self.skip_count,
            "capabilities": {
                row.name: {
                    "declared": row.declared,
                    "test_count": row.test_count,
                    "meaning": row.meaning,
                }
                for row in self.rows
            },
        }

    def to_json(self) -> str:
        """The same as text, keys sorted."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    def __str__(self) -> str:
        lines = [f"{self.suite}: {self.run_count} tests run, {self.skip_count} are skipped"]
        for row in self.rows:
            declared = "yes" if row.declared else "no"
            lines.append(f"  {row.name:<14}{declared:<5}{row.test_count:>4} tests  {row.meaning}")
        return "\n".join(lines)


def report_of(suite: type, known: tuple[Capability, ...]) -> CapabilityReport:
    """The report of a suite's subclass, from its attributes and its tests' marks."""
    declared = {one for one in known if getattr(suite, one.value)}
    tests = list(_tests_of(suite))
    skipped = [test for test in tests if missing(test, declared)]
    rows = tuple(
        CapabilityRow(
            name=one.value,
            declared=one in declared,
            test_count=sum(one in missing(test, set()) for test in tests),
            meaning=MEANINGS[one],
        )
        for one in known
    )
    return CapabilityReport(suite.__name__, rows, len(tests) - len(skipped), len(skipped))


def _add_needs(test: object, capabilities: tuple[Capability, ...]) -> None:
    present: frozenset[Capability] = getattr(test, _NEEDS, frozenset())
    setattr(test, _NEEDS, present | frozenset(capabilities))


def _tests_of(suite: type) -> Iterator[object]:
    for name in dir(suite):
        if name.startswith("test_"):
            yield getattr(suite, name)
