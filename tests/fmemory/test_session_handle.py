"""Handles of sessions, and runs: what is recorded when a block begins, ends and fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import fmemory
from fmemory._audit import Audit, audit, current_audit
from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, StoreBusy
from fmemory.log_models import NewEvent
from fmemory.session_handle import FAILURE_NOTE_CHARACTERS_MAX, LogSession, Session, SessionView
from fmemory.session_models import (
    FeatureRecord,
    Message,
    ProgressEntry,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
)
from fmemory.testing._model_backend import ModelBackend


@pytest.fixture(params=["contract", "engine"])
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryBackend]:
    with ModelBackend() if request.param == "contract" else fmemory.open(":memory:") as backend:
        yield backend


def outcomes(session: SessionView) -> list[tuple[RunStatus, str | None]]:
    return [(one.status, one.note) for one in session.load_bootstrap_state().checkpoints]


STARTED = (RunStatus.IN_PROGRESS, None)


def test_a_run_that_ends_is_recorded_as_succeeded(memory: MemoryBackend) -> None:
    session = memory.session("s")
    with session.run("r1") as run:
        assert outcomes(session) == [STARTED]
        run.note = "all tests pass"
    assert outcomes(session) == [STARTED, (RunStatus.SUCCEEDED, "all tests pass")]
    first, last = session.load_bootstrap_state().checkpoints
    assert last.started_at == first.started_at
    assert last.completed_at is not None


def test_a_run_that_raises_is_recorded_as_failed_and_raises(memory: MemoryBackend) -> None:
    session = memory.session("s")
    with pytest.raises(KeyError), session.run("r1"):
        raise KeyError("nothing there")
    assert outcomes(session) == [STARTED, (RunStatus.FAILED, "KeyError: 'nothing there'")]


def test_a_failure_keeps_the_note_of_the_caller(memory: MemoryBackend) -> None:
    session = memory.session("s")
    with pytest.raises(ValueError), session.run("r1") as run:
        run.note = "at step 3"
        raise ValueError("x" * 5000 + "\ud800")
    note = outcomes(session)[1][1]
    assert note is not None and note.startswith("at step 3\nValueError: xxx")
    assert len(note) <= FAILURE_NOTE_CHARACTERS_MAX + len("at step 3\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_run_that_is_interrupted_is_recorded_as_failed(
    memory: MemoryBackend, error: type[BaseException]
) -> None:
    session = memory.session("s")
    with pytest.raises(error), session.run("r1"):
        raise error
    assert outcomes(session)[1][0] is RunStatus.FAILED


def test_a_run_carries_audit_values_into_its_block_and_no_further(memory: MemoryBackend) -> None:
    with audit(actor="around", reason="nightly"):
        with memory.session("s").run("r1", actor="coder"):
            assert current_audit() == Audit("coder", "r1", "nightly")
        assert current_audit() == Audit("around", None, "nightly")


def test_the_events_of_a_run_say_who_and_why() -> None:
    with fmemory.open(":memory:") as memory:
        session = memory.session("s")
        with session.run("r1", actor="coder", reason="nightly"):
            session.append_transcript_messages([Message("user", "a")])
        events = list(session.events())
    assert [event.type for event in events] == [
        "checkpoint_recorded",
        "transcript_appended",
        "checkpoint_recorded",
    ]
    assert {(event.actor, event.run_id, event.reason) for event in events} == {
        ("coder", "r1", "nightly")
    }


def test_an_async_run_is_recorded_in_the_same_way(memory: MemoryBackend) -> None:
    async def work() -> list[tuple[RunStatus, str | None]]:
        session = memory.session("s")
        async with session.run("r1", actor="coder") as run:
            assert current_audit().actor == "coder"
            run.note = "done"
        with pytest.raises(ZeroDivisionError):
            async with session.run("r2"):
                raise ZeroDivisionError("no")
        return outcomes(session)

    assert asyncio.run(work()) == [
        STARTED,
        (RunStatus.SUCCEEDED, "done"),
        STARTED,
        (RunStatus.FAILED, "ZeroDivisionError: no"),
    ]


def test_a_cancelled_run_is_recorded_as_failed(memory: MemoryBackend) -> None:
    async def work() -> None:
        async with memory.session("s").run("r1"):
            entered.set()
            await asyncio.Event().wait()

    async def cancel() -> None:
        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    entered = asyncio.Event()
    asyncio.run(cancel())
    assert outcomes(memory.session("s"))[1] == (RunStatus.FAILED, "CancelledError: ")


class Full(ModelBackend):
    """Takes so many checkpoints, then refuses."""

    room = 1

    def record_run_checkpoint(self, *args: Any, **options: Any) -> Any:
        self.room -= 1
        if self.room < 0:
            raise StoreBusy("busy", timeout_s=0.0)
        return super().record_run_checkpoint(*args, **options)


def test_a_failure_that_cannot_be_recorded_does_not_hide_the_first() -> None:
    with Full() as memory, pytest.raises(ZeroDivisionError) as caught, memory.session("s").run("r"):
        raise ZeroDivisionError
    assert "could not record" in caught.value.__notes__[0]
    assert current_audit() == Audit()


def test_a_success_that_cannot_be_recorded_raises() -> None:
    with Full() as memory, pytest.raises(StoreBusy), memory.session("s").run("r"):
        pass
    assert current_audit() == Audit()


def test_a_run_that_cannot_begin_leaves_no_audit_values() -> None:
    with Full() as memory:
        memory.room = 0
        with pytest.raises(StoreBusy), memory.session("s").run("r", actor="a"):
            pass
    assert current_audit() == Audit()


def test_a_run_can_be_entered_again_but_not_inside_itself(memory: MemoryBackend) -> None:
    run = memory.session("s").run("r")
    with run:
        pass
    with run, pytest.raises(RuntimeError):
        run.__enter__()
    assert len(outcomes(memory.session("s"))) == 4


@pytest.mark.parametrize("bad", ["", 1, None, "\ud800"], ids=ascii)
def test_a_session_id_is_a_non_empty_str(memory: MemoryBackend, bad: Any) -> None:
    with pytest.raises(ContractError) as caught:
        memory.session(bad)
    assert caught.value.where == "session_id"


@pytest.mark.parametrize("values", [("", None, None), ("r", "", None), ("r", None, "")])
def test_a_run_needs_values_that_can_be_stored(
    memory: MemoryBackend, values: tuple[str, str | None, str | None]
) -> None:
    with pytest.raises(ContractError):
        memory.session("s").run(values[0], actor=values[1], reason=values[2])


def test_a_handle_does_what_the_backend_does(memory: MemoryBackend) -> None:
    session = memory.session("s")
    manifest = SessionManifest("s", "main", "start")
    assert session.initialize_session_if_missing(manifest, [FeatureRecord("f", "c", "d")])
    session.save_manifest(manifest.with_current_objective("go on"))
    session.append_progress_entry(ProgressEntry("r", "did"))
    session.update_feature_pass("f", True)
    session.record_run_checkpoint(RunCheckpoint.started("r"))
    session.append_transcript_messages([Message("user", str(n)) for n in range(5)])
    assert session.is_initialized() and memory.is_initialized("s")
    assert session.load_bootstrap_state() == memory.load_bootstrap_state("s")
    assert session.load_bootstrap_state().feature_list[0].passes
    assert [one.content for one in session.load_transcript_messages(last=2)] == ["3", "4"]
    session.replace_feature_list([])
    assert session.load_bootstrap_state().feature_list == ()


def test_a_handle_does_it_in_async_form_too(memory: MemoryBackend) -> None:
    async def work() -> None:
        session = memory.session("s")
        manifest = SessionManifest("s", "main", "start")
        features = [FeatureRecord("f", "c", "d")]
        assert await session.ainitialize_session_if_missing(manifest, features)
        await session.asave_manifest(manifest.with_current_objective("go on"))
        await session.aappend_progress_entry(ProgressEntry("r", "did"))
        await session.aupdate_feature_pass("f", True)
        await session.arecord_run_checkpoint(RunCheckpoint.started("r"))
        await session.aappend_transcript_messages([Message("user", "a")])
        assert await session.ais_initialized()
        state = await session.aload_bootstrap_state()
        assert state == memory.load_bootstrap_state("s") and state.feature_list[0].passes
        assert await session.aload_transcript_messages(after=0) == (Message("user", "a"),)
        await session.areplace_feature_list([])

    asyncio.run(work())


def test_a_handle_of_a_log_has_its_past() -> None:
    with fmemory.open(":memory:") as memory:
        session = memory.session("s")
        assert type(session) is LogSession
        session.append_transcript_messages([Message("user", "a"), Message("user", "b")])
        session.append([NewEvent("tool.finished", 1)], expected_revision=1)
        session.truncate_transcript(keep=1)
        past = session.at(1)
        assert type(past) is SessionView
        assert len(past.load_transcript_messages()) == 2
        assert len(session.load_transcript_messages()) == 1
        fork = session.fork("t", at=1)
        assert (fork.id, len(fork.load_transcript_messages())) == ("t", 2)
        assert [event.type for event in session.history()] == [
            event.type for event in session.events()
        ]
        session.delete()
        assert session.load_transcript_messages() == ()


def test_a_handle_of_a_log_has_its_past_in_async_form() -> None:
    async def work() -> None:
        async with await fmemory.aopen(":memory:") as memory:
            session = memory.session("s")
            await session.aappend_transcript_messages([Message("user", "a")])
            await session.aappend([NewEvent("tool.finished", 1)])
            await session.atruncate_transcript(keep=0)
            assert len(await (await session.aat(1)).aload_transcript_messages()) == 1
            assert (await session.afork("t", at=1)).id == "t"
            seen = [event.type async for event in session.aevents()]
            assert seen == [event.type async for event in session.ahistory()]
            assert len(seen) == 3
            await session.adelete()

    asyncio.run(work())


def test_the_type_of_a_handle_says_what_can_be_done() -> None:
    with ModelBackend() as contract, fmemory.open(":memory:") as engine:
        assert type(contract.session("s")) is Session
        assert type(engine.session("s")) is LogSession
        assert type(engine.at(0).session("s")) is SessionView
        assert repr(engine.session("s")) == "LogSession('s')"
