"""What a session was after each of its events, and what the event changed.

One fold goes along with whoever steps through a session: the next event is applied to it, which
costs no more than reading that event. Elsewhere it begins anew from a view of the past, some events
before the one that is asked for, so that stepping back is cheap too. What was told is kept.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fmemory.errors import HistoryCompacted, StorageError
from fmemory.replay._changes import ChangeFold
from fmemory_tools._damage import Damaged, load_state
from fmemory_tools._summary import FORGOTTEN_TYPE, role_word
from fmemory_tools.stepper.brief import LOST_TYPE, brief_message, is_error, messages_of
from fmemory_tools.stepper.timeline import Timeline

if TYPE_CHECKING:
    from fmemory import Event, LogBackend, LogView, Message
    from fmemory._json_values import JsonObject, JsonValue
    from fmemory.replay import Change

MOMENTS_KEPT: Final = 512
ROWS_BACK: Final = 32
"""So far before the event that is asked for a fold begins, where none goes along."""
ROWS_AHEAD: Final = 64
"""So far a fold goes on rather than begin anew."""
ROWS_PAST_DAMAGE: Final = 512
ENTRIES_SHOWN: Final = 4
UNTOLD: Final = "what it changed cannot be told: the data of before are gone"
_CHANGES_FEATURES: Final = frozenset({"feature", "passes", "order"})


@dataclass(frozen=True, slots=True)
class Feature:
    """An item of the checklist."""

    id: str
    description: str
    passes: bool


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message in short: who speaks, and what."""

    number: int
    role: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a session as far as it is shown: all of its features, the newest of the rest.

    Attributes:
        manifest: Its fields; empty = the session has none.
        features: The checklist.
        progress: The last `ENTRIES_SHOWN` entries, oldest first.
        progress_count: How many there are.
        checkpoints: The last `ENTRIES_SHOWN`, oldest first.
        checkpoint_count: How many there are.
        messages: The last `ENTRIES_SHOWN` in short, oldest first; () where they cannot be read.
        message_count: Messages in the transcript.
    """

    manifest: JsonObject
    features: tuple[Feature, ...]
    progress: tuple[JsonValue, ...]
    progress_count: int
    checkpoints: tuple[JsonValue, ...]
    checkpoint_count: int
    messages: tuple[Spoken, ...]
    message_count: int


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a moment.

    Attributes:
        change: What the event changed; None = that cannot be told.
        state: The session after it; None = that cannot be told.
        problem: Why something cannot be told, or is told of an earlier event; "" = all is well.
    """

    change: Change | None = None
    state: Snapshot | None = None
    problem: str = ""


