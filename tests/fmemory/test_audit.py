"""Audit values: how they nest, and where they reach."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import fmemory
from fmemory._audit import ACTOR_VARIABLE, Audit, audit, current_audit, default_actor
from fmemory.errors import ContractError


def test_there_is_nothing_outside_of_a_block() -> None:
    assert current_audit() == Audit()


def test_a_block_ends_with_the_values_before_it() -> None:
    with audit(actor="a"), pytest.raises(ZeroDivisionError), audit(actor="b"):
        raise ZeroDivisionError
    assert current_audit() == Audit()


def test_nested_values_inherit() -> None:
    with audit(actor="a", run_id="r"), audit(reason="because", run_id="r2"):
        assert current_audit() == Audit("a", "r2", "because")


def test_a_block_can_decorate_a_function() -> None:
    @audit(actor="a")
    def actor() -> str | None:
        return current_audit().actor

    assert [actor(), actor()] == ["a", "a"]
    assert current_audit() == Audit()


@pytest.mark.parametrize("value", ["", "\ud800", 1, b"a"], ids=ascii)
@pytest.mark.parametrize("name", ["actor", "run_id", "reason"])
def test_a_value_that_cannot_be_stored_is_refused(name: str, value: object) -> None:
    with pytest.raises(ContractError) as caught:
        audit(**{name: value}).__enter__()  # type: ignore[arg-type]
    assert caught.value.where == name
    assert current_audit() == Audit()


def test_values_reach_tasks_and_to_thread() -> None:
    async def inside() -> list[str | None]:
        with audit(actor="a"):
            task = asyncio.create_task(asyncio.to_thread(current_audit))
        return [(await task).actor, current_audit().actor]

    assert asyncio.run(inside()) == ["a", None]


def test_values_do_not_reach_threads_and_executors() -> None:
    seen: list[Audit] = []
    with ThreadPoolExecutor(1) as executor, audit(actor="a"):
        thread = threading.Thread(target=lambda: seen.append(current_audit()))
        thread.start()
        thread.join()
        seen.append(executor.submit(current_audit).result())
    assert seen == [Audit(), Audit()]


def test_values_reach_the_events_of_sync_and_async_writes() -> None:
    async def write(memory: fmemory.LogBackend) -> None:
        with audit(actor="b", run_id="r"):
            await memory.aadd_note("two")

    with fmemory.open(":memory:") as memory:
        with audit(actor="a", reason="first"):
            memory.add_note("one")
        asyncio.run(write(memory))
        found = [(event.actor, event.run_id, event.reason) for event in memory.events()]
    assert found == [("a", None, "first"), ("b", "r", None)]


def test_the_default_actor_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ACTOR_VARIABLE, "robot")
    assert default_actor() == "robot"


def test_without_it_the_default_actor_is_user_at_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ACTOR_VARIABLE, raising=False)
    user, at, host = default_actor().partition("@")
    assert user and at and host


def test_an_event_without_audit_has_the_default_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ACTOR_VARIABLE, "robot")
    with fmemory.open(":memory:") as memory:
        memory.add_note("one")
        assert [event.actor for event in memory.events()] == ["robot"]


def test_importing_looks_nothing_up() -> None:
    code = (
        "import getpass, socket, sys\n"
        "getpass.getuser = socket.gethostname = lambda: sys.exit('looked up')\n"
        "import fmemory._audit\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == 0
