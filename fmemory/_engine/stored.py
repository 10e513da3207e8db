"""What is stored of sessions and callers' data: msgpack of array-like structs, plain data only.

Fields are only ever appended, with defaults, so that older payloads decode for ever. Times are Unix
microseconds, which hold every year of a datetime. docs/format.md section "Payloads" lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec

from fmemory._engine.types import EventType
from fmemory._json_values import JsonObject, JsonValue
from fmemory._model import check_time
from fmemory.errors import ContractError, Reason
from fmemory.session_models import (
    FeatureRecord,
    InitCommand,
    InitPlan,
    InitShell,
    InitShellScript,
    InitStep,
    Message,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
    ToolCall,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NS_BOUND = 2**63
_encoder = msgspec.msgpack.Encoder()


class _Stored(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of everything below: an array of its fields."""


class StoredManifest(_Stored, frozen=True):
    """A session manifest."""

    session_id: str
    schema_version: int
    harness_version: str
    active_branch: str
    current_objective: str
    last_known_good_commit: str | None
    init_plan: list[tuple[str, str, list[str]]] | None
    metadata: JsonObject


class StoredFeature(_Stored, frozen=True):
    """One feature of the list."""

    id: str
    category: str
    description: str
    steps: list[str]
    passes: bool


class StoredProgress(_Stored, frozen=True):
    """One progress entry."""

    run_id: str
    summary: str
    created_at_us: int


class StoredCheckpoint(_Stored, frozen=True):
    """One run checkpoint."""

    run_id: str
    started_at_us: int
    completed_at_us: int | None
    status: str
    note: str | None


class StoredMessage(_Stored, frozen=True):
    """One message of a transcript."""

    role: str
    content: str
    blocks: list[JsonValue]
    name: str | None
    tool_calls: list[tuple[str, str, JsonObject | str]]
    tool_call_id: str | None
    is_error: bool
    id: str | None
    created_at_us: int | None
    metadata: JsonObject


class StoredSession(_Stored, frozen=True):
    """Everything of a session but its transcript: how one begins, fresh or forked."""

    manifest: StoredManifest | None
    features: list[StoredFeature]
    progress: list[StoredProgress]
    checkpoints: list[StoredCheckpoint]
    origin: str | None = None
    origin_seq: int | None = None


manifest_decoder = msgspec.msgpack.Decoder(StoredManifest)
features_decoder = msgspec.msgpack.Decoder(list[StoredFeature])
progress_decoder = msgspec.msgpack.Decoder(StoredProgress)
checkpoint_decoder = msgspec.msgpack.Decoder(StoredCheckpoint)
messages_decoder = msgspec.msgpack.Decoder(list[StoredMessage])
session_decoder = msgspec.msgpack.Decoder(StoredSession)
value_decoder = msgspec.msgpack.Decoder()


Part: TypeAlias = tuple[bool, bytes]
"""Whether a payload is a whole `StoredSession`, and its bytes; an erased payload is empty."""


def manifest_of(events: Sequence[Part]) -> StoredManifest | None:
    """The manifest that the last of these events holds; None without one."""
    for whole, data in reversed(events):
        if data:
            return _session(data).manifest if whole else manifest_decoder.decode(data)
    return None


def features_of(events: Sequence[Part]) -> list[StoredFeature]:
    """The feature list that the last of these events holds; empty without one."""
    for whole, data in reversed(events):
        if data:
            return _session(data).features if whole else features_decoder.decode(data)
    return []


def progress_of(events: Sequence[Part]) -> list[StoredProgress]:
    """All progress entries of these events, in order."""
    entries: list[StoredProgress] = []
    for whole, data in events:
        if data:
            entries += _session(data).progress if whole else [progress_decoder.decode(data)]
    return entries


def checkpoints_of(events: Sequence[Part]) -> list[StoredCheckpoint]:
    """All checkpoints of these events, in order."""
    checkpoints: list[StoredCheckpoint] = []
    for whole, data in events:
        if data:
            checkpoints += (
                _session(data).checkpoints if whole else [checkpoint_decoder.decode(data)]
            )
    return checkpoints


def messages_of(data: bytes) -> list[StoredMessage]:
    """The messages of one payload; none of an erased one."""
    return messages_decoder.decode(data) if data else []


def _session(data: bytes) -> StoredSession:
    return session_decoder.decode(data)


def same_but_times(type_: str, one: bytes, other: bytes) -> bool:
    """Whether two payloads of one type say the same, times aside.

    A retry that builds its entry anew has another time in it, and is the same write all the same.
    """
    if one == other or not one or not other:
        return one == other
    if type_ == EventType.PROGRESS_APPENDED:
        first, second = progress_decoder.decode(one), progress_decoder.decode(other)
        return (first.run_id, first.summary) == (second.run_id, second.summary)
    if type_ == EventType.CHECKPOINT_RECORDED:
        before, after = checkpoint_decoder.decode(one), checkpoint_decoder.decode(other)
        return (before.run_id, before.status, before.note) == (
            after.run_id,
            after.status,
            after.note,
        )
    return False


def encode(value: object) -> bytes:
    """Bytes of a stored struct, a list of them, or a checked JSON value or bytes."""
    return _encoder.encode(value)


def to_us(time: datetime) -> int:
    """Unix microseconds of an aware time; exact, unlike `timestamp()`.

    >>> to_us(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC))
    1000001
    """
    return (time - _EPOCH) // _MICROSECOND


