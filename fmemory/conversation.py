"""A conversation store for harnesses that know two operations: load messages, append messages."""

from __future__ import annotations

from collections.abc import Sequence

from fmemory.session_models import Message
from fmemory.sessions import SessionWrites

__all__ = ["MemoryConversationStore"]


class MemoryConversationStore:
    """The transcripts of a backend's sessions as conversations.

    The store holds nothing of its own: closing the backend is all there is to do.

    Args:
        backend: Any backend; shared with everything else that uses it.
    """

    def __init__(self, backend: SessionWrites) -> None:
        self._backend = backend

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._backend!r})"

    def load_messages(self, session_id: str) -> tuple[Message, ...]:
        """All messages of a conversation, oldest first; () for an unknown one.

        Raises:
            ContractError: Not a non-empty str.
            StorageError: The store failed. Nothing was changed.
        """
        return self._backend.load_transcript_messages(session_id)

    async def aload_messages(self, session_id: str) -> tuple[Message, ...]:
        """As `load_messages`, without blocking the event loop."""
        return await self._backend.aload_transcript_messages(session_id)

    def append_messages(self, session_id: str, messages: Sequence[Message]) -> None:
        """Add messages to the end of a conversation, all or none; it need not exist before.

        Raises:
            ContractError: An argument breaks a rule. Nothing was written.
            StorageError: The store failed; the class says what holds.

        Durability: as the store's policy has it; on disk when this returns, by default.
        """
        self._backend.append_transcript_messages(session_id, messages)

    async def aappend_messages(self, session_id: str, messages: Sequence[Message]) -> None:
        """As `append_messages`; if cancelled, all messages are there or none."""
        await self._backend.aappend_transcript_messages(session_id, messages)
