"""What differs between two states of a session: pure, so that it can be tested without a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from fmemory import BootstrapState, FeatureRecord, Message
    from fmemory._json_values import JsonValue

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        part: The part of the state that differs.
        name: Field, feature id, or number in the list, from 1.
        before: The value in A as JSON; None = not there.
        after: The value in B as JSON; None = not there.
    """

    part: Literal["manifest", "feature", "progress", "checkpoint", "message"]
    name: str
    before: JsonValue
    after: JsonValue

    @property
    def word(self) -> str:
        """What happened to it: added, removed or changed."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def changes_between(
    before: BootstrapState,
    after: BootstrapState,
    messages_before: Sequence[Message],
    messages_after: Sequence[Message],
) -> Iterator[Change]:
    """Every difference: manifest fields, features, then the three lists by number."""
    yield from _manifest_changes(before, after)
    yield from _feature_changes(before.feature_list, after.feature_list)
    for number, one, other in _unequal(before.recent_progress, after.recent_progress):
        yield Change("progress", str(number), _plain(one), _plain(other))
    for number, first, second in _unequal(before.checkpoints, after.checkpoints):
        yield Change("checkpoint", str(number), _plain(first), _plain(second))
    for number, old, new in _unequal(messages_before, messages_after):
        yield Change("message", str(number), _plain(old), _plain(new))


def _manifest_changes(before: BootstrapState, after: BootstrapState) -> Iterator[Change]:
    old = {} if before.manifest is None else before.manifest.to_dict()
    new = {} if after.manifest is None else after.manifest.to_dict()
    for field in {**old, **new}:
        if old.get(field) != new.get(field):
            yield Change("manifest", field, old.get(field), new.get(field))


def _feature_changes(
    before: Sequence[FeatureRecord], after: Sequence[FeatureRecord]
) -> Iterator[Change]:
    old = {one.id: one for one in before}
    new = {one.id: one for one in after}
    for id_ in {**old, **new}:
        if old.get(id_) == new.get(id_):
            continue
        yield Change("feature", id_, _plain(old.get(id_)), _plain(new.get(id_)))


def _unequal(before: Sequence[T], after: Sequence[T]) -> Iterator[tuple[int, T | None, T | None]]:
    """Number from 1 and both values, where the lists differ: nearly always what was appended."""
    for number in range(max(len(before), len(after))):
        old = before[number] if number < len(before) else None
        new = after[number] if number < len(after) else None
        if old == new:
            continue
        yield number + 1, old, new


def _plain(value: object) -> JsonValue:
    to_dict = getattr(value, "to_dict", None)
    plain: JsonValue = None if to_dict is None else to_dict()
    return plain