class States:
    """Moments of one session by row. May be called from any thread, one at a time."""

    def __init__(self, memory: LogBackend, timeline: Timeline) -> None:
        self._memory = memory
        self._timeline = timeline
        self._told: OrderedDict[int, Told] = OrderedDict()
        self._walk = _Walk()
        # Up to here the log has said that it cannot tell a state.
        self._floor = 0

    def told(self, number: int) -> Told:
        """The moment after the event of a row.

        Raises:
            StorageError: The store failed. Damage and erased history are told, not raised.

        Cost: along with the fold, one event; else a fold of the session's index up to there, and
        `ROWS_BACK` events.
        """
        known = self._told.get(number)
        if known is None:
            known = self._tell(number)
            self._keep(number, known)
        self._told.move_to_end(number)
        return known

    def forget(self) -> None:
        """Tell everything anew that is asked for from now on."""
        self._told.clear()
        self._walk = _Walk()

    def _tell(self, number: int) -> Told:
        if not self._walk.next_row <= number < self._walk.next_row + ROWS_AHEAD:
            self._begin(max(0, number - ROWS_BACK), number)
        if number - self._walk.next_row > ROWS_PAST_DAMAGE:
            return Told(state=self._walk.snapshot(), problem=self._walk.why)
        return self._go(number)

    def _begin(self, first: int, number: int) -> None:
        """Begin a fold as of before the first row, or where the log can tell the state first."""
        self._walk = _Walk()
        event = self._timeline.event(first) if first > 0 else None
        if event is None or self._reach(event.seq - 1):
            return
        if self._timeline.row_after(self._floor) > number or not self._reach(self._floor):
            self._walk = _Walk(next_row=number, is_doubted=True)

    def _reach(self, seq: int) -> bool:
        """Begin a fold after an event, or before damage; whether the log can tell that moment."""
        if seq < self._floor:
            return False
        try:
            view, _, damaged = load_state(self._memory, self._memory.at(seq), self._session_id)
            walk = _seeded(view, self._session_id)
        except HistoryCompacted as error:
            self._floor = max(self._floor, error.floor)
            return False
        if damaged is not None:
            before = f"this is the state as of event {view.seq}, before the damage"
            walk.problem = f"{damaged}; {before}"
        self._walk = walk
        return True

    def _go(self, number: int) -> Told:
        """Apply events up to a row, and keep what each of them tells."""
        told = Told()
        for event in self._timeline.events(self._walk.next_row, number + 1):
            if isinstance(event, Damaged):
                self._walk.problem = f"{event}; it is left out of the state"
                continue
            if self._walk.is_doubted and not is_hollow(event):
                self._ask(event.seq - 1)
            told = self._walk.apply(event)
            if event.type == "transcript_truncated":
                told = self._heard_again(told, event)
            if self._walk.is_doubted and event.revision > number:
                self._ask(event.seq)
                why = self._walk.why or ("" if told.change else UNTOLD)
                return Told(told.change, self._walk.snapshot(), why)
            if not self._walk.is_doubted:
                self._keep(event.revision - 1, told)
        if self._walk.next_row <= number:
            # The row that is asked for is damaged itself, or not there.
            walk = self._walk
            return Told(None, walk.snapshot(), walk.why or "there is no such event")
        return told

    def _ask(self, seq: int) -> None:
        """What hollow events left behind, as the log knows it; else the state is not known."""
        if not self._reach(seq):
            when = f"after event {self._floor} it can"
            self._walk.unknown = f"the state of then cannot be told, its data are gone; {when}"

    def _heard_again(self, told: Told, event: Event) -> Told:
        """The moment after messages were cut off, with those that are the last ones now."""
        try:
            view = self._memory.at(event.seq)
            last = view.load_transcript_messages(self._session_id, last=ENTRIES_SHOWN)
        except (HistoryCompacted, StorageError):
            return told
        self._walk.hear([message.to_dict() for message in last])
        return replace(told, state=self._walk.snapshot())

    def _keep(self, number: int, told: Told) -> None:
        self._told[number] = told
        while len(self._told) > MOMENTS_KEPT:
            self._told.popitem(last=False)

    @property
    def _session_id(self) -> str:
        return self._timeline.session_id


