"""Feature flips of a session, and the features that passed and then did not."""

from __future__ import annotations

from dataclasses import dataclass, field

from fmemory._engine.stored import StoredSession, from_ns
from fmemory._engine.types import EventType
from fmemory.replay._facts import Fact, Features, State, time_ns
from fmemory.replay.models import FeatureFlip, Regression

__all__ = ["Flips", "regressions_of"]


@dataclass(slots=True)
class Flips:
    """A fold over the facts of one session."""

    found: list[FeatureFlip] = field(default_factory=list)
    _passes: dict[str, bool] = field(default_factory=dict)

    def add(self, fact: Fact, *, in_scope: bool) -> None:
        """Fold one event; what it flips is noted where it is in scope."""
        event = fact.event
        if event.type == EventType.FEATURE_PASS_UPDATED and fact.state is State.KEPT:
            feature = event.keys[0]
            self._set(fact, feature, passes=bool(event.count), in_scope=in_scope)
            return
        match fact.detail:
            case Features(features=features):
                after = {one.id: one.passes for one in features}
                for feature in [one for one in self._passes if one not in after]:
                    self._set(fact, feature, passes=False, in_scope=in_scope)
                    del self._passes[feature]
                for feature, passes in after.items():
                    self._set(fact, feature, passes=passes, in_scope=in_scope)
            case StoredSession(features=features):
                begun = {one.id: one.passes for one in features}
                for feature in self._passes:
                    self._set(fact, feature, passes=begun.get(feature, False), in_scope=in_scope)
                self._passes = begun
            case _:
                if event.type == EventType.SESSION_DELETED:
                    for feature in list(self._passes):
                        self._set(fact, feature, passes=False, in_scope=in_scope)
                    self._passes = {}

    def _set(self, fact: Fact, feature: str, *, passes: bool, in_scope: bool) -> None:
        before = self._passes.get(feature)
        self._passes[feature] = passes
        if passes == bool(before) or not in_scope:
            return
        event = fact.event
        self.found.append(
            FeatureFlip(
                seq=event.seq,
                at=from_ns(time_ns(event)),
                feature_id=feature,
                before=before,
                passes=passes,
                actor=event.actor,
                run_id=event.run_id,
                reason=event.reason,
            )
        )


def regressions_of(flips: list[FeatureFlip]) -> list[Regression]:
    """Features that passed and then did not, once each time: those that still do not first."""
    since: dict[str, int] = {}
    found: list[Regression] = []
    open_ones: dict[str, int] = {}
    for flip in flips:
        if flip.passes:
            since[flip.feature_id] = flip.seq
            place = open_ones.pop(flip.feature_id, None)
            if place is not None:
                lost = found[place]
                found[place] = Regression(lost.feature_id, lost.passed_seq, lost.lost_seq, flip.seq)
        else:
            open_ones[flip.feature_id] = len(found)
            found.append(Regression(flip.feature_id, since.pop(flip.feature_id, None), flip.seq))
    return sorted(found, key=lambda one: (one.again_seq is not None, one.lost_seq))
