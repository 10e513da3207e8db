"""What every part of the backend suite stands on: hooks, handles that get closed, refusals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from fmemory._json_values import JsonValue
from fmemory.backend import MemoryBackend, MemoryView
from fmemory.errors import ContractError, MemoryBackendError, Reason
from fmemory.record_models import (
    ClearResult,
    DeleteResult,
    MemoryRecord,
    MetaResult,
    PutResult,
)
from fmemory.testing._capabilities import Capability, CapabilityReport, missing, report_of
from fmemory.testing._samples import NAMESPACES, Namespace, identity, scan

__all__ = ["BACKEND_CAPABILITIES", "SEED_VARIABLE", "BackendSuiteBase", "Stores", "readable"]

BACKEND_CAPABILITIES = (
    Capability.PERSISTENT,
    Capability.SHARED,
    Capability.MULTI_PROCESS,
    Capability.READ_ONLY,
    Capability.FORK_GUARD,
    Capability.LOG,
    Capability.TIME_TRAVEL,
)
SEED_VARIABLE = "FMEMORY_TEST_SEED"
SESSIONS = ("s1", "s2", "s3")

_numbers = count()
E = TypeVar("E", bound=MemoryBackendError)


class Stores:
    """Opens stores for a test by name, and closes all handles after it."""

    def __init__(self, suite: BackendSuiteBase, folder: Path) -> None:
        self._suite = suite
        self._folder = folder
        self._open: list[MemoryBackend] = []

    def location(self, name: str = "store") -> str:
        """The location of a name; the same one for the same name."""
        if self._suite.PERSISTENT:
            self._folder.mkdir(exist_ok=True)
        return self._suite.location(self._folder, name)

    def open(self, name: str = "store") -> MemoryBackend:
        """One more handle on the store of this name."""
        return self.opened(self._suite.open_backend(self.location(name)))

    def open_read_only(self, name: str = "store") -> MemoryBackend:
        """A handle that only reads the store of this name."""
        return self.opened(self._suite.open_read_only(self.location(name)))

    def reopen(self, memory: MemoryBackend, name: str = "store") -> MemoryBackend:
        """Close this handle and open the location again."""
        memory.close()
        return self.open(name)

    def opened(self, memory: MemoryBackend) -> MemoryBackend:
        """Remember a handle that somebody else opened."""
        self._open.append(memory)
        return memory

    def close(self) -> None:
        """Close what is open, newest first."""
        while self._open:
            self._open.pop().close()


class BackendSuiteBase:
    """Hooks and fixtures; subclass `MemoryBackendSuite`, not this."""

    MACHINE_ROUNDS: ClassVar[int] = 20
    """Rounds of random operations; fewer where each one is a round trip to a server."""

    PERSISTENT: ClassVar[bool] = False
    SHARED: ClassVar[bool] = False
    MULTI_PROCESS: ClassVar[bool] = False
    READ_ONLY: ClassVar[bool] = False
    FORK_GUARD: ClassVar[bool] = False
    LOG: ClassVar[bool] = False
    TIME_TRAVEL: ClassVar[bool] = False

    def open_backend(self, location: str) -> MemoryBackend:
        """A backend at this location, made if missing; the same location twice is a reopen.

        Args:
            location: What `location()` gave.
        """
        raise NotImplementedError("a subclass of MemoryBackendSuite defines open_backend(location)")

    def open_read_only(self, location: str) -> MemoryBackend:
        """A handle that only reads. Needed where READ_ONLY is declared."""
        raise NotImplementedError("READ_ONLY is declared: define open_read_only(location)")

    def spawn_target(self, location: str) -> Callable[[], MemoryBackend]:
        """What opens this location in another process: picklable, so a function or a partial of it.

        Needed where MULTI_PROCESS is declared.
        """
        raise NotImplementedError("MULTI_PROCESS is declared: define spawn_target(location)")

    def location(self, folder: Path, name: str) -> str:
        """A location for this name, new for every test: here a path that does not exist yet.

        Args:
            folder: A folder of the test's own; it exists where PERSISTENT is declared.
            name: What the test calls the store.
        """
        return str(folder / name)

    @classmethod
    def capability_report(cls) -> CapabilityReport:
        """What is declared, and how many tests run and are skipped because of it."""
        return report_of(cls, BACKEND_CAPABILITIES)

    @pytest.fixture(autouse=True)
    def _skip_undeclared(self, request: pytest.FixtureRequest) -> None:
        declared = {one for one in BACKEND_CAPABILITIES if getattr(self, one.value)}
        lacking = sorted(missing(request.function, declared))
        if lacking:
            pytest.skip(f"{type(self).__name__} does not declare {', '.join(lacking)}")

    @pytest.fixture
    def stores(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
        """Opens stores by name; all are closed afterwards."""
        # A folder a test costs a suite of a thousand tests seconds; only some need one.
        folder = tmp_path_factory.getbasetemp() / f"stores-{next(_numbers)}"
        handles = Stores(self, folder)
        yield handles
        handles.close()

    @pytest.fixture
    def memory(self, stores: Stores) -> MemoryBackend:
        """A new, empty store."""
        return stores.open()

    @staticmethod
    def seed() -> int:
        """The seed of random tests, printed; pass one in by FMEMORY_TEST_SEED."""
        seed = int(os.environ.get(SEED_VARIABLE, "20250102"))
        print(f"{SEED_VARIABLE}={seed}")  # noqa: T201 - shown by pytest where a test fails
        return seed

    def fingerprint(self, memory: MemoryBackend) -> object:
        """What must not change where nothing is written."""
        if not self.LOG:
            return readable(memory)
        # The head pins all that is stored; what is made of it is looked at where most tests write.
        return str(self.untyped(memory, "head")), readable(memory, NAMESPACES[:3])

    @contextmanager
    def nothing_written(self, memory: MemoryBackend) -> Iterator[None]:
        """The block must leave everything readable, and the head of a log, as it was."""
        before = self.fingerprint(memory)
        yield
        assert self.fingerprint(memory) == before

    @contextmanager
    def refused(
        self, memory: MemoryBackend, expected: type[E], reason: Reason
    ) -> Iterator[pytest.ExceptionInfo[E]]:
        """The block must raise this class with this reason, and write nothing."""
        with self.nothing_written(memory):
            with pytest.raises(expected) as caught:
                yield caught
            assert caught.value.reason is reason

    def refuses_each(
        self, memory: MemoryBackend, name: str, values: Iterable[object], *before: object
    ) -> None:
        """The operation must refuse each of these values as of a wrong type, and write nothing."""
        with self.nothing_written(memory):
            for value in values:
                with pytest.raises(ContractError) as caught:
                    self.untyped(memory, name, *before, value)
                assert caught.value.reason is Reason.WRONG_TYPE, value

    @staticmethod
    def untyped(memory: object, name: str, *arguments: object, **options: object) -> object:
        """Call an operation with what its types would not allow."""
        operation: Callable[..., object] = getattr(memory, name)
        return operation(*arguments, **options)

    @staticmethod
    def put(memory: MemoryBackend, *records: MemoryRecord) -> PutResult:
        return memory.put(memory.put_request(records))

    @staticmethod
    def delete(memory: MemoryBackend, *ids: str, namespace: Namespace = ()) -> DeleteResult:
        return memory.delete(memory.delete_request(ids, namespace=namespace))

    @staticmethod
    def clear(memory: MemoryBackend, namespace: Namespace = ()) -> ClearResult:
        return memory.clear(memory.clear_request(namespace=namespace))

    @staticmethod
    def get_meta(memory: MemoryBackend, key: str, namespace: Namespace = ()) -> JsonValue:
        return memory.get_meta(memory.meta_get_request(key, namespace=namespace)).value

    @staticmethod
    def set_meta(
        memory: MemoryBackend, key: str, value: JsonValue, namespace: Namespace = ()
    ) -> MetaResult:
        return memory.set_meta(memory.meta_set_request(key, value, namespace=namespace))


def readable(memory: MemoryView, namespaces: Sequence[Namespace] = NAMESPACES) -> object:
    """Everything that can be read of these namespaces, and of the suite's keys and sessions."""
    spaces = [
        (
            [identity(one) for one in scan(memory, namespace)],
            [
                repr(memory.get_meta(memory.meta_get_request(key, namespace=namespace)).value)
                for key in ("k", "embedding_id")
            ],
        )
        for namespace in namespaces
    ]
    sessions = [
        (
            memory.is_initialized(one),
            repr(memory.load_bootstrap_state(one)),
            [repr(message) for message in memory.load_transcript_messages(one)],
        )
        for one in SESSIONS
    ]
    return spaces, sessions