@dataclass(slots=True)
class _Walk:
    """A fold that has come to a row.

    Attributes:
        next_row: The row that is to be applied next.
        fold: The state.
        messages: The newest messages in short.
        features: The checklist as it is shown; None = it has changed since it was made.
        problem: What the state leaves out.
        is_doubted: Data of an event that was applied are gone, so the log is to be asked.
        unknown: Why the state is not known at all; "" = it is.
    """

    next_row: int = 0
    fold: ChangeFold = field(default_factory=ChangeFold)
    messages: deque[Spoken] = field(default_factory=lambda: deque(maxlen=ENTRIES_SHOWN))
    features: tuple[Feature, ...] | None = None
    problem: str = ""
    is_doubted: bool = False
    unknown: str = ""

    def apply(self, event: Event) -> Told:
        """Fold the next event."""
        change = self.fold.apply(event)
        self.next_row = event.revision
        if change.deltas and any(one.part in _CHANGES_FEATURES for one in change.deltas):
            self.features = None
        while self.messages and self.messages[-1].number > self.fold.message_count:
            self.messages.pop()
        if event.type == "transcript_appended" and isinstance(event.data, dict):
            self.hear(messages_of(event.data))
        if is_hollow(event):
            self.is_doubted = True
            self.problem = f"the data of event {event.seq} are gone: the state leaves them out"
        # A difference to a state that is not known is none.
        return Told(None if self.unknown else change, self.snapshot(), self.why)

    @property
    def why(self) -> str:
        """Why the state is not known, or not whole; "" = it is."""
        return self.unknown or self.problem

    def snapshot(self) -> Snapshot | None:
        """The state it has come to; None if that is not known."""
        if self.unknown:
            return None
        fold = self.fold
        if self.features is None:
            self.features = tuple([_feature(fold, one) for one in fold.features])
        return Snapshot(
            manifest=fold.manifest,
            features=self.features,
            progress=tuple(fold.progress[-ENTRIES_SHOWN:]),
            progress_count=len(fold.progress),
            checkpoints=tuple(fold.checkpoints[-ENTRIES_SHOWN:]),
            checkpoint_count=len(fold.checkpoints),
            messages=tuple(self.messages),
            message_count=fold.message_count,
        )

    def hear(self, messages: list[JsonObject]) -> None:
        """Take in the newest messages."""
        last = messages[-ENTRIES_SHOWN:]
        first = self.fold.message_count - len(last) + 1
        while self.messages and self.messages[-1].number >= first:
            self.messages.pop()
        for number, message in enumerate(last, first):
            self.messages.append(_spoken(number, message))


def is_hollow(event: Event) -> bool:
    """Whether what an event held is erased, forgotten or lost."""
    return event.erased or event.type in (FORGOTTEN_TYPE, LOST_TYPE)


def _feature(fold: ChangeFold, feature_id: str) -> Feature:
    definition = fold.features[feature_id]
    description = definition.get("description") if isinstance(definition, dict) else None
    return Feature(feature_id, str(description or ""), fold.passes.get(feature_id) is True)


def _spoken(number: int, message: JsonObject) -> Spoken:
    return Spoken(number, role_word(message), brief_message(message), is_error(message))


def _seeded(view: LogView, session_id: str) -> _Walk:
    """A fold that has come to a moment of the past."""
    state = view.load_bootstrap_state(session_id)
    definitions: JsonObject = {}
    for feature in state.feature_list:
        plain = feature.to_dict()
        definitions[feature.id] = {
            key: value for key, value in plain.items() if key not in ("id", "passes")
        }
    count = _count_messages(view, session_id, state.revision)
    fold = ChangeFold(
        manifest={} if state.manifest is None else state.manifest.to_dict(),
        features=definitions,
        passes={feature.id: feature.passes for feature in state.feature_list},
        progress=[entry.to_dict() for entry in state.recent_progress],
        checkpoints=[one.to_dict() for one in state.checkpoints],
        message_count=count,
    )
    walk = _Walk(state.revision, fold)
    last = _messages(lambda: view.load_transcript_messages(session_id, last=ENTRIES_SHOWN))
    for number, message in enumerate(last or (), count - len(last or ()) + 1):
        walk.messages.append(_spoken(number, message.to_dict()))
    return walk


def _count_messages(view: LogView, session_id: str, likely: int) -> int:
    """How many messages a transcript has, looking for the first number that it does not have.

    Cost: O(log count) questions for one message.
    """

    def has(number: int) -> bool:
        found = _messages(
            lambda: view.load_transcript_messages(session_id, after=number - 1, limit=1)
        )
        return found is None or len(found) > 0

    low, high = 0, max(1, likely)
    while has(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if has(middle) else (low, middle)
    return low


def _messages(ask: Callable[[], tuple[Message, ...]]) -> tuple[Message, ...] | None:
    """The messages asked for; None where they are there and damaged."""
    try:
        return ask()
    except HistoryCompacted:
        raise
    except StorageError:
        return None
