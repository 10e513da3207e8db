"""The data of a page: everything that it shows, as plain JSON that says nothing twice.

Words that repeat (types, actors, runs, reasons) are numbers into one list. Of a delta only what
came after it is there: what was before it, the page knows when it has come to it. Messages are
lists of parts. What a page leaves out, message metadata and the data of images, is counted in it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

import msgspec

from fmemory._engine.stored import to_us
from fmemory._engine.types import EventType
from fmemory._json_values import JsonObject, JsonValue
from fmemory.journal import Envelope
from fmemory.log_models import ErasedRecord, Event
from fmemory.replay._change_models import Change, Part
from fmemory.replay._changes import ChangeFold
from fmemory.replay._facts import time_ns
from fmemory.replay._failures import is_failed_step
from fmemory.replay._page_messages import exact, parts_of
from fmemory_segments import FORGOTTEN

__all__ = ["PageEvents", "Words"]

_COUNTED = frozenset({Part.MESSAGE, Part.TRANSCRIPT})


@dataclass(slots=True)
class Words:
    """A list of words that are named by their number.

    >>> words = Words()
    >>> words.number("ada"), words.number("bob"), words.number("ada"), words.number(None)
    (0, 1, 0, None)
    """

    words: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, word: str | None) -> int | None:
        """Its number; None for None."""
        if word is None:
            return None
        found = self._numbers.get(word)
        if found is None:
            found = self._numbers[word] = len(self.words)
            self.words.append(word)
        return found


class PageEvents:
    """Turns events of one session, and others that belong to its runs, into plain data.

    Args:
        words: Shared by all sessions of a page.
    """

    def __init__(self, words: Words) -> None:
        self._words = words
        self._fold = ChangeFold()

    def of_session(self, event: Event) -> JsonObject:
        """The session's next event, with what it changed."""
        change = self._fold.apply(event)
        plain = self._head(event, erased=change.erased)
        deltas = list(_deltas(change))
        if deltas:
            plain["deltas"] = cast("JsonValue", deltas)
        messages = event.data.get("messages") if isinstance(event.data, dict) else None
        if event.type == EventType.TRANSCRIPT_APPENDED and isinstance(messages, list):
            plain["messages"] = [_message(cast("JsonObject", one)) for one in messages]
        elif "." in event.type:
            _add_data(plain, event)
        return plain

    def of_elsewhere(self, event: Event) -> JsonObject:
        """An event of one of the session's runs in another stream: notes, or the caller's own."""
        plain = self._head(event, erased=event.erased or event.type == FORGOTTEN)
        plain["stream"] = list(event.stream)
        if event.records:
            plain["notes"] = [
                {"id": one.id, **({"lost": True} if one.lost else {})}
                if isinstance(one, ErasedRecord)
                else {"id": one.id, "text": one.note.text}
                for one in event.records
            ]
        else:
            _add_data(plain, event)
        return plain

    def unreadable(self, envelope: Envelope, problem: str) -> JsonObject:
        """An event that is damaged: what is known of it."""
        happened = time_ns(envelope)
        return {
            "seq": envelope.seq,
            "at": happened // 1_000_000,
            "type": self._words.number(envelope.type or "unknown"),
            "problem": problem,
            **({} if envelope.run_id is None else {"run": self._words.number(envelope.run_id)}),
        }

    def _head(self, event: Event, *, erased: bool) -> JsonObject:
        happened = event.occurred_at or event.recorded_at
        plain: JsonObject = {
            "seq": event.seq,
            "at": _ms(happened),
            "type": self._words.number(event.type),
        }
        if event.occurred_at is not None:
            plain["wrote"] = _ms(event.recorded_at)
        for name, word in (
            ("by", event.actor),
            ("run", event.run_id),
            ("why", event.reason),
        ):
            if word is not None:
                plain[name] = self._words.number(word)
        if erased:
            plain["erased"] = True
        if event.lost:
            plain["lost"] = True
        return plain


def _deltas(change: Change) -> Iterable[list[JsonValue]]:
    """What is after each delta; that messages were appended, the messages say themselves."""
    for delta in change.deltas:
        if delta.part not in _COUNTED:
            yield [delta.part.value, delta.name, exact(delta.after)]
        elif delta.part is Part.TRANSCRIPT and change.type != EventType.TRANSCRIPT_APPENDED:
            yield [delta.part.value, delta.name, delta.after or 0]


def _message(message: JsonObject) -> JsonObject:
    plain: JsonObject = {"role": message["role"], "parts": parts_of(message)}
    for name in ("name", "is_error"):
        if message.get(name):
            plain[name] = message[name]
    metadata = message.get("metadata")
    if metadata:
        plain["metadata_bytes"] = len(msgspec.json.encode(metadata))
    return plain


def _add_data(plain: JsonObject, event: Event) -> None:
    """What a caller's own event holds, and whether it tells of a failure."""
    data = event.data
    if isinstance(data, bytes):
        plain["data"] = {"data_base64": base64.b64encode(data).decode("ascii")}
    elif data is not None:
        plain["data"] = exact(data)
        if is_failed_step(event.type, data):
            plain["failed"] = True


def _ms(at: datetime) -> int | float:
    """Unix milliseconds; with a fraction where there are microseconds."""
    microseconds = to_us(at)
    whole, rest = divmod(microseconds, 1000)
    return microseconds / 1000 if rest else whole
