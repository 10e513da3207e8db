"""Audit: who wrote what, in which run and why."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from fmemory._audit import audit
from fmemory.backend import LogBackend
from fmemory.errors import ContractError
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._log_base import LogSuiteBase, events, said_event
from fmemory.testing._log_writes import WRITES
from fmemory.testing._samples import moment, record
from fmemory.testing._sessions_samples import checkpoint, entry, features, manifest, said


@needs(Capability.LOG)
class AuditPart(LogSuiteBase):
    """What `audit` and `bind` promise."""

    def who(self, log: LogBackend, after: int = 0) -> set[tuple[object, object, object]]:
        return {(one.actor, one.run_id, one.reason) for one in events(log, after)}

    @pytest.mark.parametrize("name", WRITES)
    def test_audit_reaches_every_write(self, log: LogBackend, name: str) -> None:
        self.fill(log)
        log.replace_feature_list("s1", features("f1"))
        before = log.head().seq
        with audit(actor="ann", run_id="run-7", reason="to see"):
            WRITES[name][1](log, None, None)
        assert self.who(log, before) == {("ann", "run-7", "to see")}

    @pytest.mark.parametrize("name", WRITES)
    def test_bind_reaches_every_write(self, log: LogBackend, name: str) -> None:
        self.fill(log)
        log.replace_feature_list("s1", features("f1"))
        before = log.head().seq
        WRITES[name][1](log.bind(actor="ann", run_id="run-7", reason="to see"), None, None)
        assert self.who(log, before) == {("ann", "run-7", "to see")}

    def test_audit_reaches_initialize_fork_and_batch(self, log: LogBackend) -> None:
        with audit(actor="ann", run_id="run-7", reason="to see"):
            log.initialize_session_if_missing("s1", manifest(), features("f1"), entry(1))
            log.fork_session("s1", "s2")
            with log.batch() as batch:
                batch.put(log.put_request((record("a"),)))
                batch.append(self.STREAM, (said_event(),))
        assert self.who(log) == {("ann", "run-7", "to see")}

    def test_audit_ends_with_its_block(self, log: LogBackend) -> None:
        with audit(actor="ann", reason="to see"):
            log.append(self.STREAM, (said_event(),))
        log.append(self.STREAM, (said_event(),))
        second = log.event(2)
        assert (second.actor == "ann", second.reason) == (False, None)

    def test_nested_audit_inherits_what_it_does_not_set(self, log: LogBackend) -> None:
        with audit(actor="ann", run_id="run-7", reason="outer"), audit(reason="inner"):
            log.append(self.STREAM, (said_event(),))
        assert self.who(log) == {("ann", "run-7", "inner")}

    def test_bind_wins_over_audit_where_both_say(self, log: LogBackend) -> None:
        with audit(actor="ann", run_id="run-7", reason="around"):
            log.bind(actor="bob").append(self.STREAM, (said_event(),))
        assert self.who(log) == {("bob", "run-7", "around")}

    def test_bind_of_a_bound_view_inherits(self, log: LogBackend) -> None:
        log.bind(actor="ann", reason="one").bind(reason="two").append(self.STREAM, (said_event(),))
        assert self.who(log) == {("ann", None, "two")}

    def test_bound_view_shares_the_store(self, log: LogBackend) -> None:
        bound = log.bind(actor="ann")
        self.put(bound, record("a"))
        assert log.get(log.get_request(("a",))).missing == ()

    def test_bound_view_leaves_its_origin_as_it_was(self, log: LogBackend) -> None:
        log.bind(actor="ann", run_id="run-7")
        log.append(self.STREAM, (said_event(),))
        assert log.event(1).run_id is None

    def test_default_actor_is_the_variables(
        self, log: LogBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FMEMORY_ACTOR", "robot-9")
        log.append(self.STREAM, (said_event(),))
        assert log.event(1).actor == "robot-9"

    def test_default_actor_is_user_and_host(
        self, log: LogBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("FMEMORY_ACTOR", raising=False)
        log.append(self.STREAM, (said_event(),))
        assert "@" in str(log.event(1).actor)

    def test_progress_and_checkpoint_bring_their_run(self, log: LogBackend) -> None:
        log.append_progress_entry("s1", entry(1, "run-1"))
        log.record_run_checkpoint("s1", checkpoint(1, "run-2"))
        assert [one.run_id for one in events(log)] == ["run-1", "run-2"]

    def test_run_that_is_set_wins_over_that_of_an_entry(self, log: LogBackend) -> None:
        with audit(run_id="run-7"):
            log.append_progress_entry("s1", entry(1, "run-1"))
        assert log.event(1).run_id == "run-7"

    def test_run_block_marks_what_is_written_in_it(self, log: LogBackend) -> None:
        with log.session("s1").run("run-1", actor="coder", reason="first try"):
            log.append_transcript_messages("s1", said("x"))
            self.put(log, record("a"))
        assert self.who(log) == {("coder", "run-1", "first try")}

    def test_time_of_occurrence_reaches_what_is_written(self, log: LogBackend) -> None:
        with audit(occurred_at=moment(-9)):
            self.put(log, record("a"))
        assert log.event(1).occurred_at == moment(-9)

    def test_audit_reaches_async_writes(self, log: LogBackend) -> None:
        async def work() -> None:
            with audit(actor="ann", run_id="run-7", reason="to see"):
                await log.aput(log.put_request((record("a"),)))

        asyncio.run(work())
        assert self.who(log) == {("ann", "run-7", "to see")}

    def test_tasks_keep_their_own_audit(self, log: LogBackend) -> None:
        async def write(name: str) -> None:
            with audit(actor=name, run_id=f"run-{name}"):
                for _ in range(5):
                    await log.aappend((name,), (said_event(),))

        async def work() -> None:
            await asyncio.gather(*(write(name) for name in "abcdef"))

        asyncio.run(work())
        found = {(one.stream[0], one.actor, one.run_id) for one in events(log)}
        assert found == {(name, name, f"run-{name}") for name in "abcdef"}

    def test_audit_reaches_to_thread(self, log: LogBackend) -> None:
        async def work() -> None:
            with audit(actor="ann"):
                await asyncio.to_thread(log.append, self.STREAM, (said_event(),))

        asyncio.run(work())
        assert log.event(1).actor == "ann"

    def test_audit_does_not_reach_executors_and_bind_does(self, log: LogBackend) -> None:
        with audit(actor="ann"), ThreadPoolExecutor(1) as executor:
            executor.submit(log.append, self.STREAM, (said_event(),)).result()
            bound = log.bind(actor="bob")
            executor.submit(bound.append, self.STREAM, (said_event(),)).result()
        assert [one.actor == "ann" for one in events(log)] == [False, False]
        assert log.event(2).actor == "bob"

    @pytest.mark.parametrize("name", ["actor", "run_id", "reason"])
    @pytest.mark.parametrize("value", ["", 1, b"x", "a\ud800"])
    def test_bad_audit_value_is_refused(self, log: LogBackend, name: str, value: object) -> None:
        with pytest.raises(ContractError):
            self.untyped(log, "bind", **{name: value})
