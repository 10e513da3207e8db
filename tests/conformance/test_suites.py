"""The suites themselves: no test hides another, no part is left out, no capability is empty."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator

import pytest

import fmemory.testing
from fmemory.testing import JournalSuite, MemoryBackendSuite

SUITES = (JournalSuite, MemoryBackendSuite)


def parts() -> Iterator[type]:
    """Every class of the testing package that holds tests of its own."""
    for info in pkgutil.iter_modules(fmemory.testing.__path__):
        module = importlib.import_module(f"fmemory.testing.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__ and own_tests(value):
                yield value


def own_tests(part: type) -> list[str]:
    return [name for name, value in vars(part).items() if name[:5] == "test_" and callable(value)]


@pytest.mark.parametrize("suite", SUITES)
def test_no_test_of_a_suite_hides_another(suite: type) -> None:
    names = Counter(name for part in suite.__mro__ for name in own_tests(part))
    assert [name for name, times in names.items() if times > 1] == []


def test_every_part_is_in_a_suite() -> None:
    assert [part for part in parts() if not any(issubclass(one, part) for one in SUITES)] == []


@pytest.mark.parametrize("suite", SUITES)
def test_every_capability_of_a_suite_is_needed_by_a_test(
    suite: type[JournalSuite] | type[MemoryBackendSuite],
) -> None:
    assert [row.name for row in suite.capability_report().rows if not row.test_count] == []


@pytest.mark.parametrize("suite", SUITES)
def test_suite_declares_nothing_by_itself(
    suite: type[JournalSuite] | type[MemoryBackendSuite],
) -> None:
    assert [row.name for row in suite.capability_report().rows if row.declared] == []


@pytest.mark.parametrize("suite", SUITES)
def test_suite_with_everything_declared_skips_nothing(
    suite: type[JournalSuite] | type[MemoryBackendSuite],
) -> None:
    names = [row.name for row in suite.capability_report().rows]
    everything = type("Everything", (suite,), dict.fromkeys(names, True))
    assert issubclass(everything, suite)
    assert everything.capability_report().skip_count == 0
