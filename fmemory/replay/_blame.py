"""Who set what a session holds: each feature and manifest field, with the event that set it last.

A value is set by the event that made it what it is, not by one that wrote it down again unchanged.
What a fork copied is traced into the session it came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from fmemory._json_values import JsonObject, JsonValue
from fmemory._model import Model
from fmemory.errors import NotFound, Reason, brief
from fmemory.replay._facts import State
from fmemory.replay._reading import events_upto, session_events
from fmemory.replay.models import UnreadableEvent

if TYPE_CHECKING:
    from fmemory.backend import LogBackend
    from fmemory.log_models import Event

__all__ = ["Attribution", "BlamedPart", "ChangeKind", "blame", "features_upto"]

_TYPES = (
    "session_initialized",
    "session_forked",
    "manifest_saved",
    "features_replaced",
    "feature_pass_updated",
    "session_deleted",
)
_NAMED_MAX = 8


class BlamedPart(StrEnum):
    """What a value is part of; `UNKNOWN` = an event that may have set anything."""

    FEATURE = "feature"
    MANIFEST = "manifest"
    UNKNOWN = "unknown"


class ChangeKind(StrEnum):
    """What became of a value."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class Attribution(Model, frozen=True):
    """One value and the event that set it.

    Attributes:
        part: What it is part of.
        name: The feature's id, or the manifest's field, such as `metadata.owner`.
        field: Of a feature: `passes`, or `definition` (category, description, steps); of the
            manifest the name again.
        change: What became of it.
        seq: The event that did it.
        type: The type of that event.
        session_id: The session whose event it is: for what a fork copied, the one it came from.
        time: When it happened, else when it was recorded; UTC. None where nobody can tell.
        actor: Who did it.
        run_id: In which run.
        reason: Why.
        before: The value before; None also where there was none.
        after: The value since; None also where there is none.
        gap: Why the event does not tell what it set; None = it does.
    """

    part: BlamedPart
    name: str
    field: str
    change: ChangeKind
    seq: int
    type: str
    session_id: str
    time: datetime | None = None
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    before: JsonValue = None
    after: JsonValue = None
    gap: UnreadableEvent | None = None


def blame(
    memory: LogBackend,
    session_id: str,
    target: str | None = None,
    *,
    every: bool = False,
    at: int | datetime | None = None,
) -> tuple[Attribution, ...]:
    """For each feature and manifest field of a session, the event that set it last.

    Features come in the order of the list, then the manifest, then events that were lost or are
    damaged, and so may have set anything.

    Args:
        target: Only this feature or manifest field; `metadata` = all of its keys. Also one that is
            there no more.
        every: All that ever set them, oldest first, instead of the last; also what was removed.
        at: As of this event, or time of recording; None = now.

    Raises:
        NotFound: There is no such session, or not yet; no such feature or field ever.
        ContractError: An argument breaks a rule.
        StorageError: The store failed. A damaged event is a gap, not an error.

    Cost: O(events of the session), 60 ms for 10,000; its messages are not read, nor other sessions
        but those that it was forked from. Writes nothing.

    >>> import fmemory
    >>> with fmemory.open(":memory:") as memory:
    ...     with fmemory.audit(actor="ada", reason="2 tests passed"):
    ...         form = fmemory.FeatureRecord("form", "ui", "a form", passes=True)
    ...         _ = memory.replace_feature_list("login", [form])
    ...     found = blame(memory, "login", "form")[0]
    ...     found.seq, found.actor, found.reason, found.after
    (1, 'ada', '2 tests passed', True)
    """
    fold = _fold(memory, session_id, at)
    found = [*fold.history, *fold.gaps] if every else [*_in_order(fold), *fold.gaps]
    if target is None:
        return tuple(sorted(found, key=_seq) if every else found)
    chosen = [one for one in fold.history if _is_named(one, target)]
    if not chosen:
        raise _unknown(session_id, target, fold)
    if not every:
        chosen = list({(one.part, one.name, one.field): one for one in chosen}.values())
    return (*chosen, *fold.gaps)


_Key: TypeAlias = tuple[BlamedPart, str, str]


@dataclass(slots=True)
class _Fold:
    """What is set now, by which event, and all that was set before.

    Attributes:
        last: Of each value that is there, the event that set it.
        history: Everything that was set, in order.
        gaps: Events since the session began that may have set anything.
    """

    session_id: str
    last: dict[_Key, Attribution] = field(default_factory=dict)
    history: list[Attribution] = field(default_factory=list)
    gaps: list[Attribution] = field(default_factory=list)

    def set(self, part: BlamedPart, values: dict[_Key, JsonValue], event: Event) -> None:
        """Set all values of a part; what is not named is removed."""
        for key in [key for key in self.last if key[0] is part and key not in values]:
            gone = self.last.pop(key)
            self._record(key, ChangeKind.REMOVED, event, gone.after, None)
        for key, value in values.items():
            self.set_one(key, value, event)

    def set_one(self, key: _Key, value: JsonValue, event: Event) -> None:
        """Set one value, unless it is so already."""
        known = self.last.get(key)
        if known is None:
            self.last[key] = self._record(key, ChangeKind.ADDED, event, None, value)
        elif known.after != value:
            self.last[key] = self._record(key, ChangeKind.CHANGED, event, known.after, value)

    def inherit(self, origin: _Fold, values: dict[_Key, JsonValue]) -> None:
        """Take over who set these values in the session they were copied from."""
        kept = {
            key: origin.last[key]
            for key, value in values.items()
            if key in origin.last and origin.last[key].after == value
        }
        self.last.update(kept)
        self.history += [one for one in origin.history if (one.part, one.name, one.field) in kept]

    def _record(
        self, key: _Key, change: ChangeKind, event: Event, before: JsonValue, after: JsonValue
    ) -> Attribution:
        made = Attribution(
            *key,
            change,
            event.seq,
            event.type,
            self.session_id,
            event.occurred_at or event.recorded_at,
            event.actor,
            event.run_id,
            event.reason,
            before,
            after,
        )
        self.history.append(made)
        return made


