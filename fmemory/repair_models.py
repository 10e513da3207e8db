"""What a repair did: how much came back, and each thing that did not."""

from __future__ import annotations

from fmemory._model import Model

__all__ = ["DamagedEvent", "LostEvents", "RepairResult"]


class LostEvents(Model, frozen=True):
    """Events in a row that could not be salvaged; placeholders have their numbers.

    Attributes:
        first_seq: The first of them.
        last_seq: The last one.
        reason: What was found where they should be.
        file: In which file of the store; None where none is to blame.
        offset: Byte position in that file.
        streams: Streams that they belonged to, as far as revisions tell; the first of many.
    """

    first_seq: int
    last_seq: int
    reason: str
    file: str | None = None
    offset: int | None = None
    streams: tuple[tuple[str, ...], ...] = ()

    @property
    def event_count(self) -> int:
        """How many there are."""
        return self.last_seq - self.first_seq + 1


class DamagedEvent(Model, frozen=True):
    """An event that was salvaged without a part of its content.

    Attributes:
        seq: Its number.
        keys: Ids of the records that were lost; the others of the event live.
        is_payload_lost: Its content is gone; who wrote it, when and why is not.
        reason: What was found.
        file: In which file of the store.
        offset: Byte position in that file.
    """

    seq: int
    keys: tuple[str, ...]
    is_payload_lost: bool
    reason: str
    file: str | None = None
    offset: int | None = None


class RepairResult(Model, frozen=True):
    """What a repair did.

    Attributes:
        salvaged: Events that are in the new store as they were, those with damaged content too.
        lost: Events that are not, in the order of their numbers.
        damaged: Events that came back without a part of their content.
        head: The new store's newest event with its chain value, as `str(memory.head())`.
        head_matches: True if the source names the same head: every event is as it was written.
            False if it names another one. None where it names none, or something was lost.
        is_end_known: False if damage lies where events newer than all others may have been; how
            many, nobody knows.
        durable: Whether all of it is on the new store's disk.
        notices: What else a person should know.
    """

    salvaged: int
    lost: tuple[LostEvents, ...]
    damaged: tuple[DamagedEvent, ...]
    head: str
    head_matches: bool | None
    is_end_known: bool
    durable: bool
    notices: tuple[str, ...]

    @property
    def lost_events(self) -> int:
        """How many events were lost."""
        return sum(one.event_count for one in self.lost)

    @property
    def is_whole(self) -> bool:
        """True if nothing was lost, as far as can be known."""
        is_complete = not self.lost and not self.damaged and self.is_end_known
        return is_complete and self.head_matches is not False
