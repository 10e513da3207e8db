"""What is written as text comes back to the last bit, and its lines are lines for everybody.

Goal: no value that a journal can hold is changed, refused or able to break a line. Method: random
payloads go through the codec and through a store; hand-picked ones meet every fallback. What would
have to break: a number format, an escape, a note that JSON carries only almost.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fmemory
from fmemory import FilesystemMemoryBackend, NewEvent
from fmemory.journal import Blob, Draft, Erased, Rows, StoredEvent
from fmemory.journals._jsonl.lines import (
    LINE_BYTES_AIM,
    HeaderFields,
    LineFields,
    decode_payload,
    encode_batch,
    payload_of,
)
from fmemory.journals._jsonl.values import RowFields, parse_time, time_text
from fmemory.testing._journal_base import commit, put
from fmemory_segments import NONCE_BYTES, ZERO_CHAIN, Envelope, payload_digest
from tests.fmemory.jsonl_tools import files_of, lines_of, open_store
from tests.segments.event_strategies import make_rows

BOUNDED = settings(max_examples=150, deadline=None, database=None, print_blob=True)
STORE_ID = bytes(range(16))
NASTY = '\x00\x01\x1f\x7f\x80\x85\x9f\r\n\u2028\u2029\ufeff\ufffe😀é"\\'

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def lines_for(payload: Blob | Rows | Erased, keys: tuple[str, ...] = ()) -> list[bytes]:
    """The lines of one event with this payload."""
    envelope = Envelope(1, ("words",), 1, "word.said", 5, keys=keys, count=len(keys))
    event = StoredEvent(envelope, payload)
    (encoded,) = encode_batch([event], store_id=STORE_ID, chain=ZERO_CHAIN, synced=0)
    return encoded.lines


def back(lines: list[bytes]) -> Blob | Rows | Erased:
    return payload_of([decode_payload(line) for line in lines])


def one_row(body: bytes, vector: list[float], dtype: str = "<f8", timestamp: float = 1.0) -> Rows:
    return Rows(
        np.array([timestamp]),
        body,
        np.array([0, len(body)], "<u4"),
        np.array([vector], dtype),
        (None,),
        bytes(NONCE_BYTES),
    )


@BOUNDED
@given(st.binary(max_size=60))
def test_any_bytes_come_back(data: bytes) -> None:
    blob = Blob(data, bytes(NONCE_BYTES))
    assert back(lines_for(blob)) == blob


@BOUNDED
@given(json_values)
def test_any_document_of_the_contract_stands_as_json_and_comes_back(value: object) -> None:
    data = msgspec.msgpack.encode(value)
    (line,) = lines_for(Blob(data, bytes(NONCE_BYTES)))
    assert json.loads(line)["data"] == value
    assert back([line]) == Blob(data, bytes(NONCE_BYTES))


@BOUNDED
@given(st.text(), st.dictionaries(st.text(), json_values, max_size=3))
def test_any_note_stands_as_text_and_comes_back(text: str, metadata: dict[str, object]) -> None:
    body = b"".join(map(msgspec.msgpack.encode, ("a", text, metadata)))
    rows = one_row(body, [1.0])
    (line,) = lines_for(rows, ("a",))
    assert json.loads(line)["rows"][0]["text"] == text
    assert payload_digest(back([line])) == payload_digest(rows)


@BOUNDED
@given(
    st.integers(0, 1 << 32), st.integers(1, 5), st.integers(0, 4), st.sampled_from(["<f4", "<f8"])
)
def test_rows_of_any_bytes_come_back(seed: int, count: int, dim: int, dtype: str) -> None:
    rows = make_rows(seed, count, dim, dtype)
    lines = lines_for(rows, tuple(f"r{row}" for row in range(count)))
    assert payload_digest(back(lines)) == payload_digest(rows)


@BOUNDED
@example([b"\x01\x00\x80\x7f"])
@given(st.lists(st.binary(min_size=4, max_size=4), min_size=1, max_size=6))
def test_any_bits_of_a_float32_come_back(bits: list[bytes]) -> None:
    vectors = np.frombuffer(b"".join(bits), "<f4").reshape(1, -1)
    rows = Rows(np.array([-0.0]), b"", np.zeros(2, "<u4"), vectors, (None,), bytes(NONCE_BYTES))
    found = back(lines_for(rows, ("a",)))
    assert isinstance(found, Rows)
    assert found.vectors.tobytes() == vectors.tobytes()


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_special_numbers_come_back(dtype: str) -> None:
    info = np.finfo(np.dtype(dtype))
    numbers = [-0.0, 0.0, info.smallest_subnormal, -info.tiny, info.max, info.eps, 1 / 3, 1e-7]
    rows = one_row(b"", [float(one) for one in numbers], dtype)
    (line,) = lines_for(rows, ("a",))
    assert isinstance(json.loads(line)["rows"][0]["vector"], list)
    found = back([line])
    assert isinstance(found, Rows)
    assert found.vectors.tobytes() == rows.vectors.tobytes()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_come_back(number: float) -> None:
    rows = one_row(b"", [1.0, number], timestamp=number)
    assert payload_digest(back(lines_for(rows, ("a",)))) == payload_digest(rows)


def test_float32_is_written_with_few_digits() -> None:
    (line,) = lines_for(one_row(b"", [0.1, 0.25, -3.5], "<f4"), ("a",))
    assert b'"vector":[0.1,0.25,-3.5]' in line


def test_erased_payload_comes_back() -> None:
    assert back(lines_for(Erased(bytes(range(32))))) == Erased(bytes(range(32)))


def test_erased_row_among_others_keeps_the_digest_of_the_event() -> None:
    rows = make_rows(3, 3)
    offsets = rows.note_offsets.copy()
    digests = np.zeros((3, 32), np.uint8)
    digests[1] = 7
    erased = Rows(
        rows.timestamps,
        rows.notes,
        offsets,
        rows.vectors,
        rows.embedding_ids,
        rows.nonces,
        np.array([False, True, False]),
        digests,
    )
    found = back(lines_for(erased, ("a", "b", "c")))
    assert isinstance(found, Rows)
    assert found.erased is not None
    assert found.erased.tolist() == [False, True, False]
    assert payload_digest(found) == payload_digest(erased)


@BOUNDED
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_time_of_64_bits_comes_back(nanoseconds: int) -> None:
    assert parse_time(time_text(nanoseconds)) == nanoseconds


def test_nasty_text_breaks_no_line_for_any_reader(tmp_path: Path) -> None:
    with FilesystemMemoryBackend(tmp_path / "store") as memory:
        memory.add_note(NASTY, id=NASTY, metadata={NASTY: NASTY}, namespace=(NASTY,))
        memory.append((NASTY,), (NewEvent("a." + "é", {"k": NASTY}, event_id=NASTY),))
    (file,) = files_of(tmp_path / "store")
    text = file.read_text("utf-8")
    assert len(text.splitlines()) == text.count("\n") == 3
    with FilesystemMemoryBackend(tmp_path / "store") as memory:
        (record,) = memory.iter_all(namespace=(NASTY,))
        assert (record.id, record.note.text) == (NASTY, NASTY)
        assert [one.data for one in memory.events(stream=(NASTY,))] == [{"k": NASTY}]


def test_text_is_not_escaped_so_that_grep_finds_it(tmp_path: Path) -> None:
    with FilesystemMemoryBackend(tmp_path / "store") as memory:
        memory.add_note("der Parser prüft 😀 nichts", id="n1")
    assert "der Parser prüft 😀 nichts".encode() in files_of(tmp_path / "store")[0].read_bytes()


def test_every_line_is_json_with_a_checksum(tmp_path: Path) -> None:
    with FilesystemMemoryBackend(tmp_path / "store") as memory:
        memory.add_note("tea", [1.0], id="n1")
        memory.set_meta(fmemory.MetaSetRequest(key="k", value=[1]))
    lines = [json.loads(line) for line in lines_of(tmp_path / "store")]
    assert [sorted(line)[-1] for line in lines] != []
    assert all(list(line)[-1] == "crc" for line in lines)


def test_large_put_is_split_at_a_megabyte(tmp_path: Path) -> None:
    journal = open_store(tmp_path / "store")
    ids = [f"r{number}" for number in range(600)]
    commit(journal, put(*ids, dim=500))
    sizes = [len(line) for line in lines_of(tmp_path / "store")[1:]]
    assert len(sizes) >= 2
    assert max(sizes) < 1.1 * LINE_BYTES_AIM
    payload = journal.payloads([1])[0]
    assert isinstance(payload, Rows)
    assert len(payload) == 600
    for number in (0, 1, 299, 300, 598, 599):
        body, vector, _ = journal.row((1 << 16) | number)
        assert msgspec.msgpack.decode(b"\x93" + body)[0] == f"r{number}"
        assert vector.tobytes() == payload.vectors[number].tobytes()
    journal.close()


@pytest.mark.parametrize("fields", [HeaderFields, LineFields, RowFields])
def test_every_field_of_a_line_is_described(fields: type[msgspec.Struct]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "jsonl.md").read_text("utf-8")
    assert [name for name in fields.__struct_fields__ if f"`{name}`" not in text] == []


def test_lone_surrogate_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    journal = open_store(tmp_path / "store")
    draft = Draft(("words",), 1, "word.said", Blob(b""), actor="\ud800")
    with pytest.raises(fmemory.ContractError):
        commit(journal, draft)
    assert (journal.refresh(), len(lines_of(tmp_path / "store"))) == (0, 1)
    journal.close()
