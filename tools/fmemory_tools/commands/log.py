"""`fmemory log`: the events, newest last."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import typer

from fmemory_tools._options import (
    DAMAGE_NOTE,
    JsonOption,
    NamespaceOption,
    StoreOption,
    UtcOption,
    WithinSessionOption,
    examples,
)
from fmemory_tools._usage import whole_number

if TYPE_CHECKING:
    from fmemory import Event, LogBackend
    from fmemory._damage import Read
    from fmemory_tools._damage import Damaged

EPILOG = examples(
    "fmemory log --session login --type feature_pass_updated",
    "fmemory log --since '2h ago' --actor coder",
    "fmemory log --all --json | jq .type",
    note=DAMAGE_NOTE,
)
EVENTS_SHOWN = 50
STREAMS_LOOKED_AT = 200


def log(
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all events instead of the last 50.")
    ] = False,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            parser=whole_number("--last"),
            help="Show the last N events instead of 50.",
            show_default=False,
        ),
    ] = None,
    session: WithinSessionOption = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", metavar="A/B", help="Only this stream, labels joined by '/'."),
    ] = None,
    namespace: NamespaceOption = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only events of this type; can be repeated."),
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="WHO", help="Only what this actor wrote.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Only events of this run.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only events of this time or later."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only events before this time."),
    ] = None,
    after: Annotated[
        int,
        typer.Option(
            "--after",
            metavar="SEQ",
            parser=whole_number("--after", 0),
            help="Only events after this one.",
        ),
    ] = 0,
    json: JsonOption = False,
    utc: UtcOption = False,
    store: StoreOption = None,
) -> None:
    """Show the events, the newest last.

    A time is like 2026-02-10, 2026-02-10T21:54 (local), 2026-02-10T21:54:53Z or '10m ago'.

    --since and --until go by the time that is shown: when it happened for imported events, when
    it was recorded for all others.
    """
    from fmemory_tools._console import FAINT, print_line
    from fmemory_tools._event_list import check_types, print_events
    from fmemory_tools._failure import Failure, tell
    from fmemory_tools._sessions import check_run, choose_session
    from fmemory_tools._store import reading
    from fmemory_tools._summary import parse_namespace, parse_stream
    from fmemory_tools._times import parse_time

    if show_all and last is not None:
        raise Failure("--all and --last exclude each other: give one of them")
    if sum(one is not None for one in (session, stream, namespace)) > 1:
        raise Failure("--session, --stream and --namespace exclude each other: give one of them")
    chosen = _Choice(
        after=after,
        types=tuple(types or ()),
        actor=actor,
        run_id=run,
        since=None if since is None else parse_time(since, "--since"),
        until=None if until is None else parse_time(until, "--until"),
    )
    with reading(store) as memory:
        if session is not None:
            chosen.streams = [("session", choose_session(memory, session))]
        elif stream is not None:
            chosen.streams = [parse_stream(stream, "--stream")]
        elif namespace is not None:
            labels = parse_namespace(namespace)
            chosen.streams = [("records", *labels), ("meta", *labels)]
        events: Iterator[Event | Damaged] = chosen.all(memory)
        earlier = ""
        if not show_all:
            newest, earlier = chosen.last(memory, last or EVENTS_SHOWN)
            events = iter(newest)
        first = list(islice(events, 1))
        if not first:
            # Nothing of what is nowhere is a slip of the pen, not an answer.
            check_types(chosen.types, "--type")
            if run is not None:
                check_run(memory, run)
        if earlier and json:
            tell(earlier)
        elif earlier:
            print_line((earlier, FAINT))
        count = print_events(chain(first, events), json=json, utc=utc)
        if namespace and not count:
            _tell_namespaces(memory, namespace)


def _tell_namespaces(memory: LogBackend, given: str) -> None:
    """On stderr: nothing is in just this namespace, and which begin with it."""
    from fmemory_tools._failure import tell
    from fmemory_tools._sessions import name_some, namespaces
    from fmemory_tools._summary import show_stream

    names = [show_stream(one) for one in namespaces(memory) if one]
    alike = sorted(name for name in names if name.startswith(given) and name != given)
    if alike:
        words = f"nothing in namespace {given} itself; these begin so: {name_some(alike)}"
        tell(words)


@dataclass(slots=True, kw_only=True)
class _Choice:
    """Which events are asked for. Times are compared with those that are shown."""

    after: int
    types: tuple[str, ...]
    actor: str | None
    run_id: str | None
    since: datetime | None
    until: datetime | None
    streams: Sequence[tuple[str, ...] | None] = (None,)

    def all(self, memory: LogBackend) -> Iterator[Event | Damaged]:
        """The events by seq, also those that are damaged."""
        from fmemory_tools._damage import readable

        def reader(stream: tuple[str, ...] | None) -> Read:
            return lambda after, limit: self._read(memory, stream, after=after, limit=limit)

        found = [readable(reader(stream), self.after) for stream in self.streams]
        return filter(self._is_timely, merge(*found, key=lambda event: event.seq))

    def last(self, memory: LogBackend, count: int) -> tuple[list[Event | Damaged], str]:
        """The last of the events by seq, and words on those before them, if there are any."""
        from fmemory import LogCorrupt
        from fmemory_tools._console import progress

        with progress("reading"):
            try:
                found: list[Iterator[Event | Damaged]] = [
                    self._read(memory, stream, backwards=True, limit=self._limit(count + 1))
                    for stream in self.streams
                ]
                newest_first = merge(*found, key=lambda event: event.seq, reverse=True)
                events = list(islice(filter(self._is_timely, newest_first), count + 1))[::-1]
            except LogCorrupt:
                events = list(deque(self.all(memory), maxlen=count + 1))
        if len(events) <= count:
            return events, ""
        total = self._count(memory)
        number = "" if total is None else f"{total - count:,} "
        plural = "event" if total == count + 1 else "events"
        return events[1:], f"{number}earlier {plural}; --all shows them"

    def _read(
        self,
        memory: LogBackend,
        stream: tuple[str, ...] | None,
        *,
        after: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[Event]:
        return memory.events(
            self.after if after is None else after,
            stream=stream,
            types=self.types or None,
            actor=self.actor,
            run_id=self.run_id,
            limit=limit,
            backwards=backwards,
        )

    def _limit(self, count: int) -> int | None:
        return count if self.since is None and self.until is None else None

    def _is_timely(self, event: Event | Damaged) -> bool:
        from fmemory_tools._damage import Damaged
        from fmemory_tools._event_list import shown_time

        if isinstance(event, Damaged):
            return True
        time = shown_time(event)
        return (self.since is None or time >= self.since) and (
            self.until is None or time < self.until
        )

    def _count(self, memory: LogBackend) -> int | None:
        """How many events there are, where that is known without reading them."""
        from fmemory_tools._sessions import newest_seq

        if self.types or self.actor or self.run_id or self.since or self.until:
            return None
        if self.streams[0] is None:
            return newest_seq(memory) - self.after
        if self.after:
            return None
        total = 0
        for stream in self.streams:
            page = memory.list_streams(stream or (), STREAMS_LOOKED_AT)
            if page.next_cursor is not None:
                return None
            total += sum(one.event_count for one in page.streams if one.stream == stream)
        return total
