"""Transcripts, session handles, runs, and the conversation store."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import cast

import pytest

from fmemory._json_values import JsonObject
from fmemory.backend import MemoryBackend
from fmemory.conversation import MemoryConversationStore
from fmemory.errors import ContractError, Reason
from fmemory.session_handle import Run
from fmemory.session_models import Message, Role, RunStatus, ToolCall
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._capabilities import Capability, needs
from fmemory.testing._samples import moment
from fmemory.testing._sessions_samples import (
    FULL_MANIFEST,
    MESSAGES,
    checkpoint,
    entry,
    features,
    said,
)
from fmemory.testing._threads import in_threads

BAD_WINDOWS: tuple[tuple[dict[str, object], Reason], ...] = (
    ({"last": 0}, Reason.OUT_OF_RANGE),
    ({"last": -1}, Reason.OUT_OF_RANGE),
    ({"last": True}, Reason.WRONG_TYPE),
    ({"last": 2**70}, Reason.OUT_OF_RANGE),
    ({"after": -1}, Reason.OUT_OF_RANGE),
    ({"after": "1"}, Reason.WRONG_TYPE),
    ({"limit": 0}, Reason.OUT_OF_RANGE),
    ({"limit": 1.5}, Reason.WRONG_TYPE),
    ({"last": 1, "limit": 1}, Reason.UNSUPPORTED),
)


class TranscriptPart(BackendSuiteBase):
    """What transcripts promise."""

    def test_unknown_session_has_no_messages(self, memory: MemoryBackend) -> None:
        assert memory.load_transcript_messages("s1") == ()

    @pytest.mark.parametrize("number", range(len(MESSAGES)))
    def test_message_comes_back_whole(self, memory: MemoryBackend, number: int) -> None:
        memory.append_transcript_messages("s1", (MESSAGES[number],))
        (found,) = memory.load_transcript_messages("s1")
        assert repr(found) == repr(MESSAGES[number])

    def test_messages_come_back_in_write_order(self, memory: MemoryBackend) -> None:
        memory.append_transcript_messages("s1", MESSAGES[:2])
        memory.append_transcript_messages("s1", MESSAGES[2:3])
        memory.append_transcript_messages("s1", MESSAGES[3:])
        assert memory.load_transcript_messages("s1") == MESSAGES

    def test_messages_of_one_moment_keep_write_order(self, memory: MemoryBackend) -> None:
        many = [Message(Role.USER, str(i), created_at=moment(0)) for i in range(100)]
        for one in many:
            memory.append_transcript_messages("s1", (one,))
        assert memory.load_transcript_messages("s1") == tuple(many)

    def test_messages_whose_times_go_back_keep_write_order(self, memory: MemoryBackend) -> None:
        many = tuple(Message(Role.USER, str(i), created_at=moment(-i)) for i in range(20))
        memory.append_transcript_messages("s1", many)
        assert memory.load_transcript_messages("s1") == many

    def test_two_thousand_messages_at_once_are_all_there(self, memory: MemoryBackend) -> None:
        many = said(*(f"message {i}" for i in range(2000)))
        memory.append_transcript_messages("s1", many)
        assert memory.load_transcript_messages("s1") == many

    def test_list_of_messages_is_accepted(self, memory: MemoryBackend) -> None:
        memory.append_transcript_messages("s1", list(MESSAGES))
        assert memory.load_transcript_messages("s1") == MESSAGES

    def test_equal_messages_are_both_kept(self, memory: MemoryBackend) -> None:
        memory.append_transcript_messages("s1", said("again"))
        memory.append_transcript_messages("s1", said("again"))
        assert memory.load_transcript_messages("s1") == said("again", "again")

    def test_appending_no_messages_writes_nothing(self, memory: MemoryBackend) -> None:
        memory.append_transcript_messages("s1", said("x"))
        with self.nothing_written(memory):
            memory.append_transcript_messages("s1", ())

    def test_bad_message_among_good_ones_writes_none(self, memory: MemoryBackend) -> None:
        bad = cast("Message", "not a message")
        with self.refused(memory, ContractError, Reason.WRONG_TYPE):
            memory.append_transcript_messages("s1", (*MESSAGES, bad))

    def test_last_gives_the_newest_behind_after(self, memory: MemoryBackend) -> None:
        texts = [str(i) for i in range(10)]
        for start in range(0, 10, 3):
            memory.append_transcript_messages("s1", said(*texts[start : start + 3]))
        for last, after in product([None, 1, 3, 10, 99], [0, 1, 8, 10, 99]):
            rest = texts[after:]
            expected = rest if last is None else rest[max(0, len(rest) - last) :]
            found = memory.load_transcript_messages("s1", last=last, after=after)
            assert [one.content for one in found] == expected, (last, after)

    def test_limit_gives_the_oldest_behind_after(self, memory: MemoryBackend) -> None:
        texts = [str(i) for i in range(10)]
        for start in range(0, 10, 4):
            memory.append_transcript_messages("s1", said(*texts[start : start + 4]))
        for limit, after in product([1, 3, 10, 99], [0, 1, 3, 9, 10, 99]):
            found = memory.load_transcript_messages("s1", after=after, limit=limit)
            assert [one.content for one in found] == texts[after : after + limit], (limit, after)

    @pytest.mark.parametrize("session_id", ["s1", "unknown"])
    def test_bad_window_is_refused(self, memory: MemoryBackend, session_id: str) -> None:
        memory.append_transcript_messages("s1", said("x"))
        with self.nothing_written(memory):
            for options, reason in BAD_WINDOWS:
                with pytest.raises(ContractError) as caught:
                    self.untyped(memory, "load_transcript_messages", session_id, **options)
                assert caught.value.reason is reason, options

    def test_received_message_can_be_changed(self, memory: MemoryBackend) -> None:
        memory.append_transcript_messages("s1", MESSAGES)
        received = memory.load_transcript_messages("s1")
        received[1].metadata["k"] = "changed"
        cast("JsonObject", received[2].blocks[2]).clear()
        cast("JsonObject", received[2].tool_calls[0].arguments).clear()
        assert repr(memory.load_transcript_messages("s1")) == repr(MESSAGES)

    def test_given_message_can_be_changed_afterwards(self, memory: MemoryBackend) -> None:
        given = Message(Role.ASSISTANT, tool_calls=(ToolCall("t", "ls", {"path": "/"}),))
        memory.append_transcript_messages("s1", (given,))
        cast("JsonObject", given.tool_calls[0].arguments).clear()
        (found,) = memory.load_transcript_messages("s1")
        assert found.tool_calls[0].arguments == {"path": "/"}

    def test_pairs_appended_by_threads_stay_together(self, memory: MemoryBackend) -> None:
        def work(number: int) -> None:
            for turn in range(6):
                name = f"{number}-{turn}"
                memory.append_transcript_messages("s1", said(f"call {name}", f"output {name}"))

        in_threads(work)
        texts = [one.content for one in memory.load_transcript_messages("s1")]
        assert len(texts) == 96
        pairs = zip(texts[::2], texts[1::2], strict=True)
        assert all(call.split()[1] == output.split()[1] for call, output in pairs)

    @needs(Capability.PERSISTENT)
    def test_transcript_is_the_same_after_a_reopen(self, stores: Stores) -> None:
        memory = stores.open()
        memory.append_transcript_messages("s1", MESSAGES[:3])
        memory.append_transcript_messages("s1", MESSAGES[3:])
        assert repr(stores.reopen(memory).load_transcript_messages("s1")) == repr(MESSAGES)


class SessionHandlePart(BackendSuiteBase):
    """`memory.session(id)`: the same operations without their first argument; runs."""

    def test_handle_of_an_unknown_session_writes_nothing(self, memory: MemoryBackend) -> None:
        with self.nothing_written(memory):
            memory.session("s1")

    @pytest.mark.parametrize("session_id", ["", None, 1])
    def test_handle_of_a_bad_id_is_refused(self, memory: MemoryBackend, session_id: object) -> None:
        with pytest.raises(ContractError):
            self.untyped(memory, "session", session_id)

    def test_writes_by_handle_are_those_of_the_backend(self, stores: Stores) -> None:
        direct, handled = stores.open("direct"), stores.open("handled")
        session = handled.session("s1")
        assert session.initialize_session_if_missing(FULL_MANIFEST, features("f1"), entry(1))
        session.update_feature_pass("f1", True)
        session.append_progress_entry(entry(2))
        session.record_run_checkpoint(checkpoint(1))
        session.append_transcript_messages(MESSAGES)
        direct.initialize_session_if_missing("s1", FULL_MANIFEST, features("f1"), entry(1))
        direct.update_feature_pass("s1", "f1", True)
        direct.append_progress_entry("s1", entry(2))
        direct.record_run_checkpoint("s1", checkpoint(1))
        direct.append_transcript_messages("s1", MESSAGES)
        assert session.load_bootstrap_state() == direct.load_bootstrap_state("s1")
        assert session.load_transcript_messages() == direct.load_transcript_messages("s1")

    def test_run_records_its_start_and_its_success(self, memory: MemoryBackend) -> None:
        with memory.session("s1").run("run-1"):
            inside = memory.load_bootstrap_state("s1").checkpoints
        after = memory.load_bootstrap_state("s1").checkpoints
        assert [one.status for one in inside] == [RunStatus.IN_PROGRESS]
        assert [one.status for one in after] == [RunStatus.IN_PROGRESS, RunStatus.SUCCEEDED]
        assert {one.run_id for one in after} == {"run-1"}

    def test_run_that_raises_is_recorded_as_failed(self, memory: MemoryBackend) -> None:
        with pytest.raises(ZeroDivisionError), memory.session("s1").run("run-1"):
            raise ZeroDivisionError("by nought")
        last = memory.load_bootstrap_state("s1").checkpoints[-1]
        assert (last.status, "by nought" in str(last.note)) == (RunStatus.FAILED, True)

    def test_run_ends_with_its_note(self, memory: MemoryBackend) -> None:
        with memory.session("s1").run("run-1") as run:
            run.note = "all tests pass"
        assert memory.load_bootstrap_state("s1").checkpoints[-1].note == "all tests pass"

    def test_run_ends_no_earlier_than_it_started(self, memory: MemoryBackend) -> None:
        with memory.session("s1").run("run-1"):
            pass
        last = memory.load_bootstrap_state("s1").checkpoints[-1]
        assert last.completed_at is not None
        assert last.completed_at >= last.started_at

    def test_async_run_records_its_start_and_its_success(self, memory: MemoryBackend) -> None:
        async def work() -> None:
            async with memory.session("s1").run("run-1"):
                await memory.aappend_transcript_messages("s1", said("hello"))

        asyncio.run(work())
        found = [one.status for one in memory.load_bootstrap_state("s1").checkpoints]
        assert found == [RunStatus.IN_PROGRESS, RunStatus.SUCCEEDED]

    def test_async_run_that_raises_is_recorded_as_failed(self, memory: MemoryBackend) -> None:
        async def work() -> None:
            async with memory.session("s1").run("run-1"):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            asyncio.run(work())
        assert memory.load_bootstrap_state("s1").checkpoints[-1].status is RunStatus.FAILED

    @pytest.mark.parametrize("run_id", ["", None, 1, "r\ud800"])
    def test_run_of_a_bad_id_writes_nothing(self, memory: MemoryBackend, run_id: object) -> None:
        session = memory.session("s1")
        with (
            self.nothing_written(memory),
            pytest.raises(ContractError),
            cast("Run", self.untyped(session, "run", run_id)),
        ):
            pass


class ConversationStorePart(BackendSuiteBase):
    """`MemoryConversationStore` over the backend."""

    def test_conversation_store_appends_and_loads(self, memory: MemoryBackend) -> None:
        store = MemoryConversationStore(memory)
        store.append_messages("s1", MESSAGES[:2])
        store.append_messages("s1", MESSAGES[2:])
        assert tuple(store.load_messages("s1")) == MESSAGES

    def test_conversation_store_writes_the_sessions_transcript(self, memory: MemoryBackend) -> None:
        MemoryConversationStore(memory).append_messages("s1", MESSAGES)
        assert memory.load_transcript_messages("s1") == MESSAGES

    def test_conversation_of_an_unknown_session_is_empty(self, memory: MemoryBackend) -> None:
        assert tuple(MemoryConversationStore(memory).load_messages("s1")) == ()

    def test_conversation_store_works_asynchronously(self, memory: MemoryBackend) -> None:
        store = MemoryConversationStore(memory)

        async def work() -> tuple[Message, ...]:
            await store.aappend_messages("s1", MESSAGES)
            return tuple(await store.aload_messages("s1"))

        assert asyncio.run(work()) == MESSAGES
