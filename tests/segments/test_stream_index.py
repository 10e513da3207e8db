"""The stream index equals a plain list of events, however it is asked in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import Envelope, Stream, StreamInfo
from fmemory_segments._stream_index import PREFIX_VIEWS_MAX, RevisionGap, StreamIndex

labels = st.sampled_from(["a", "b", "ab", ""])
streams = st.lists(labels, min_size=1, max_size=3).map(tuple)
pages = st.tuples(
    st.lists(labels, max_size=2).map(tuple),
    st.none() | st.integers(0, 30),
    st.none() | st.integers(0, 5),
)


class Plain:
    """The same from a list of all events."""

    def __init__(self) -> None:
        self.events: list[tuple[Stream, str | None]] = []

    def info(self, stream: Stream) -> StreamInfo | None:
        seqs = [seq for seq, event in enumerate(self.events, 1) if event[0] == stream]
        if not seqs:
            return None
        return StreamInfo(stream, len(seqs), len(seqs), seqs[0], seqs[-1], 10 * seqs[-1])

    def page(self, prefix: Stream, before: int | None, limit: int | None) -> list[StreamInfo]:
        known = {stream for stream, _ in self.events if stream[: len(prefix)] == prefix}
        infos = [info for stream in known if (info := self.info(stream)) is not None]
        infos = [info for info in infos if before is None or info.last_seq < before]
        return sorted(infos, key=lambda info: -info.last_seq)[:limit]


@given(st.lists(streams.map(lambda s: (s, None)) | pages, max_size=40))
def test_pages_equal_those_of_a_plain_list(
    steps: list[tuple[Stream, int | None, int | None]],
) -> None:
    index, plain = StreamIndex(), Plain()
    for step in steps:
        if len(step) == 3:
            assert index.streams(step[0], before=step[1], limit=step[2]) == plain.page(*step)
            continue
        stream = step[0]
        plain.events.append((stream, None))
        seq = len(plain.events)
        index.apply(stream, seq=seq, revision=index.revision(stream) + 1, recorded_at_ns=10 * seq)
        assert index.info(stream) == plain.info(stream)
    assert len(index) == len(plain.page((), None, None))


@given(st.lists(streams, min_size=1, max_size=30), st.integers(0, 30), st.booleans())
def test_events_taken_in_by_segment_equal_events_taken_in_one_by_one(
    written: list[Stream], cut: int, listed: bool
) -> None:
    single, whole = StreamIndex(), StreamIndex()
    for index, first, last in ((single, 0, len(written)), (whole, 0, min(cut, len(written)))):
        apply_singly(index, written, first, last)
    if listed:
        whole.streams()
    apply_segment(whole, written[:], min(cut, len(written)))
    assert whole.streams() == single.streams()
    assert all(whole.find(stream, "last") == single.find(stream, "last") for stream in written)


def apply_singly(index: StreamIndex, written: list[Stream], first: int, last: int) -> None:
    for seq in range(first + 1, last + 1):
        stream = written[seq - 1]
        event_id = "last" if seq == len(written) else None
        index.apply_envelope(
            Envelope(seq, stream, index.revision(stream) + 1, "x.y", 10 * seq, event_id=event_id)
        )


def apply_segment(index: StreamIndex, written: list[Stream], cut: int) -> None:
    infos: dict[Stream, StreamInfo] = {}
    for seq in range(cut + 1, len(written) + 1):
        stream = written[seq - 1]
        known = infos.get(stream)
        count = known.event_count + 1 if known else 1
        first_seq = known.first_seq if known else seq
        revision = index.revision(stream) + count
        infos[stream] = StreamInfo(stream, revision, count, first_seq, seq, 10 * seq)
    ids = [(written[-1], "last", len(written))] if cut < len(written) else []
    index.apply_segment(infos.values(), ids)


def test_an_event_id_is_found_in_its_stream_only() -> None:
    index = StreamIndex()
    index.apply(("a",), seq=1, revision=1, recorded_at_ns=0, event_id="once")
    assert index.find(("a",), "once") == 1
    assert index.find(("b",), "once") is None
    assert index.find(("a",), "other") is None


def test_a_revision_that_does_not_follow_is_refused_and_changes_nothing() -> None:
    index = StreamIndex()
    index.apply(("a",), seq=1, revision=1, recorded_at_ns=0)
    with pytest.raises(RevisionGap) as raised:
        index.apply(("a",), seq=2, revision=3, recorded_at_ns=0, event_id="x")
    assert (raised.value.stream, raised.value.expected, raised.value.revision) == (("a",), 2, 3)
    assert index.info(("a",)) == StreamInfo(("a",), 1, 1, 1, 1, 0)
    assert index.find(("a",), "x") is None


def test_a_new_stream_begins_with_revision_1() -> None:
    index = StreamIndex()
    with pytest.raises(RevisionGap):
        index.apply(("a",), seq=1, revision=2, recorded_at_ns=0)
    assert ("a",) not in index


def test_a_segment_whose_revisions_do_not_follow_is_refused() -> None:
    index = StreamIndex()
    with pytest.raises(RevisionGap):
        index.apply_segment([StreamInfo(("a",), 3, 2, 5, 6, 0)], [])


def test_more_prefixes_than_are_kept_in_order_are_answered_too() -> None:
    index = StreamIndex()
    names = [str(number) for number in range(3 * PREFIX_VIEWS_MAX)]
    for seq, name in enumerate(names, 1):
        index.apply((name, "x"), seq=seq, revision=1, recorded_at_ns=0)
    for _ in range(2):
        for name in names:
            assert [info.stream for info in index.streams((name,))] == [(name, "x")]