def features_upto(
    memory: LogBackend, session_id: str, upto: int
) -> tuple[dict[str, Attribution], tuple[UnreadableEvent, ...], str | None]:
    """Feature id → what set last whether it passes, events that do not tell, and the objective.

    Unlike `blame` also of a past that is no longer kept whole.
    """
    fold = _folded(memory, session_id, events_upto(memory, session_id, upto, _TYPES))
    passes = {
        key[1]: one
        for key, one in fold.last.items()
        if key[0] is BlamedPart.FEATURE and key[2] == "passes"
    }
    gaps = tuple(one.gap for one in fold.gaps if one.gap is not None)
    objective = fold.last.get(_field("current_objective"))
    return passes, gaps, None if objective is None else str(objective.after)


def _fold(memory: LogBackend, session_id: str, at: int | datetime | None) -> _Fold:
    return _folded(memory, session_id, session_events(memory, session_id, at=at, types=_TYPES))


def _folded(
    memory: LogBackend, session_id: str, events: Iterator[Event | UnreadableEvent]
) -> _Fold:
    fold = _Fold(session_id)
    for event in events:
        if isinstance(event, UnreadableEvent):
            _note_gap(fold, event)
        else:
            _apply(memory, fold, event)
    return fold


def _note_gap(fold: _Fold, gap: UnreadableEvent) -> None:
    # What was forgotten had been deleted before, so that nothing of it is set.
    if gap.state != State.FORGOTTEN:
        fold.gaps.append(
            Attribution(
                BlamedPart.UNKNOWN,
                "",
                "",
                ChangeKind.CHANGED,
                gap.seq,
                gap.type,
                fold.session_id,
                gap=gap,
            )
        )


def _apply(memory: LogBackend, fold: _Fold, event: Event) -> None:
    data = event.data if isinstance(event.data, dict) else {}
    match event.type:
        case "feature_pass_updated":
            key = (BlamedPart.FEATURE, str(data["feature_id"]), "passes")
            fold.set_one(key, data["passes"], event)
        case "features_replaced":
            fold.set(BlamedPart.FEATURE, _features(data), event)
        case "manifest_saved":
            fold.set(BlamedPart.MANIFEST, _manifest(data), event)
        case "session_deleted":
            fold.set(BlamedPart.FEATURE, {}, event)
            fold.set(BlamedPart.MANIFEST, {}, event)
            fold.gaps.clear()
        case _:
            _apply_whole(memory, fold, event, data)


def _apply_whole(memory: LogBackend, fold: _Fold, event: Event, data: JsonObject) -> None:
    """A session that begins, fresh or as a copy of another."""
    features, manifest = _features(data), data.get("manifest")
    fields = _manifest(manifest) if isinstance(manifest, dict) else {}
    origin = data.get("origin")
    if isinstance(origin, str):
        _trace(memory, fold, origin, data.get("origin_seq"), {**features, **fields})
    fold.set(BlamedPart.FEATURE, features, event)
    if fields:
        fold.set(BlamedPart.MANIFEST, fields, event)


def _trace(
    memory: LogBackend,
    fold: _Fold,
    origin: str,
    origin_seq: JsonValue,
    values: dict[_Key, JsonValue],
) -> None:
    assert isinstance(origin_seq, int), "a fork names the event it was made at"
    try:
        fold.inherit(_fold(memory, origin, origin_seq), values)
    except NotFound:
        return  # nothing is left of it: the fork itself is what is known


def _features(data: JsonObject) -> dict[_Key, JsonValue]:
    found: dict[_Key, JsonValue] = {}
    listed = data.get("features")
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict):
            name = str(one["id"])
            found[BlamedPart.FEATURE, name, "passes"] = one["passes"]
            found[BlamedPart.FEATURE, name, "definition"] = {
                key: one[key] for key in ("category", "description", "steps")
            }
    return found


def _manifest(manifest: JsonObject) -> dict[_Key, JsonValue]:
    found: dict[_Key, JsonValue] = {}
    for name, value in manifest.items():
        if name == "metadata" and isinstance(value, dict):
            for key, inner in value.items():
                found[_field(f"metadata.{key}")] = inner
        else:
            found[_field(name)] = value
    return found


def _field(name: str) -> _Key:
    return (BlamedPart.MANIFEST, name, name)


def _in_order(fold: _Fold) -> Iterator[Attribution]:
    """What is set now: features before the manifest, each in its own order."""
    for part in (BlamedPart.FEATURE, BlamedPart.MANIFEST):
        yield from (one for key, one in fold.last.items() if key[0] is part)


def _is_named(one: Attribution, target: str) -> bool:
    is_key = one.part is BlamedPart.MANIFEST and one.name.startswith(f"{target}.")
    return one.name == target or (is_key and target == "metadata")


def _unknown(session_id: str, target: str, fold: _Fold) -> NotFound:
    names = list(dict.fromkeys(one.name for one in fold.history))
    more = len(names) - _NAMED_MAX
    known = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return NotFound(
        f"blame: expected a feature or manifest field of session {brief(session_id)}, got"
        f" {brief(target)}; there are: {known or 'none'}",
        reason=Reason.FEATURE_NOT_FOUND,
        key=target,
    )


def _seq(one: Attribution) -> int:
    return one.seq
