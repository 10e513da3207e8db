"""The conversation store, on the engine and on a backend with the abstract contract only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import fmemory
from fmemory.backend import MemoryBackend
from fmemory.conversation import MemoryConversationStore
from fmemory.errors import ContractError
from fmemory.session_models import Message
from fmemory.testing._model_backend import ModelBackend


@pytest.fixture(params=["contract", "engine"])
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryBackend]:
    with ModelBackend() if request.param == "contract" else fmemory.open(":memory:") as backend:
        yield backend


def test_an_unknown_conversation_is_empty(memory: MemoryBackend) -> None:
    assert MemoryConversationStore(memory).load_messages("s") == ()


def test_messages_come_back_in_order(memory: MemoryBackend) -> None:
    store = MemoryConversationStore(memory)
    store.append_messages("s", [Message("user", "a"), Message("assistant", "b")])
    store.append_messages("other", [Message("user", "x")])
    store.append_messages("s", [Message("user", "c")])
    assert [message.content for message in store.load_messages("s")] == ["a", "b", "c"]


def test_a_conversation_is_the_transcript_of_its_session(memory: MemoryBackend) -> None:
    MemoryConversationStore(memory).append_messages("s", [Message("user", "a")])
    assert memory.load_transcript_messages("s") == (Message("user", "a"),)
    assert not memory.is_initialized("s")


def test_both_operations_have_async_forms(memory: MemoryBackend) -> None:
    async def talk() -> list[str]:
        store = MemoryConversationStore(memory)
        await store.aappend_messages("s", [Message("user", "a")])
        return [message.content for message in await store.aload_messages("s")]

    assert asyncio.run(talk()) == ["a"]


def test_what_is_no_message_is_refused_and_nothing_is_written(memory: MemoryBackend) -> None:
    store = MemoryConversationStore(memory)
    with pytest.raises(ContractError) as caught:
        store.append_messages("s", [Message("user", "a"), "b"])  # type: ignore[list-item]
    assert caught.value.where == "messages[1]"
    assert store.load_messages("s") == ()
