"""Stored parts as models of the library: every value is checked, and what is wrong has its place.

Times are kept by the crate as seconds and nanoseconds, and by the models in microseconds: the
nanoseconds below a microsecond are given beside the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar, cast

from fmemory import (
    ContractError,
    FeatureRecord,
    InitPlan,
    InitShell,
    InitStep,
    Message,
    ProgressEntry,
    Role,
    RunCheckpoint,
    RunStatus,
    SessionManifest,
)
from fmemory_tools.importers._fiddlesticks_stored import Part, StoredSession, unknown_keys
from fmemory_tools.importers._lines import (
    Malformed,
    as_array,
    as_object,
    as_text,
    kind_of,
    parse_json,
)
from fmemory_tools.importers.plan import BadLine

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject, JsonValue

T = TypeVar("T")

SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999, which is the last that a datetime holds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS = 1_000_000_000
# Columns of the tables that say where a row stands, and nothing about the session.
_OF_ROWS = ("id", "session_id", "position")


@dataclass(frozen=True, slots=True)
class Timed:
    """A progress entry or checkpoint, and what its times have below a microsecond, in order.

    Attributes:
        nanos: 0 to 999 for each of its times; None for a time that it does not have.
    """

    what: ProgressEntry | RunCheckpoint
    nanos: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class SessionModels:
    """A stored session as models; what was malformed is missing."""

    manifest: SessionManifest | None
    features: tuple[FeatureRecord, ...]
    progress: tuple[Timed, ...]
    checkpoints: tuple[Timed, ...]
    transcript: tuple[Message, ...]


def models_of(session: StoredSession, bad: list[BadLine]) -> SessionModels:
    """The models of a stored session; what cannot be read goes to `bad`.

    An init plan with a step that cannot be read is left out whole: a plan with a hole in it would
    prepare something else.
    """
    return SessionModels(
        manifest=_manifest(session, bad),
        features=tuple(_features(session.features, bad)),
        progress=tuple(_each(session.progress, _progress_entry, _PROGRESS, bad)),
        checkpoints=tuple(_each(session.checkpoints, _checkpoint, _CHECKPOINT, bad)),
        transcript=tuple(_each(session.transcript, _message, ("role", "content"), bad)),
    )


def time_of(value: JsonObject, name: str) -> tuple[datetime, int]:
    """The time under `<name>_secs` and `<name>_nanos`, and its nanoseconds below a microsecond.

    Raises:
        Malformed: One is missing or no whole number, or out of range.

    >>> time_of({"at_secs": 1, "at_nanos": 2003}, "at")
    (datetime.datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=datetime.timezone.utc), 3)
    """
    seconds = _whole(value, f"{name}_secs", SECONDS_MAX)
    nanos = _whole(value, f"{name}_nanos", _NANOSECONDS - 1)
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000), nanos % 1000


def _each(
    parts: Sequence[Part],
    read: Callable[[JsonObject], T],
    known: tuple[str, ...],
    bad: list[BadLine],
) -> Iterator[T]:
    """Every part as `read` has it; the places of those that it refuses go to `bad`."""
    for part in parts:
        bad.extend(unknown_keys(part, known + _OF_ROWS))
        try:
            yield read(part.value)
        except (Malformed, ContractError) as problem:
            bad.append(part.bad(problem))


_MANIFEST = (
    "session_id",
    "schema_version",
    "harness_version",
    "active_branch",
    "current_objective",
    "last_known_good_commit",
    "metadata",
)


def _manifest(session: StoredSession, bad: list[BadLine]) -> SessionManifest | None:
    part, steps = session.manifest, session.init_steps
    if part is None:
        return None
    plan = None
    if steps is not None:
        known = ("kind", "program", "args", "args_json", "shell", "script")
        found = tuple(_each(steps, _init_step, known, bad))
        plan = InitPlan(found) if len(found) == len(steps) else None
    bad.extend(unknown_keys(part, _MANIFEST))
    value = part.value
    try:
        return SessionManifest(
            session_id=session.session_id,
            active_branch=_text(value, "active_branch"),
            current_objective=_text(value, "current_objective"),
            schema_version=_whole(value, "schema_version", 2**32 - 1),
            harness_version=_text(value, "harness_version"),
            last_known_good_commit=_text_or_none(value, "last_known_good_commit"),
            init_plan=plan,
            metadata=as_object(value.get("metadata") or {}, "metadata"),
        )
    except (Malformed, ContractError) as problem:
        bad.append(part.bad(problem))
        return None


def _init_step(value: JsonObject) -> InitStep:
    kind = value.get("kind")
    if kind == "command":
        return InitStep.command(_text(value, "program"), _texts(value, "args"))
    if kind == "shell":
        # The model turns the word into the enum, or refuses it.
        shell = cast("InitShell", _text(value, "shell"))
        return InitStep.shell(shell, _text(value, "script"))
    raise Malformed(f"kind: expected 'command' or 'shell', got {kind!r}")


def _features(parts: Sequence[Part], bad: list[BadLine]) -> Iterator[FeatureRecord]:
    seen: set[str] = set()

    def read(value: JsonObject) -> FeatureRecord:
        feature = FeatureRecord(
            id=_text(value, "feature_id" if "feature_id" in value else "id"),
            category=_text(value, "category"),
            description=_text(value, "description"),
            steps=_texts(value, "steps"),
            passes=_passes(value.get("passes")),
        )
        if feature.id in seen:
            raise Malformed(f"expected every feature once, got {feature.id!r} again")
        seen.add(feature.id)
        return feature

    known = ("feature_id", "category", "description", "steps", "steps_json", "passes")
    return _each(parts, read, known, bad)


def _passes(value: JsonValue) -> bool:
    if value not in (0, 1) or isinstance(value, float):
        raise Malformed(f"passes: expected 0 or 1, got {value!r}")
    return bool(value)


_PROGRESS = ("run_id", "summary", "created_at_secs", "created_at_nanos")


def _progress_entry(value: JsonObject) -> Timed:
    created_at, nanos = time_of(value, "created_at")
    entry = ProgressEntry(_text(value, "run_id"), _text(value, "summary"), created_at)
    return Timed(entry, (nanos,))


_CHECKPOINT = (
    "run_id",
    "started_at_secs",
    "started_at_nanos",
    "completed_at_secs",
    "completed_at_nanos",
    "status",
    "note",
)


def _checkpoint(value: JsonObject) -> Timed:
    started_at, nanos = time_of(value, "started_at")
    completed_at = completed_nanos = None
    stated = [value.get(f"completed_at_{unit}") is not None for unit in ("secs", "nanos")]
    if any(stated):
        if not all(stated):
            raise Malformed("completed_at: expected seconds and nanoseconds, or neither")
        completed_at, completed_nanos = time_of(value, "completed_at")
    checkpoint = RunCheckpoint(
        run_id=_text(value, "run_id"),
        started_at=started_at,
        completed_at=completed_at,
        # The model turns the word into the enum, or refuses it.
        status=cast("RunStatus", _text(value, "status")),
        note=_text_or_none(value, "note"),
    )
    return Timed(checkpoint, (nanos, completed_nanos))


def _message(value: JsonObject) -> Message:
    return Message(cast("Role", _text(value, "role")), _text(value, "content"))


def _text(value: JsonObject, name: str) -> str:
    return as_text(value.get(name), name)


def _text_or_none(value: JsonObject, name: str) -> str | None:
    found = value.get(name)
    return None if found is None else as_text(found, name)


def _texts(value: JsonObject, name: str) -> list[str]:
    """The list of strings under a name, or in the JSON text that a column of its name holds."""
    column = f"{name}_json"
    if column not in value:
        return [as_text(one, name) for one in as_array(value.get(name), name)]
    text = _text(value, column)
    try:
        items = parse_json(text.encode("utf-8", "surrogatepass"))
    except Malformed as problem:
        raise Malformed(f"{column}: {problem}") from problem
    return [as_text(one, column) for one in as_array(items, column)]


def _whole(value: JsonObject, name: str, most: int) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        what = repr(number) if isinstance(number, float) else kind_of(number)
        raise Malformed(f"{name}: expected a whole number, got {what}")
    if not 0 <= number <= most:
        raise Malformed(f"{name}: expected 0 to {most}, got {number}")
    return number
