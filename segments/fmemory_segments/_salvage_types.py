"""What a salvage finds, of any kind of store: events, what is wrong, what the store says of itself.

A salvage gives these out in the order of seqs, so that whoever imports the events need not hold
them. It decides nothing: what an event that is missing means is for the importer to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from fmemory_segments.event import StoredEvent


@dataclass(frozen=True, slots=True)
class Harm:
    """A part of an event that was lost although its envelope is intact.

    Attributes:
        problem: What was found damaged.
        keys: Ids of the records that were lost; () = no record, or none but its nonce.
        is_payload_lost: The whole payload of an event without rows is gone.
    """

    problem: str
    keys: tuple[str, ...] = ()
    is_payload_lost: bool = False


@dataclass(frozen=True, slots=True)
class Salvaged:
    """An event whose envelope is as it was written.

    Attributes:
        event: With digests of zeros where data were lost.
        file: Where it was found.
        offset: Where in the file.
        harm: What was lost of its payload; () = nothing.
    """

    event: StoredEvent
    file: str | None = None
    offset: int | None = None
    harm: tuple[Harm, ...] = ()

    @property
    def seq(self) -> int:
        """Its number."""
        return self.event.envelope.seq


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is not as it was written.

    Attributes:
        problem: What was found, in words that stand behind "because" as well as alone.
        file: Where.
        offset: Where in the file.
        first_seq: First event concerned, as far as it is known.
        last_seq: Last one.
        lost: Events may be missing for it; False = only to be known.
        hides_end: Newer events than all others may be missing for it, nobody knows how many.
    """

    problem: str
    file: str | None = None
    offset: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    lost: bool = True
    hides_end: bool = False


@dataclass(frozen=True, slots=True)
class Witness:
    """What a store says of itself: events up to `seq` were written.

    Attributes:
        seq: Of an event; 0 = before the first.
        chain: Chain value after it, where the store says one.
        file: What says so.
        is_head: The store opens, and this is its head.
    """

    seq: int
    chain: bytes | None
    file: str | None = None
    is_head: bool = False
