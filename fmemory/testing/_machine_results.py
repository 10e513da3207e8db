"""What the state machine reads from results, and from the sessions of its model."""

from __future__ import annotations

import io
import json

import msgspec

from fmemory.errors import MemoryBackendError, Reason
from fmemory.log_models import Receipt
from fmemory.session_models import SessionManifest
from fmemory.testing._model_backend import ModelSession, ModelState


def receipt_of(result: object) -> Receipt | None:
    if isinstance(result, Receipt):
        return result
    found: object = getattr(result, "receipt", None)
    return found if isinstance(found, Receipt) else None


def seqs_of(result: object) -> set[int]:
    receipt = receipt_of(result)
    if receipt is None:
        return set()
    return set(range(receipt.seq - receipt.event_count + 1, receipt.seq + 1))


def without_receipt(result: object) -> object:
    if isinstance(result, msgspec.Struct) and hasattr(result, "receipt"):
        return msgspec.structs.replace(result, receipt=None)
    return result


def reason_of(error: object) -> Reason | None:
    return error.reason if isinstance(error, MemoryBackendError) else None


def has_content(state: ModelState, session_id: str) -> bool:
    session = state.sessions.get(session_id, ModelSession())
    return bool(
        session.manifest
        or session.features
        or session.progress
        or session.checkpoints
        or session.messages
    )


def emptied(state: ModelState, session_id: str) -> bool:
    """Whether a session was written and has nothing left: the contract leaves open if it exists."""
    return session_id in state.sessions and not has_content(state, session_id)


def session_copy(session: ModelSession) -> ModelSession:
    return ModelSession(
        session.manifest,
        session.features,
        session.progress,
        session.checkpoints,
        session.messages,
        session.revision,
    )


def renamed(found: SessionManifest | None, session_id: str) -> SessionManifest | None:
    return None if found is None else msgspec.structs.replace(found, session_id=session_id)


def lines_of(stream: io.StringIO) -> list[object]:
    """The lines of a memory file as data, without the time it was made."""
    lines = [json.loads(one) for one in stream.getvalue().splitlines()]
    lines[0].pop("created_at")
    return lines
