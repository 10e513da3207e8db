"""Digests: one form of every event, and no two events with the same."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmemory_segments import (
    Blob,
    Envelope,
    Erased,
    Rows,
    canonical_envelope,
    chain_step,
    event_digest,
    payload_digest,
    row_digests,
)
from tests.segments.event_strategies import make_rows, optional_text, optional_time

ENVELOPE = Envelope(
    seq=812,
    stream=("records", "user1"),
    revision=7,
    type="records_put",
    recorded_at_ns=1_700_000_000_000_000_000,
    actor="me@host",
    keys=("a", "é"),
    count=2,
)

text = st.text(max_size=3)
envelopes = st.builds(
    Envelope,
    seq=st.integers(1, 3),
    stream=st.lists(text, max_size=3).map(tuple),
    revision=st.integers(1, 3),
    type=text,
    recorded_at_ns=st.integers(-2, 2),
    occurred_at_ns=optional_time,
    actor=optional_text,
    run_id=optional_text,
    reason=optional_text,
    event_id=optional_text,
    keys=st.lists(text, max_size=3).map(tuple),
    count=st.integers(-1, 2),
)


def test_the_canonical_envelope_is_what_the_format_says() -> None:
    expected = (
        (812).to_bytes(8, "little")
        + (7).to_bytes(8, "little")
        + (1_700_000_000_000_000_000).to_bytes(8, "little")
        + bytes(8)
        + (2).to_bytes(8, "little")
        + b"\x02"
        + b"\x0b\0\0\0records_put"
        + b"\x07\0\0\0me@host"
        + b"\x02\0\0\0\x07\0\0\0\x05\0\0\0recordsuser1"
        + b"\x02\0\0\0\x01\0\0\0\x02\0\0\0a\xc3\xa9"
    )
    assert canonical_envelope(ENVELOPE) == expected


def test_the_digest_of_bytes_is_what_the_format_says() -> None:
    nonce = bytes(range(16))
    assert payload_digest(Blob(b"saw it", nonce)) == sha256(b"\x03" + nonce + b"saw it").digest()


def test_the_digest_of_rows_is_what_the_format_says() -> None:
    rows = Rows(
        timestamps=np.array([1.5]),
        notes=b"note",
        note_offsets=np.array([0, 4], "<u4"),
        vectors=np.array([[2.0, 3.0]], "<f4"),
        embedding_ids=("m",),
        nonces=bytes(range(16)),
    )
    row = sha256(
        b"\x05" + bytes(range(16)) + b"\x04\0\0\0" + b"\x01\0\0\0" + b"\x01" + b"\x02\0\0\0"
        b"note" + b"m" + np.array([2.0, 3.0], "<f4").tobytes()
    ).digest()
    assert row_digests(rows).tobytes() == row
    whole = sha256(b"\x04" + b"\x01\0\0\0" + np.array([1.5], "<f8").tobytes() + row).digest()
    assert payload_digest(rows) == whole


def test_event_and_chain_are_what_the_format_says() -> None:
    payload = bytes(range(32))
    event = sha256(b"\x00" + canonical_envelope(ENVELOPE) + payload).digest()
    assert event_digest(ENVELOPE, payload) == event
    assert chain_step(bytes(32), event) == sha256(b"\x02" + bytes(32) + event).digest()


@given(envelopes, envelopes)
def test_envelopes_have_the_same_form_only_if_they_are_equal(one: Envelope, two: Envelope) -> None:
    assert (canonical_envelope(one) == canonical_envelope(two)) == (one == two)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 813},
        {"stream": ("recordsu", "ser1")},
        {"stream": ("records", "user1", "")},
        {"revision": 8},
        {"type": "records_pu"},
        {"recorded_at_ns": 0},
        {"occurred_at_ns": 0},
        {"actor": None},
        {"run_id": ""},
        {"reason": "x"},
        {"event_id": "x"},
        {"keys": ("aé",)},
        {"keys": ("é", "a")},
        {"count": 3},
    ],
)
def test_a_change_of_any_field_changes_the_digest(change: dict[str, object]) -> None:
    changed = msgspec.structs.replace(ENVELOPE, **change)
    assert event_digest(changed, bytes(32)) != event_digest(ENVELOPE, bytes(32))


def rows_with(**changes: object) -> Rows:
    return msgspec.structs.replace(make_rows(1, 3, embedding_ids=("m",)), **changes)


@pytest.mark.parametrize(
    "changed",
    [
        rows_with(timestamps=np.array([0.0, 0.0, 9.0])),
        rows_with(nonces=bytes(48)),
        rows_with(notes=bytes(len(make_rows(1, 3).notes))),
        rows_with(vectors=np.ones((3, 3))),
        rows_with(vectors=make_rows(1, 3).vectors.astype("<f4")),
        rows_with(vectors=make_rows(1, 3).vectors.view("<f4")),
        rows_with(embedding_ids=("m", "m", None)),
        rows_with(embedding_ids=("m", "m", "")),
    ],
)
def test_a_change_of_any_column_changes_the_digest(changed: Rows) -> None:
    assert payload_digest(changed) != payload_digest(rows_with())


def test_a_digest_kept_for_an_erased_row_stands_in_for_the_row() -> None:
    rows = rows_with()
    erased = msgspec.structs.replace(
        rows,
        notes=rows.notes[: int(rows.note_offsets[2])],
        note_offsets=np.minimum(rows.note_offsets, rows.note_offsets[2]),
        vectors=rows.vectors * np.array([[1.0], [1.0], [0.0]]),
        embedding_ids=("m", "m", None),
        nonces=rows.nonces[:32] + bytes(16),
        erased=np.array([False, False, True]),
        digests=row_digests(rows),
    )
    assert payload_digest(erased) == payload_digest(rows)


def test_a_digest_kept_for_an_erased_payload_stands_in_for_it() -> None:
    payload = Blob(b"secret", bytes(range(16)))
    assert payload_digest(Erased(payload_digest(payload))) == payload_digest(payload)


def test_equal_content_with_other_nonces_has_other_digests() -> None:
    assert payload_digest(Blob(b"yes", bytes(16))) != payload_digest(Blob(b"yes", b"\1" * 16))


@pytest.mark.parametrize("payload", [Blob(b"x"), make_rows(1, 2, has_nonces=False)])
def test_a_draft_has_no_digest(payload: Blob | Rows) -> None:
    with pytest.raises(ValueError, match="nonce"):
        payload_digest(payload)
