"""Random operations against a plain model: after each, everything readable must be equal.

Goal: no sequence of operations, reopens and second handles leaves the store different from dicts
and lists that were told the same. Method: Hypothesis draws the steps; each runs on `ModelBackend`
and on the backend under test, results and typed errors are compared, then all records (scanned at
random page sizes), counts, meta values, sessions and transcripts are, and of a log every new event
with who, when and why, the streams, and remembered moments of the past. What would have to break:
any rule of the contract that shows in a sequence of at most some dozens of steps.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as counter
from pathlib import Path
from typing import cast

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fmemory._audit import audit, default_actor
from fmemory._json_values import JsonValue
from fmemory.backend import LogBackend, LogView, MemoryBackend, MemoryView
from fmemory.errors import Conflict, HistoryCompacted, MemoryBackendError, Reason
from fmemory.log_models import Event, NewEvent, Receipt
from fmemory.record_models import PutRequest, check_put
from fmemory.testing._backend_base import BackendSuiteBase
from fmemory.testing._log_base import as_log
from fmemory.testing._machine_results import (
    emptied,
    has_content,
    lines_of,
    reason_of,
    receipt_of,
    renamed,
    seqs_of,
    session_copy,
    without_receipt,
)
from fmemory.testing._machine_steps import (
    IDS,
    KEYS,
    NAMESPACES,
    SESSIONS,
    STREAMS,
    Step,
    audits,
    batch_steps,
    feature_lists,
    json_values,
    record_steps,
    session_steps,
    sessions,
    spaces,
    with_key,
)
from fmemory.testing._model_backend import ModelBackend, ModelSession, ModelState
from fmemory.testing._samples import count, get_ids, identity, scan
from fmemory.testing._sessions_samples import entry, features, manifest

__all__ = ["ROUNDS_VARIABLE", "MemoryMachine", "machine_settings", "run_machine"]

ROUNDS_VARIABLE = "FMEMORY_TEST_ROUNDS"
ROUNDS_DEFAULT = 20
STEPS = 30

DELETIONS = {
    "records_deleted",
    "records_cleared",
    "meta_cleared",
    "session_deleted",
    "stream_deleted",
}


class MemoryMachine(RuleBasedStateMachine):
    """Random operations on one store of a suite; made by `run_machine`."""

    def __init__(self, suite: BackendSuiteBase, folder: Path) -> None:
        super().__init__()
        self.suite = suite
        self.location = suite.location(folder, "store")
        self.model = ModelBackend()
        self.memory = suite.open_backend(self.location)
        self.handles = [self.memory]
        self.chance = random.Random(0)
        self.head = 0
        self.compacted = 0
        self.forgot_before = 0
        self.stubs: set[int] = set()
        self.views: dict[int, LogView] = {}
        self.revisions: dict[tuple[str, ...], int] = {}
        self.last_seqs: dict[tuple[str, ...], int] = {}
        self.said: list[tuple[int, tuple[str, ...], object, str | None]] = []
        self.moments: dict[int, tuple[ModelState, object]] = {}
        self.keyed: list[tuple[Step, object]] = []
        self.numbers = counter(1)
        self.expected_audit: dict[str, str | None] = {}
        self.in_step = False
        self.expected = self.observe(self.model)
        self.remember()

    @property
    def log(self) -> LogBackend:
        return as_log(self.memory)

    @initialize(seed=st.integers(0, 2**16))
    def seeded(self, seed: int) -> None:
        self.chance = random.Random(seed)

    # Steps that every backend can do

    @rule(step=record_steps, who=audits, mode=st.sampled_from("ssab"))
    def write_records(self, step: Step, who: dict[str, str | None], mode: str) -> None:
        self.write(step, who, mode)

    @rule(step=session_steps, who=audits, mode=st.sampled_from("ssab"))
    def write_session(self, step: Step, who: dict[str, str | None], mode: str) -> None:
        self.write(step, who, mode)

    def write(self, step: Step, who: dict[str, str | None], mode: str) -> None:
        with self.audited(step, who, bound=mode == "b") as memory:
            self.compare(step.on(self.model, self.model), self.ran(step, memory, mode))

    @rule(
        one=sessions,
        text=st.sampled_from(["x", "y"]),
        ids=feature_lists,
        number=st.none() | st.integers(0, 3),
        who=audits,
    )
    def initialize_session(
        self, one: str, text: str, ids: list[str], number: int | None, who: dict[str, str | None]
    ) -> None:
        first = None if number is None else entry(number)
        step = Step(
            "initialize_session_if_missing",
            lambda _m: (one, manifest(one, text), features(*ids), first, None),
            {},
        )
        with self.audited(step, who) as memory:
            self.compare(step.on(self.model, self.model), step.on(memory, memory))

    @rule(space=spaces, who=audits, into=st.sampled_from([None, ("loaded",)]))
    def dump_and_load(
        self,
        space: tuple[str, ...],
        who: dict[str, str | None],
        into: tuple[str, ...] | None,
    ) -> None:
        dumped, expected = io.StringIO(), io.StringIO()
        self.memory.dump(dumped, space)
        self.model.dump(expected, space)
        assert lines_of(dumped) == lines_of(expected)
        step = Step("load", lambda _m: (io.StringIO(dumped.getvalue()), into), {})
        with self.audited(step, who) as memory:
            self.compare(step.on(self.model, self.model), step.on(memory, memory))

    @precondition(lambda self: self.suite.PERSISTENT)
    @rule()
    def reopen(self) -> None:
        for one in self.handles:
            one.close()
        self.memory = self.suite.open_backend(self.location)
        self.handles = [self.memory]
        self.views.clear()

    @precondition(lambda self: self.suite.SHARED)
    @rule(number=st.integers(0, 2))
    def use_another_handle(self, number: int) -> None:
        if number < len(self.handles):
            self.memory = self.handles[number]
        else:
            self.memory = self.suite.open_backend(self.location)
            self.handles.append(self.memory)

    # Steps that need a log

    @precondition(lambda self: self.suite.LOG)
    @rule(steps=batch_steps, who=audits, fails=st.sampled_from([False, False, False, True]))
    def batch(self, steps: list[Step], who: dict[str, str | None], fails: bool) -> None:
        before = self.model.state.copy()
        # A repeated id is refused at its operation, so before what is checked at the end.
        expected: object = next(filter(None, map(self.refused_at_once, steps)), None)
        for step in steps if expected is None else []:
            expected = step.on(self.model, self.model)
            if isinstance(expected, MemoryBackendError):
                break
        if fails or isinstance(expected, MemoryBackendError):
            self.model.state = before
        with self.audited(None, who):
            actual = self.ran_batch(steps, fails=fails)
        if fails:
            assert isinstance(actual, (ZeroDivisionError, MemoryBackendError))
        else:
            wanted = expected if isinstance(expected, MemoryBackendError) else None
            self.compare(wanted, actual if isinstance(actual, MemoryBackendError) else None)

    @precondition(lambda self: self.suite.LOG)
    @rule(
        stream=st.sampled_from([*STREAMS, ("session", "s1")]),
        values=st.lists(json_values, max_size=3),
        keyed=st.booleans(),
        expect=st.sampled_from(["none", "right", "wrong"]),
        who=audits,
    )
    def append(
        self,
        stream: tuple[str, ...],
        values: list[JsonValue],
        keyed: bool,
        expect: str,
        who: dict[str, str | None],
    ) -> None:
        if stream[0] == "session" and self.model.state.sessions.get("s1") in (None, ModelSession()):
            return
        key = f"e{next(self.numbers)}" if keyed else None
        given = tuple(
            NewEvent("word.said", one, key if not i else None) for i, one in enumerate(values)
        )
        actual = self.revisions.get(stream, 0)
        wanted = {"none": None, "right": actual, "wrong": actual + 1}[expect]
        step = Step("append", lambda _m: (stream, given), {"expected_revision": wanted})
        with self.audited(step, who) as memory:
            found = step.on(memory, memory)
        if expect == "wrong":
            assert isinstance(found, Conflict), found
            assert (found.reason, found.actual) == (Reason.REVISION_MISMATCH, actual)
            return
        assert isinstance(found, Receipt), found
        assert (found.event_count, found.revision) == (len(given), actual + len(given))
        self.said += [
            (found.seq - len(given) + number, stream, one.data, one.event_id)
            for number, one in enumerate(given, 1)
        ]
        if keyed and given:
            self.keyed.append((step, found))

    @precondition(lambda self: self.suite.LOG)
    @rule(step=st.one_of(record_steps, session_steps), who=audits)
    def write_keyed(self, step: Step, who: dict[str, str | None]) -> None:
        keyed = with_key(step, f"e{next(self.numbers)}")
        with self.audited(step, who) as memory:
            found = keyed.on(memory, memory)
            self.compare(step.on(self.model, self.model), found)
        receipt = receipt_of(found)
        if receipt is not None and receipt.event_count:
            self.keyed.append((keyed, found))

    @precondition(lambda self: self.suite.LOG and self.keyed)
    @rule(which=st.integers(0, 1000))
    def repeat_keyed(self, which: int) -> None:
        step, first = self.keyed[which % len(self.keyed)]
        assert step.on(self.memory, self.memory) == first
        assert self.log.head().seq == self.head

    @precondition(lambda self: self.suite.LOG)
    @rule(one=sessions, keep=st.integers(0, 4), who=audits)
    def truncate(self, one: str, keep: int, who: dict[str, str | None]) -> None:
        with self.audited(None, who):
            self.log.truncate_transcript(one, keep=keep)
        if one in self.model.state.sessions:
            changed = session_copy(self.model.state.sessions[one])
            changed.messages = changed.messages[:keep]
            self.model.state.sessions[one] = changed

    @precondition(lambda self: self.suite.LOG)
    @rule(one=sessions, who=audits)
    def delete_session(self, one: str, who: dict[str, str | None]) -> None:
        with self.audited(None, who):
            receipt = self.log.delete_session(one)
        if not emptied(self.model.state, one):
            assert bool(receipt.event_count) == has_content(self.model.state, one)
        self.model.state.sessions.pop(one, None)

    @precondition(lambda self: self.suite.LOG)
    @rule(source=sessions, onto=sessions, when=st.none() | st.integers(0, 1000), who=audits)
    def fork(self, source: str, onto: str, when: int | None, who: dict[str, str | None]) -> None:
        if source == onto:
            return
        seqs = sorted(self.moments)
        at = None if when is None or not self.suite.TIME_TRAVEL else seqs[when % len(seqs)]
        state = self.model.state if at is None else self.moments[at][0]
        with self.audited(None, who):
            step = Step("fork_session", lambda _m: (source, onto), {"at": at})
            found = step.on(self.memory, self.memory)
        if isinstance(found, HistoryCompacted):
            assert at is not None
            self.check_erased(at, found)
        elif emptied(state, source) and not isinstance(found, Receipt):
            assert reason_of(found) is Reason.SESSION_NOT_FOUND
        elif emptied(self.model.state, onto) and not isinstance(found, Receipt):
            assert reason_of(found) in {Reason.TARGET_EXISTS, Reason.SESSION_NOT_FOUND}
        elif source not in state.sessions:
            assert reason_of(found) is Reason.SESSION_NOT_FOUND
        elif has_content(self.model.state, onto):
            assert reason_of(found) is Reason.TARGET_EXISTS
        else:
            assert isinstance(found, Receipt), found
            copied = session_copy(state.sessions[source])
            copied.manifest = renamed(copied.manifest, onto)
            self.model.state.sessions[onto] = copied

    @precondition(lambda self: self.suite.LOG)
    @rule(stream=st.sampled_from(STREAMS), who=audits)
    def delete_stream(self, stream: tuple[str, ...], who: dict[str, str | None]) -> None:
        with self.audited(None, who):
            self.log.delete_stream(stream)

    @precondition(lambda self: self.suite.LOG and self.head)
    @rule(forget=st.none() | st.integers(0, 1000))
    def compact(self, forget: int | None) -> None:
        before = None if forget is None else 1 + forget % (self.head + 1)
        self.in_step = True
        assert self.log.compact(forget_before=before).upto == self.head
        self.compacted = self.head
        self.stubs = {one.seq for one in self.log.events(types=["event_forgotten"])}
        assert before is None or max(self.stubs, default=0) < max(before, self.forgot_before)
        self.forgot_before = max(self.forgot_before, before or 0)
        # The id of a forgotten event is free, so the same write again is another one.
        self.keyed = [
            (step, found) for step, found in self.keyed if not self.stubs & seqs_of(found)
        ]
        self.in_step = False

    @precondition(lambda self: self.suite.LOG and self.suite.TIME_TRAVEL)
    @rule(which=st.integers(0, 1000))
    def keep_a_view(self, which: int) -> None:
        seqs = sorted(self.moments)
        seq = seqs[which % len(seqs)]
        self.views[seq] = self.views.get(seq) or self.log.at(seq)

    @precondition(lambda self: self.suite.LOG and self.suite.TIME_TRAVEL)
    @rule(which=st.integers(0, 1000))
    def look_back(self, which: int) -> None:
        seqs = sorted(self.moments)
        seq = seqs[which % len(seqs)]
        self.look_at(seq, self.log.at(seq))
        for kept, view in self.views.items():
            self.look_at(kept, view)

    def look_at(self, seq: int, view: LogView) -> None:
        try:
            seen = self.observe(view)
        except HistoryCompacted as error:
            self.check_erased(seq, error)
        else:
            assert seen == self.moments[seq][1], f"at {seq}"

    # What must hold after every step

    @invariant()
    def everything_readable_is_equal(self) -> None:
        self.expected = self.observe(self.model)
        for handle in self.handles:
            # One that is not asked for long has many events to catch up with at once.
            if handle is self.memory or self.chance.random() < 0.3:
                assert self.observe(handle) == self.expected

    @invariant()
    def new_events_tell_who_when_and_why(self) -> None:
        if not self.suite.LOG:
            return
        for one in self.log.events(self.head):
            self.check_event(one)
        self.remember()
        self.in_step = False

    def teardown(self) -> None:
        if self.suite.LOG and not self.in_step:  # else a step failed, and that is the message
            self.check_whole_log()
        for one in self.handles:
            one.close()

    # Private

    @contextmanager
    def audited(
        self, step: Step | None, who: dict[str, str | None], *, bound: bool = False
    ) -> Iterator[MemoryBackend]:
        """Run a block under these audit values, and expect its events to carry them."""
        own_run = None if step is None else step.run_id
        self.in_step = True
        self.expected_audit = {
            **who,
            "actor": who["actor"] or default_actor(),
            "run_id": who["run_id"] or own_run,
        }
        if bound and self.suite.LOG:
            yield self.log.bind(**who)
        else:
            with audit(actor=who["actor"], run_id=who["run_id"], reason=who["reason"]):
                yield self.memory

    def ran(self, step: Step, memory: MemoryBackend, mode: str) -> object:
        if mode != "a":
            return step.on(memory, memory)
        twin = Step(f"a{step.name}", step.arguments, step.options)

        async def work() -> object:
            try:
                return await cast("asyncio.Future[object]", twin.on(memory, memory))
            except MemoryBackendError as error:
                return error

        return asyncio.run(work())

    def ran_batch(self, steps: list[Step], *, fails: bool) -> object:
        try:
            with self.log.batch() as batch:
                for step in steps:
                    operation: Callable[..., object] = getattr(batch, step.name)
                    operation(*step.arguments(self.memory), **step.options)
                if fails:
                    raise ZeroDivisionError
        except (MemoryBackendError, ZeroDivisionError) as error:
            return error
        return batch

    def refused_at_once(self, step: Step) -> MemoryBackendError | None:
        """What a put that repeats an id is answered with, whatever the store holds."""
        if step.name != "put":
            return None
        try:
            check_put(cast("PutRequest", step.arguments(self.model)[0]))
        except MemoryBackendError as error:
            return error
        return None

    def compare(self, expected: object, actual: object) -> None:
        """Results equal but for receipts; errors equal in class and reason."""
        if isinstance(expected, MemoryBackendError) or isinstance(actual, MemoryBackendError):
            assert type(actual) is type(expected), (actual, expected)
            assert reason_of(actual) is reason_of(expected), (actual, expected)
        elif isinstance(expected, Receipt):
            assert isinstance(actual, Receipt)
            if self.suite.LOG:
                assert bool(actual.event_count) == bool(expected.event_count)
        else:
            assert without_receipt(actual) == without_receipt(expected)

    def observe(self, memory: MemoryView) -> object:
        """Everything readable; page sizes are random, because no answer may depend on them."""
        seen: list[object] = []
        for space in NAMESPACES:
            rows = scan(memory, space, limit=self.chance.choice([1, 2, 3, 500]))
            seen.append([identity(one) for one in rows])
            seen.append((count(memory, space), get_ids(memory, IDS, space)))
            for key in KEYS:
                seen.append(repr(memory.get_meta(memory.meta_get_request(key, space)).value))
        for one in SESSIONS:
            state = memory.load_bootstrap_state(one)
            seen.append((memory.is_initialized(one), state.manifest, state.feature_list))
            seen.append((state.recent_progress, state.checkpoints))
            seen.append(repr(memory.load_transcript_messages(one)))
            seen.append(repr(memory.load_transcript_messages(one, last=2, after=1)))
        return seen

    def check_erased(self, seq: int, error: HistoryCompacted) -> None:
        """A past may be refused only where a deletion after it was compacted."""
        assert seq == error.seq < error.floor <= self.compacted
        assert self.log.event(error.floor).type in DELETIONS | {"event_forgotten"}

    def check_event(self, one: Event) -> None:
        assert one.seq == self.head + 1
        assert one.revision == self.revisions.get(one.stream, 0) + 1
        found = {"actor": one.actor, "run_id": one.run_id, "reason": one.reason}
        if found["run_id"] is not None and self.expected_audit["run_id"] is None:
            # An entry of a batch brings its own run.
            assert found["run_id"] in {"run-1", "run-2"}
            found["run_id"] = None
        assert found == self.expected_audit
        self.head = one.seq
        self.revisions[one.stream] = one.revision
        self.last_seqs[one.stream] = one.seq

    def remember(self) -> None:
        if not self.suite.LOG:
            return
        state = self.model.state.copy()
        self.moments[self.log.head().seq] = (state, self.expected)

    def check_whole_log(self) -> None:
        found = list(self.log.events())
        assert [one.seq for one in found] == list(range(1, self.head + 1))
        times = [one.recorded_at for one in found]
        assert times == sorted(times)
        assert {one.seq for one in found if one.type == "event_forgotten"} == self.stubs
        said_events = [one for one in found if one.type == "word.said"]
        told = [one for one in self.said if one[0] not in self.stubs]
        assert [(one.seq, one.stream, one.event_id) for one in said_events] == [
            (seq, stream, key) for seq, stream, _, key in told
        ]
        for one, (_, _, data, _) in zip(said_events, told, strict=True):
            assert one.seq <= self.compacted if one.erased else repr(one.data) == repr(data)
        listed = {one.stream: one.last_seq for one in self.log.list_streams((), 1000).streams}
        assert listed == self.last_seqs
        assert list(listed.values()) == sorted(listed.values(), reverse=True)
        sessions_now = {one.session_id for one in self.log.list_sessions().sessions}
        state = self.model.state
        clear = {one for one in SESSIONS if not emptied(state, one)}
        assert sessions_now & clear == {one for one in clear if has_content(state, one)}
        findings = self.log.verify(self.log.head())
        assert [(one.damage, one.first_seq, one.last_seq) for one in findings] == (
            [(False, min(self.stubs), max(self.stubs))] if self.stubs else []
        )


def machine_settings(rounds: int = ROUNDS_DEFAULT) -> settings:
    """Bounded for every run; with `FMEMORY_TEST_ROUNDS` more rounds, and shorter failures."""
    rounds = int(os.environ.get(ROUNDS_VARIABLE, str(rounds)))
    shrinking = [Phase.shrink] if ROUNDS_VARIABLE in os.environ else []
    return settings(
        max_examples=rounds,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        verbosity=Verbosity.normal,
        print_blob=True,
        phases=[Phase.generate, *shrinking],
        suppress_health_check=list(HealthCheck),
    )


def run_machine(suite: BackendSuiteBase, folder: Path) -> None:
    """Run the machine on new stores of a suite; what fails is printed as a small program."""
    numbers = counter()
    run_state_machine_as_test(
        cast(
            "type[RuleBasedStateMachine]",
            lambda: MemoryMachine(suite, new_folder(folder / str(next(numbers)))),
        ),
        settings=machine_settings(suite.MACHINE_ROUNDS),
    )


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path