def from_us(microseconds: int) -> datetime:
    """Aware UTC time of Unix microseconds.

    >>> from_us(1_000_001).isoformat()
    '1970-01-01T00:00:01.000001+00:00'
    """
    return _EPOCH + timedelta(microseconds=microseconds)


def to_ns(time: datetime, where: str, *, clamp: bool = False) -> int:
    """Unix nanoseconds of an aware time, as envelopes carry it.

    Args:
        clamp: Take the nearest time that 64 bits hold, for comparisons.

    Raises:
        ContractError: Not a datetime, a naive one, or one that 64 bits do not hold.
    """
    try:
        time = check_time(time)
    except ContractError as error:
        raise error.within(where) from None
    nanoseconds = to_us(time) * 1000
    if clamp:
        return max(-_NS_BOUND, min(_NS_BOUND - 1, nanoseconds))
    if not -_NS_BOUND <= nanoseconds < _NS_BOUND:
        raise ContractError(
            f"expected a time of the years 1678 to 2262, got {time.isoformat()}",
            where=where,
            reason=Reason.OUT_OF_RANGE,
        )
    return nanoseconds


def from_ns(nanoseconds: int) -> datetime:
    """Aware UTC time of Unix nanoseconds, to the microsecond."""
    return from_us(nanoseconds // 1000)


def store_manifest(manifest: SessionManifest) -> StoredManifest:
    """The stored form of a manifest."""
    plan = manifest.init_plan
    steps = None if plan is None else [_store_step(step) for step in plan.steps]
    return StoredManifest(
        manifest.session_id,
        manifest.schema_version,
        manifest.harness_version,
        manifest.active_branch,
        manifest.current_objective,
        manifest.last_known_good_commit,
        steps,
        dict(manifest.metadata),
    )


def load_manifest(stored: StoredManifest) -> SessionManifest:
    """The manifest of a stored form."""
    steps = stored.init_plan
    return SessionManifest(
        session_id=stored.session_id,
        active_branch=stored.active_branch,
        current_objective=stored.current_objective,
        schema_version=stored.schema_version,
        harness_version=stored.harness_version,
        last_known_good_commit=stored.last_known_good_commit,
        init_plan=None if steps is None else InitPlan(tuple(_load_step(*step) for step in steps)),
        metadata=stored.metadata,
    )


def _store_step(step: InitStep) -> tuple[str, str, list[str]]:
    if isinstance(step, InitCommand):
        return ("command", step.program, list(step.args))
    assert isinstance(step, InitShellScript)
    return ("shell", step.shell.value, [step.script])


def _load_step(kind: str, first: str, rest: list[str]) -> InitStep:
    if kind == "command":
        return InitCommand(first, tuple(rest))
    return InitShellScript(InitShell(first), rest[0])


def store_features(features: Sequence[FeatureRecord]) -> list[StoredFeature]:
    """The stored form of a feature list."""
    return [
        StoredFeature(one.id, one.category, one.description, list(one.steps), one.passes)
        for one in features
    ]


def load_features(
    stored: Sequence[StoredFeature], passes: dict[str, bool]
) -> tuple[FeatureRecord, ...]:
    """The feature list of a stored form, with what was flipped since."""
    return tuple(
        FeatureRecord(
            id=one.id,
            category=one.category,
            description=one.description,
            steps=tuple(one.steps),
            passes=passes.get(one.id, one.passes),
        )
        for one in stored
    )


def store_progress(entry: ProgressEntry) -> StoredProgress:
    """The stored form of a progress entry."""
    return StoredProgress(entry.run_id, entry.summary, to_us(entry.created_at))


def load_progress(stored: StoredProgress) -> ProgressEntry:
    """The progress entry of a stored form."""
    return ProgressEntry(
        run_id=stored.run_id, summary=stored.summary, created_at=from_us(stored.created_at_us)
    )


def store_checkpoint(checkpoint: RunCheckpoint) -> StoredCheckpoint:
    """The stored form of a checkpoint."""
    completed = checkpoint.completed_at
    return StoredCheckpoint(
        checkpoint.run_id,
        to_us(checkpoint.started_at),
        None if completed is None else to_us(completed),
        checkpoint.status.value,
        checkpoint.note,
    )


def load_checkpoint(stored: StoredCheckpoint) -> RunCheckpoint:
    """The checkpoint of a stored form."""
    completed = stored.completed_at_us
    return RunCheckpoint(
        run_id=stored.run_id,
        started_at=from_us(stored.started_at_us),
        completed_at=None if completed is None else from_us(completed),
        status=RunStatus(stored.status),
        note=stored.note,
    )


def store_message(message: Message) -> StoredMessage:
    """The stored form of a message."""
    created = message.created_at
    return StoredMessage(
        message.role.value,
        message.content,
        list(message.blocks),
        message.name,
        [(call.id, call.name, call.arguments) for call in message.tool_calls],
        message.tool_call_id,
        message.is_error,
        message.id,
        None if created is None else to_us(created),
        dict(message.metadata),
    )


def load_message(stored: StoredMessage) -> Message:
    """The message of a stored form."""
    created = stored.created_at_us
    return Message(
        role=Role(stored.role),
        content=stored.content,
        blocks=tuple(stored.blocks),
        name=stored.name,
        tool_calls=tuple(ToolCall(*call) for call in stored.tool_calls),
        tool_call_id=stored.tool_call_id,
        is_error=stored.is_error,
        id=stored.id,
        created_at=None if created is None else from_us(created),
        metadata=stored.metadata,
    )
