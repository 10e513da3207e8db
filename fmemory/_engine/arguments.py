"""Checks of arguments that are no models of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fmemory._audit import Audit
from fmemory._engine.record_operations import encode_value
from fmemory._engine.session_operations import WriteOptions
from fmemory._engine.stored import to_ns
from fmemory._engine.types import OWN_STREAMS, SESSION
from fmemory._engine.work import Emission
from fmemory._json_values import check_text, type_name
from fmemory._model import Model, check_int
from fmemory._receipt import EventId, Revision
from fmemory.errors import ContractError, Reason
from fmemory.log_models import APPEND_EVENTS_MAX, NewEvent, check_stream
from fmemory.session_models import ProgressEntry, RunCheckpoint
from fmemory_segments import Blob, Stream

T = TypeVar("T")


class _Options(Model, frozen=True):
    event_id: EventId | None = None
    expected_revision: Revision | None = None


def write_options(
    audit: Audit, event_id: str | None, expected_revision: int | None
) -> WriteOptions:
    """Checked options of a write.

    Raises:
        ContractError: An id or revision breaks a rule.
    """
    if event_id is not None or expected_revision is not None:
        _Options(event_id=event_id, expected_revision=expected_revision)
    return WriteOptions(audit, event_id, expected_revision)


def check_progress(value: object, where: str) -> ProgressEntry:
    """The value itself, when it is a progress entry."""
    return _instance(value, ProgressEntry, where)


def check_checkpoint(value: object, where: str) -> RunCheckpoint:
    """The value itself, when it is a checkpoint."""
    return _instance(value, RunCheckpoint, where)


def check_feature_id(value: object) -> str:
    """The value itself, when it is a feature's id."""
    return check_text(value, "feature_id")


def check_passes(value: object) -> bool:
    """The value itself, when it is a bool."""
    return _instance(value, bool, "passes")


def check_flag(value: object, where: str) -> bool:
    """The value itself, when it is a bool."""
    return _instance(value, bool, where)


def check_keep(value: object) -> int:
    """The value itself, when it is a number of messages."""
    try:
        keep = check_int(value)
    except ContractError as error:
        raise error.within("keep") from None
    if not 0 <= keep < 2**32:
        raise ContractError(
            f"expected 0 or more messages, got {keep}", where="keep", reason=Reason.OUT_OF_RANGE
        )
    return keep


def check_own_stream(stream: Sequence[str], *, sessions: bool) -> Stream:
    """The labels, when callers may write there.

    Args:
        sessions: Whether the stream of a session is among them.

    Raises:
        ContractError: They may not.
    """
    labels = check_stream(stream, "stream")
    if labels[0] not in OWN_STREAMS:
        return labels
    if labels[0] == SESSION and sessions and len(labels) == 2 and labels[1]:
        return labels
    hint = {
        "records": "use put, delete and clear",
        "meta": "use set_meta and clear",
        "session": "a session's stream is ('session', id)" if sessions else "use delete_session",
    }[labels[0]]
    raise ContractError(
        f"expected a stream of your own, got {labels!r}, which fmemory keeps itself; {hint}",
        where="stream",
        reason=Reason.UNSUPPORTED,
    )


def emissions_of(events: Sequence[NewEvent]) -> list[Emission]:
    """Callers' events as emissions.

    Raises:
        ContractError: Not a sequence of NewEvent, too many, or one too large; an id given twice.
    """
    if not isinstance(events, Sequence) or isinstance(events, (str, bytes)):
        raise ContractError(
            f"expected a sequence of NewEvent, got {type_name(events)}; put one into a list",
            where="events",
            reason=Reason.WRONG_TYPE,
        )
    if len(events) > APPEND_EVENTS_MAX:
        raise ContractError(
            f"expected at most {APPEND_EVENTS_MAX} events, got {len(events)}",
            where="events",
            reason=Reason.TOO_LARGE,
        )
    seen: set[str] = set()
    emissions: list[Emission] = []
    for number, event in enumerate(events):
        where = f"events[{number}]"
        _instance(event, NewEvent, where)
        if event.event_id is not None and event.event_id in seen:
            raise ContractError(
                f"expected each event id once, got {event.event_id!r} again",
                where=f"{where}.event_id",
                reason=Reason.BAD_VALUE,
            )
        seen.update([event.event_id] if event.event_id is not None else [])
        time = event.occurred_at
        emissions.append(
            Emission(
                event.type,
                Blob(encode_value(event.data, f"{where}.data")),
                occurred_at_ns=None if time is None else to_ns(time, f"{where}.occurred_at"),
                event_id=event.event_id,
            )
        )
    return emissions


def _instance(value: object, kind: type[T], where: str) -> T:
    if isinstance(value, kind):
        return value
    raise ContractError(
        f"expected {kind.__name__}, got {type_name(value)}", where=where, reason=Reason.WRONG_TYPE
    )
