"""What an event changed: small values that a list, a terminal and a page show alike."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from fmemory._json_values import JsonValue
from fmemory._model import Model

__all__ = ["Change", "Delta", "Part"]


class Part(StrEnum):
    """What of a session's state a delta is about.

    `manifest`: a field, named by it. `feature`: category, description and steps of a feature,
    named by its id. `passes`: whether it passes. `order`: the ids of the features, where they are
    not those that stayed with the new ones behind them. `progress`, `checkpoint`: an entry, named
    by its number in the list, from 1. `transcript`: how many messages there are. `message`: a
    message, named by its number in the transcript, from 1. `origin`: where a fork came from.
    """

    MANIFEST = "manifest"
    FEATURE = "feature"
    PASSES = "passes"
    ORDER = "order"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    TRANSCRIPT = "transcript"
    MESSAGE = "message"
    ORIGIN = "origin"


class Delta(Model, frozen=True):
    """One thing that an event changed.

    Attributes:
        part: What it belongs to.
        name: Which one of that part.
        before: Its value as JSON; None = it was not there.
        after: Its value as JSON; None = it is not there any more. A message is cut to role, name,
            first words, names of the tools called, and whether it is an error: the event has it
            whole.
    """

    part: Part
    name: str
    before: JsonValue = None
    after: JsonValue = None

    @property
    def word(self) -> str:
        """What happened to it: added, removed or changed.

        >>> Delta(Part.PASSES, "login", before=False, after=True).word
        'changed'
        """
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    @property
    def is_flip(self) -> bool:
        """Whether a feature that was there began or ceased to pass."""
        return self.part is Part.PASSES and self.before is not None and self.after is not None


class Change(Model, frozen=True):
    """An event of a session, and what it changed of the session's state.

    Attributes:
        seq: Its number in the log.
        revision: Its number in the session's stream.
        type: What happened; types with a dot are the caller's own and change nothing.
        recorded_at: When it was written; UTC.
        occurred_at: When it happened, where that differs; UTC.
        actor: Who wrote it.
        run_id: The run it belongs to.
        reason: Why it was written.
        deltas: What it changed; () where it changed nothing, or what it held is erased.
        erased: Its data was erased, forgotten or lost.
        lost: It was lost: a repair found it damaged, or not at all.
    """

    seq: int
    revision: int
    type: str
    recorded_at: datetime
    occurred_at: datetime | None = None
    actor: str | None = None
    run_id: str | None = None
    reason: str | None = None
    deltas: tuple[Delta, ...] = ()
    erased: bool = False
    lost: bool = False

    @property
    def at(self) -> datetime:
        """When it happened, as far as known; else when it was written."""
        return self.occurred_at or self.recorded_at
