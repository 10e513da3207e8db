"""The folded state of one session: places of its payloads, never the payloads themselves.

A fold of a session needs envelopes only: which event holds the manifest, which holds the features
and what was flipped since, where progress, checkpoints and messages lie. Payloads are read when a
caller asks for them, so opening a store reads no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fmemory._engine.types import EventType
from fmemory_segments import Envelope


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """The first `count` messages that event `seq` holds; `first` is their number in order."""

    seq: int
    first: int
    count: int


@dataclass(slots=True)
class SessionFold:
    """Where the state of a session lies, as of event `last_seq`.

    Attributes:
        manifest_seq: The event that holds the manifest; None = no manifest.
        features_seq: The event that holds the feature list; None = no list.
        passes: Features flipped since that event.
        progress: Events that hold progress entries, in order.
        checkpoints: Events that hold checkpoints, in order.
        messages: Places of the transcript, in order.
        deleted: The newest event deleted it.
    """

    revision: int = 0
    last_seq: int = 0
    last_recorded_at_ns: int = 0
    manifest_seq: int | None = None
    features_seq: int | None = None
    passes: dict[str, bool] = field(default_factory=dict)
    progress: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    messages: list[MessagePlace] = field(default_factory=list)
    deleted: bool = False
    _whole: set[int] = field(default_factory=set)

    @property
    def message_count(self) -> int:
        """Messages in the transcript."""
        return self.messages[-1].first + self.messages[-1].count if self.messages else 0

    @property
    def is_empty(self) -> bool:
        """Nothing was ever written, or all of it was deleted."""
        return (
            self.manifest_seq is None
            and self.features_seq is None
            and not self.progress
            and not self.checkpoints
            and not self.messages
        )

    def live_seqs(self) -> list[int]:
        """Events of which something is part of the state."""
        found = [*self.progress, *self.checkpoints, *(place.seq for place in self.messages)]
        return found + [one for one in (self.manifest_seq, self.features_seq) if one is not None]

    def copy(self) -> SessionFold:
        """A fold that can go on by itself. Cost: O(places)."""
        return SessionFold(
            self.revision,
            self.last_seq,
            self.last_recorded_at_ns,
            self.manifest_seq,
            self.features_seq,
            dict(self.passes),
            list(self.progress),
            list(self.checkpoints),
            list(self.messages),
            self.deleted,
            set(self._whole),
        )

    def parts(self, seqs: Sequence[int], blobs: Sequence[bytes]) -> list[tuple[bool, bytes]]:
        """Payloads of these events, each with whether it holds a whole session."""
        return [(seq in self._whole, blob) for seq, blob in zip(seqs, blobs, strict=True)]

    def places(self, first: int, stop: int) -> Iterator[MessagePlace]:
        """The places that hold messages number `first` to `stop`, exclusive."""
        low, high = 0, len(self.messages)
        while low < high:
            middle = (low + high) // 2
            if self.messages[middle].first + self.messages[middle].count <= first:
                low = middle + 1
            else:
                high = middle
        for place in self.messages[low:]:
            if place.first >= stop:
                return
            yield place

    def apply(self, event: Envelope) -> None:
        """Fold one event of this session. Callers' own types change nothing but the revision."""
        self.revision = event.revision
        self.last_seq = event.seq
        self.last_recorded_at_ns = event.recorded_at_ns
        self.deleted = event.type == EventType.SESSION_DELETED
        match event.type:
            case EventType.TRANSCRIPT_APPENDED:
                place = MessagePlace(event.seq, self.message_count, event.count)
                self.messages.append(place)
            case EventType.PROGRESS_APPENDED:
                self.progress.append(event.seq)
            case EventType.CHECKPOINT_RECORDED:
                self.checkpoints.append(event.seq)
            case EventType.FEATURE_PASS_UPDATED:
                self.passes[event.keys[0]] = bool(event.count)
            case EventType.MANIFEST_SAVED:
                self.manifest_seq = event.seq
            case EventType.FEATURES_REPLACED:
                self.features_seq = event.seq
                self.passes.clear()
            case EventType.SESSION_INITIALIZED | EventType.SESSION_FORKED:
                self._apply_whole(event)
            case EventType.TRANSCRIPT_TRUNCATED:
                self._truncate(event.count)
            case EventType.SESSION_DELETED:
                self._reset()
            case _:
                pass

    def _apply_whole(self, event: Envelope) -> None:
        self._whole.add(event.seq)
        # Bit 0: there is a manifest. A fork has the number of its transcript's events above.
        if event.count & 1:
            self.manifest_seq = event.seq
        self.features_seq = event.seq
        self.passes.clear()
        self.progress.append(event.seq)
        self.checkpoints.append(event.seq)

    def _truncate(self, keep: int) -> None:
        while self.messages and self.messages[-1].first >= keep:
            self.messages.pop()
        if self.messages:
            last = self.messages[-1]
            kept = min(last.count, keep - last.first)
            self.messages[-1] = MessagePlace(last.seq, last.first, kept)

    def _reset(self) -> None:
        self.manifest_seq = None
        self.features_seq = None
        self.passes.clear()
        self.progress.clear()
        self.checkpoints.clear()
        self.messages.clear()
        self._whole.clear()


@dataclass(slots=True)
class MetaFold:
    """Which event set each meta value of a namespace last.

    >>> fold = MetaFold()
    >>> fold.apply(Envelope(7, ("meta",), 1, "meta_set", 0, keys=("embedding_id",)))
    >>> fold.set_seq["embedding_id"]
    7
    """

    revision: int = 0
    set_seq: dict[str, int] = field(default_factory=dict)

    def apply(self, event: Envelope) -> None:
        """Fold one event of this stream."""
        self.revision = event.revision
        if event.type == EventType.META_SET:
            self.set_seq[event.keys[0]] = event.seq
        elif event.type == EventType.META_CLEARED:
            self.set_seq.clear()

    def live_seqs(self) -> list[int]:
        """Events that set a value that holds."""
        return list(self.set_seq.values())

    def copy(self) -> MetaFold:
        """A fold that can go on by itself."""
        return MetaFold(self.revision, dict(self.set_seq))
