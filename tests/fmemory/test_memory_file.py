"""The memory file.

Goal: what is dumped is loaded equal, and whatever is wrong with a file or its target is found
before anything is stored. Method: files written here line by line, on the engine and on a backend
that has the abstract contract only. To break: a check that is missing or in another place of the
order, a partial file left behind, a record written before the last line was read.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmemory
from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, MemoryFileError, Reason, StoreBusy
from fmemory.memory_file import (
    LOAD_BATCH_RECORDS,
    MemoryFileHeader,
    MemoryFileReader,
    write_memory_file,
)
from fmemory.record_models import MemoryRecord, Note, PutRequest, PutResult
from fmemory.testing._model_backend import ModelBackend

HEADER: dict[str, Any] = {
    "format": "coniti-memory",
    "version": "1.0.0",
    "embedding_id": None,
    "namespace": ["u"],
    "created_at": "2026-01-31T12:00:00Z",
    "count": 2,
}


def line(id_: str = "a", **changes: Any) -> dict[str, Any]:
    note = {"id": id_, "text": "tea", "timestamp": 1.0, "metadata": {"k": [1]}}
    whole = {"note": note, "vector": [1.0, 0.5], "embedding_id": None, "namespace": ["u"]}
    return {**whole, **changes}


def noted(**changes: Any) -> dict[str, Any]:
    return line(note={**line()["note"], **changes})


def text_of(*lines: object) -> str:
    return "".join(
        (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) + "\n"
        for one in lines
    )


GOOD = text_of(HEADER, line("a"), line("b"))


@pytest.fixture(params=["contract", "engine"])
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryBackend]:
    with ModelBackend() if request.param == "contract" else fmemory.open(":memory:") as backend:
        yield backend


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def records_of(memory: MemoryBackend, namespace: tuple[str, ...]) -> list[MemoryRecord]:
    return list(memory.iter_all(namespace=namespace))


def filled(memory: MemoryBackend, count: int = 3) -> list[MemoryRecord]:
    records = [
        MemoryRecord.create(
            Note(f"n{n}", f'text {n}\n"é🎉\0', float(n % 5), {"n": n, "x": [None, 1.5, True]}),
            [n / 3, -0.0, 5e-324, 1e308],
            "model" if n % 2 else None,
            ("u", ""),
        )
        for n in range(count)
    ]
    memory.put(memory.put_request(records))
    return sorted(records, key=lambda one: one.note.timestamp)


def test_what_is_dumped_is_loaded_equal(memory: MemoryBackend, tmp_path: Path) -> None:
    records = filled(memory, 1203)
    assert memory.dump(tmp_path / "a.jsonl", ("u", "")) == 1203
    with ModelBackend() as other:
        assert other.load(tmp_path / "a.jsonl") == 1203
        assert records_of(other, ("u", "")) == records


def test_a_dump_loads_into_the_engine(tmp_path: Path) -> None:
    with ModelBackend() as one, fmemory.open(":memory:") as other:
        records = filled(one, 1203)
        one.dump(tmp_path / "a.jsonl", ("u", ""))
        other.load(tmp_path / "a.jsonl")
        assert records_of(other, ("u", "")) == records


def test_the_file_is_what_the_format_says(memory: MemoryBackend, tmp_path: Path) -> None:
    memory.ensure_embedding_id("model", ("u", ""))
    filled(memory, 1)
    memory.dump(tmp_path / "a.jsonl", ["u", ""])
    data = (tmp_path / "a.jsonl").read_bytes()
    assert data.endswith(b"\n") and b"\r" not in data
    assert "é🎉".encode() in data
    header, record = [json.loads(one) for one in data.decode().splitlines()]
    assert list(header) == list(HEADER)
    assert (header["embedding_id"], header["namespace"], header["count"]) == ("model", ["u", ""], 1)
    assert header["created_at"].endswith("Z")
    assert list(record) == ["note", "vector", "embedding_id", "namespace"]
    assert list(record["note"]) == ["id", "text", "timestamp", "metadata"]


def test_float32_vectors_come_back_as_the_same_values(
    memory: MemoryBackend, tmp_path: Path
) -> None:
    vector = np.random.default_rng(3).standard_normal(384).astype(np.float32)
    memory.put(memory.put_request([MemoryRecord.create(Note.create("a"), vector)]))
    memory.dump(tmp_path / "a.jsonl")
    with ModelBackend() as other:
        other.load(tmp_path / "a.jsonl")
        loaded = records_of(other, ())[0].vector
    assert loaded.dtype == np.float64
    assert loaded.astype(np.float32).tobytes() == vector.tobytes()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=60, max_size=70),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_every_number_comes_back_exactly(vector: list[float], timestamp: float) -> None:
    stream = io.StringIO()
    with ModelBackend() as one, ModelBackend() as other:
        one.put(one.put_request([MemoryRecord.create(Note("a", "", timestamp, {}), vector)]))
        one.dump(stream)
        other.load(io.StringIO(stream.getvalue()))
        assert records_of(other, ())[0].vector.tobytes() == np.array(vector).tobytes()
        assert records_of(other, ())[0].note.timestamp == timestamp


def test_a_path_that_ends_in_gz_is_compressed(memory: MemoryBackend, tmp_path: Path) -> None:
    filled(memory)
    memory.dump(tmp_path / "a.jsonl.gz", ("u", ""))
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).startswith(b'{"format"')
    with ModelBackend() as other:
        assert other.load(str(tmp_path / "a.jsonl.gz")) == 3


def test_the_same_records_give_the_same_compressed_bytes(tmp_path: Path) -> None:
    with ModelBackend() as memory:
        header = MemoryFileHeader.from_dict(
            {
                "embedding_id": None,
                "namespace": [],
                "created_at": "2026-01-31T12:00:00Z",
                "count": 3,
            }
        )
        records = filled(memory)
    for name in ("a.gz", "b.gz"):
        write_memory_file(tmp_path / name, header, records)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_streams_carry_text(memory: MemoryBackend) -> None:
    filled(memory)
    stream = io.StringIO()
    assert memory.dump(stream, ("u", "")) == 3
    with ModelBackend() as other:
        assert other.load(io.StringIO(stream.getvalue())) == 3


def test_a_stream_that_cannot_go_back_is_loaded(memory: MemoryBackend) -> None:
    reader, writer = os.pipe()
    os.write(writer, GOOD.encode())
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        assert memory.load(stream) == 2


def test_both_have_async_forms(memory: MemoryBackend, tmp_path: Path) -> None:
    async def round_trip() -> int:
        await memory.adump(tmp_path / "a.jsonl", ("u", ""))
        return await memory.aload(tmp_path / "a.jsonl", ("other",))

    filled(memory)
    assert asyncio.run(round_trip()) == 3
    assert len(records_of(memory, ("other",))) == 3


def test_records_may_go_to_another_namespace(memory: MemoryBackend) -> None:
    assert memory.load(io.StringIO(GOOD), ["x", "y"]) == 2
    assert [one.id for one in records_of(memory, ("x", "y"))] == ["a", "b"]
    assert records_of(memory, ("u",)) == []


def test_records_keep_their_own_namespaces(memory: MemoryBackend) -> None:
    memory.load(io.StringIO(text_of(HEADER, line("a"), line("a", namespace=[]))))
    assert [len(records_of(memory, space)) for space in ((), ("u",))] == [1, 1]


def embedding_id(memory: MemoryBackend, namespace: tuple[str, ...]) -> object:
    return memory.get_meta(memory.meta_get_request("embedding_id", namespace)).value


@pytest.mark.parametrize("home", [None, ("x",)])
def test_the_embedding_id_is_set_where_the_records_go(
    memory: MemoryBackend, home: tuple[str, ...] | None
) -> None:
    memory.load(io.StringIO(text_of({**HEADER, "embedding_id": "m"}, line("a"), line("b"))), home)
    assert embedding_id(memory, home or ("u",)) == "m"


def test_the_same_embedding_id_is_fine(memory: MemoryBackend) -> None:
    memory.ensure_embedding_id("m", ("u",))
    memory.load(io.StringIO(text_of({**HEADER, "embedding_id": "m"}, line("a"), line("b"))))
    assert embedding_id(memory, ("u",)) == "m"


def test_an_embedding_id_of_the_target_only_stays(memory: MemoryBackend) -> None:
    memory.ensure_embedding_id("m", ("u",))
    memory.load(io.StringIO(GOOD))
    assert embedding_id(memory, ("u",)) == "m"


def header(**changes: Any) -> str:
    return text_of({**HEADER, **changes}, line("a"), line("b"))


def without(name: str) -> str:
    return text_of(
        {key: value for key, value in HEADER.items() if key != name}, line("a"), line("b")
    )


def second(bad: object) -> str:
    return text_of(HEADER, line("a"), bad)


BAD_FILES: list[tuple[str, Reason, int]] = [
    ("", Reason.FILE_FORMAT, 1),
    ("\n", Reason.FILE_FORMAT, 1),
    ("hello\n", Reason.FILE_FORMAT, 1),
    ("[]\n", Reason.FILE_FORMAT, 1),
    (text_of(line("a")), Reason.FILE_FORMAT, 1),
    ("\ufeff" + GOOD, Reason.FILE_FORMAT, 1),
    (without("format"), Reason.FILE_FORMAT, 1),
    (header(format="other"), Reason.FILE_FORMAT, 1),
    (without("version"), Reason.FILE_FORMAT, 1),
    (header(version="2.0.0"), Reason.FILE_FORMAT, 1),
    (header(version="1"), Reason.FILE_FORMAT, 1),
    (header(version="1.0.0-rc"), Reason.FILE_FORMAT, 1),
    (header(version=1), Reason.FILE_FORMAT, 1),
    (header(format="other", count=-1), Reason.FILE_FORMAT, 1),
    (header(version="2.0.0", count=-1), Reason.FILE_FORMAT, 1),
    (without("count"), Reason.FILE_HEADER, 1),
    (without("namespace"), Reason.FILE_HEADER, 1),
    (header(count=-1), Reason.FILE_HEADER, 1),
    (header(count=2.0), Reason.FILE_HEADER, 1),
    (header(count=True), Reason.FILE_HEADER, 1),
    (header(namespace="u"), Reason.FILE_HEADER, 1),
    (header(namespace=[""]), Reason.FILE_HEADER, 1),
    (header(embedding_id=""), Reason.FILE_HEADER, 1),
    (header(created_at="2026-01-31T12:00:00"), Reason.FILE_HEADER, 1),
    (header(created_at="yesterday"), Reason.FILE_HEADER, 1),
    (header(created_at="2026-01-31T12:00:00+02:00"), Reason.FILE_HEADER, 1),
    (header(created_at="2026-01-31T12:00:00+00:00"), Reason.FILE_HEADER, 1),
    (header(created_at="2026-01-31 12:00:00Z"), Reason.FILE_HEADER, 1),
    (header(created_at="2026-01-31"), Reason.FILE_HEADER, 1),
    (header(created_at="20260131T120000Z"), Reason.FILE_HEADER, 1),
    (header(created_at="2026-02-30T12:00:00Z"), Reason.FILE_HEADER, 1),
    (header(created_at=1.0), Reason.FILE_HEADER, 1),
    (header(created_at=None), Reason.FILE_HEADER, 1),
    (header(extra=1), Reason.FILE_HEADER, 1),
    (text_of({**HEADER, "count": -1}, "broken"), Reason.FILE_HEADER, 1),
    (second(""), Reason.FILE_RECORD, 3),
    (second("  "), Reason.FILE_RECORD, 3),
    (GOOD + "\n", Reason.FILE_RECORD, 4),
    (second("{"), Reason.FILE_RECORD, 3),
    (second("[]"), Reason.FILE_RECORD, 3),
    (second("null"), Reason.FILE_RECORD, 3),
    (second({**line("b"), "extra": 1}), Reason.FILE_RECORD, 3),
    (second({"note": line()["note"]}), Reason.FILE_RECORD, 3),
    (second(line(note=None)), Reason.FILE_RECORD, 3),
    (second(noted(id="")), Reason.FILE_RECORD, 3),
    (second(noted(id=1)), Reason.FILE_RECORD, 3),
    (second(noted(text=None)), Reason.FILE_RECORD, 3),
    (second(noted(timestamp="1")), Reason.FILE_RECORD, 3),
    (second(noted(timestamp=True)), Reason.FILE_RECORD, 3),
    (second(noted(timestamp=2**53 + 1)), Reason.FILE_RECORD, 3),
    (second(noted(metadata=None)), Reason.FILE_RECORD, 3),
    (second(noted(metadata={"a": 2**70})), Reason.FILE_RECORD, 3),
    (second(noted(metadata={"a": float("nan")})), Reason.FILE_RECORD, 3),
    (second(noted(extra=1)), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[float("nan")])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[float("inf")])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=["1"])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[True])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[None])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[[1.0]])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=None)), Reason.FILE_RECORD, 3),
    (second(line("b", vector=0)), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[0.1] * 100 + [True])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[0.1] * 100 + [float("nan")])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[0.1] * 100 + [None])), Reason.FILE_RECORD, 3),
    (second(line("b", vector=[[0.1] * 100])), Reason.FILE_RECORD, 3),
    (second(line("b", vector={str(n): n for n in range(100)})), Reason.FILE_RECORD, 3),
    (second(json.dumps(line("b")).replace("0.5", "1e999")), Reason.FILE_RECORD, 3),
    (second(line("b", embedding_id="")), Reason.FILE_RECORD, 3),
    (second(line("b", embedding_id=1)), Reason.FILE_RECORD, 3),
    (second(line("b", namespace="u")), Reason.FILE_RECORD, 3),
    (second(line("b", namespace=[""])), Reason.FILE_RECORD, 3),
    (second(json.dumps(noted(text="x")).replace('"x"', '"\\ud800"')), Reason.FILE_RECORD, 3),
    (second('{"note": 1, ' + json.dumps(line("b"))[1:]), Reason.FILE_RECORD, 3),
    (second(json.dumps(line("b")).replace('"text"', '"id": "b", "text"')), Reason.FILE_RECORD, 3),
    (
        second(json.dumps(line("b", vector=[0.1] * 99))[:-1] + ', "vector": []}'),
        Reason.FILE_RECORD,
        3,
    ),
    (text_of(HEADER, line("a"), line("a"), "broken"), Reason.FILE_RECORD, 4),
    (text_of(HEADER, line("a"), line("a")), Reason.FILE_DUPLICATE, 3),
    (text_of(HEADER, line("a"), line("a"), line("b")), Reason.FILE_DUPLICATE, 3),
    (text_of(HEADER, line("a")), Reason.FILE_COUNT, 1),
    (text_of(HEADER, line("a"), line("b"), line("c")), Reason.FILE_COUNT, 1),
    (text_of(HEADER), Reason.FILE_COUNT, 1),
]


@pytest.mark.parametrize(("text", "reason", "number"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_is_refused_by_line_and_stores_nothing(
    tmp_path: Path, text: str, reason: Reason, number: int
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    with ModelBackend() as memory:
        for source in (path, io.StringIO(text)):
            with pytest.raises(MemoryFileError) as caught:
                memory.load(source)
            assert (caught.value.reason, caught.value.line) == (reason, number)
            assert caught.value.path == (str(path) if source is path else None)
        assert memory.state.writes == 0


def test_ids_that_meet_in_the_new_namespace_are_refused(memory: MemoryBackend) -> None:
    text = text_of(HEADER, line("a"), line("a", namespace=[]))
    with pytest.raises(MemoryFileError) as caught:
        memory.load(io.StringIO(text), ("x",))
    assert (caught.value.reason, caught.value.line) == (Reason.FILE_DUPLICATE, 3)


def test_an_id_that_exists_is_refused_by_line(memory: MemoryBackend) -> None:
    memory.add_note("here", id="b", namespace=("u",))
    with pytest.raises(MemoryFileError) as caught:
        memory.load(io.StringIO(GOOD))
    assert (caught.value.reason, caught.value.line) == (Reason.FILE_PRESENT, 3)
    assert [one.note.text for one in records_of(memory, ("u",))] == ["here"]


def test_another_embedding_id_is_refused_before_ids_are_looked_for(memory: MemoryBackend) -> None:
    memory.add_note("here", id="b", namespace=("u",))
    memory.ensure_embedding_id("theirs", ("u",))
    with pytest.raises(MemoryFileError) as caught:
        memory.load(io.StringIO(header(embedding_id="ours")))
    assert (caught.value.reason, caught.value.line) == (Reason.FILE_EMBEDDING, 1)


@pytest.mark.parametrize("version", ["1.0.7", "1.9.0"])
def test_a_later_minor_version_is_read(memory: MemoryBackend, version: str) -> None:
    changes = {"later": 1} if version == "1.9.0" else {}
    assert memory.load(io.StringIO(header(version=version, **changes))) == 2


def test_a_last_line_needs_no_end(memory: MemoryBackend) -> None:
    assert memory.load(io.StringIO(GOOD.rstrip("\n"))) == 2


def test_a_long_vector_whose_text_stands_in_the_note_is_read_right(memory: MemoryBackend) -> None:
    vector = [0.25] * 100
    text = json.dumps(vector)
    memory.load(
        io.StringIO(text_of({**HEADER, "count": 1}, {**noted(text=text), "vector": vector}))
    )
    found = records_of(memory, ("u",))[0]
    assert (found.note.text, found.vector.tolist()) == (text, vector)


@pytest.mark.parametrize("damage", ["cut", "flip", "plain"])
def test_damaged_gzip_is_an_error_of_the_file(
    memory: MemoryBackend, tmp_path: Path, damage: str
) -> None:
    data = bytearray(gzip.compress(GOOD.encode()))
    if damage == "cut":
        del data[-9:]
    elif damage == "flip":
        data[-6] ^= 1
    else:
        data = bytearray(GOOD.encode())
    (tmp_path / "a.gz").write_bytes(data)
    with pytest.raises(MemoryFileError) as caught:
        memory.load(tmp_path / "a.gz")
    assert caught.value.reason is Reason.FILE_UNREADABLE
    assert records_of(memory, ("u",)) == []


def test_bytes_that_are_not_utf8_are_refused_by_line(memory: MemoryBackend, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(GOOD.encode().replace(b'"b"', b'"\xff"'))
    with pytest.raises(MemoryFileError) as caught:
        memory.load(tmp_path / "a")
    assert (caught.value.reason, caught.value.line) == (Reason.FILE_RECORD, 3)


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_an_error_of_the_file(
    memory: MemoryBackend, tmp_path: Path, name: str
) -> None:
    with pytest.raises(MemoryFileError) as caught:
        memory.load(tmp_path / name)
    assert caught.value.reason is Reason.FILE_UNREADABLE
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    "bad", [None, 5, "", b"a", io.BytesIO(b"x"), "a\0b"], ids=lambda bad: f"{bad!r:.12}"
)
def test_a_source_or_target_is_a_path_or_a_text_stream(memory: MemoryBackend, bad: Any) -> None:
    with pytest.raises(ContractError):
        memory.load(bad)
    with pytest.raises(ContractError):
        memory.dump(bad)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [("", Reason.EMPTY), ("a\0b", Reason.BAD_VALUE), ("a\ud800", Reason.LONE_SURROGATE)],
    ids=repr,
)
def test_a_path_that_no_file_can_have_is_named(
    memory: MemoryBackend, bad: str, reason: Reason
) -> None:
    for what, call in (("source", memory.load), ("target", memory.dump)):
        with pytest.raises(ContractError) as caught:
            call(bad)
        assert (caught.value.where, caught.value.reason) == (what, reason)
        assert "got str" not in str(caught.value)


@pytest.mark.parametrize("path", [".", "..", "/", "./", "x" * 300, "x" * 9999], ids=repr)
def test_a_path_that_is_no_file_is_an_error_of_the_file(
    memory: MemoryBackend, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MemoryFileError) as caught:
        memory.dump(path)
    assert caught.value.reason is Reason.FILE_UNWRITABLE
    with pytest.raises(MemoryFileError) as caught:
        memory.load(path)
    assert caught.value.reason is Reason.FILE_UNREADABLE


def test_a_name_of_dots_and_gz_alone_is_gzip_both_ways(
    memory: MemoryBackend, tmp_path: Path
) -> None:
    filled(memory)
    memory.dump(tmp_path / ".gz", ("u", ""))
    with ModelBackend() as other:
        assert other.load(tmp_path / ".gz") == 3


def test_a_symbolic_link_stays_and_the_file_behind_it_is_written(
    memory: MemoryBackend, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to(Path("real") / "a.jsonl")
    filled(memory)
    memory.dump(tmp_path / "link.jsonl", ("u", ""))
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real" / "a.jsonl").read_text().startswith('{"format"')
    assert names_in(tmp_path) == ["link.jsonl", "real"]
    assert names_in(tmp_path / "real") == ["a.jsonl"]


def test_a_symbolic_link_to_nothing_yet_makes_the_file(
    memory: MemoryBackend, tmp_path: Path
) -> None:
    (tmp_path / "link.jsonl").symlink_to("a.jsonl")
    memory.dump(tmp_path / "link.jsonl")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "a.jsonl").is_file()


def test_symbolic_links_in_a_circle_are_refused(memory: MemoryBackend, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("b.jsonl")
    (tmp_path / "b.jsonl").symlink_to("a.jsonl")
    with pytest.raises(MemoryFileError) as caught:
        memory.dump(tmp_path / "a.jsonl")
    assert caught.value.reason is Reason.FILE_UNWRITABLE
    assert (tmp_path / "a.jsonl").is_symlink()


@pytest.mark.parametrize("place", ["pipe", "link"])
def test_a_pipe_is_neither_written_nor_replaced(
    memory: MemoryBackend, tmp_path: Path, place: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(MemoryFileError) as caught:
        memory.dump(tmp_path / place)
    assert caught.value.reason is Reason.FILE_UNWRITABLE
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert names_in(tmp_path) == ["link", "pipe"]


def test_a_device_is_neither_written_nor_replaced(memory: MemoryBackend) -> None:
    with pytest.raises(MemoryFileError) as caught:
        memory.dump(os.devnull)
    assert caught.value.reason is Reason.FILE_UNWRITABLE


def test_a_failed_dump_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    class Failing(ModelBackend):
        """Gives one page of one record, then refuses."""

        def scan(self, request: Any) -> Any:
            if request.cursor is not None:
                raise StoreBusy("busy", timeout_s=0.0)
            return super().scan(self.scan_request(namespace=request.namespace, limit=1))

    path = tmp_path / "a.jsonl"
    path.write_text("precious")
    with Failing() as memory, pytest.raises(StoreBusy):
        filled(memory)
        memory.dump(path, ("u", ""))
    assert path.read_text() == "precious"
    assert names_in(tmp_path) == ["a.jsonl"]


def test_a_dump_whose_records_change_meanwhile_fails(tmp_path: Path) -> None:
    class Growing(ModelBackend):
        def scan(self, request: Any) -> Any:
            self.add_note("one more", namespace=request.namespace)
            return super().scan(request)

    with Growing() as memory, pytest.raises(MemoryFileError) as caught:
        filled(memory)
        memory.dump(tmp_path / "a.jsonl", ("u", ""))
    assert caught.value.reason is Reason.FILE_CHANGED
    assert names_in(tmp_path) == []


def test_a_partial_file_of_a_crash_is_replaced(memory: MemoryBackend, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.partial").write_text("left behind")
    filled(memory)
    memory.dump(tmp_path / "a.jsonl", ("u", ""))
    assert names_in(tmp_path) == ["a.jsonl"]


def test_two_dumps_to_one_name_never_mix(tmp_path: Path) -> None:
    class Interrupted(ModelBackend):
        def scan(self, request: Any) -> Any:
            with ModelBackend() as other:
                filled(other)
                other.dump(tmp_path / "a.jsonl", ("u", ""))
            return super().scan(request)

    with Interrupted() as memory, pytest.raises(MemoryFileError) as caught:
        filled(memory)
        memory.dump(tmp_path / "a.jsonl", ("u", ""))
    assert caught.value.reason is Reason.FILE_UNWRITABLE
    assert names_in(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize("name", [".", "no/such/folder.jsonl"])
def test_a_target_that_cannot_be_written_is_an_error_of_the_file(
    memory: MemoryBackend, tmp_path: Path, name: str
) -> None:
    with pytest.raises(MemoryFileError) as caught:
        memory.dump(tmp_path / name)
    assert caught.value.reason is Reason.FILE_UNWRITABLE


def test_a_closed_stream_is_an_error_of_the_file(memory: MemoryBackend) -> None:
    stream = io.StringIO()
    stream.close()
    with pytest.raises(MemoryFileError) as caught:
        memory.dump(stream)
    assert caught.value.reason is Reason.FILE_UNWRITABLE
    with pytest.raises(MemoryFileError) as caught:
        memory.load(stream)
    assert caught.value.reason is Reason.FILE_UNREADABLE


def test_a_stream_of_bytes_that_does_not_say_so_is_refused(memory: MemoryBackend) -> None:
    with tempfile.NamedTemporaryFile() as stream:
        with pytest.raises(ContractError) as caught:
            memory.dump(cast("Any", stream))
        assert caught.value.where == "target"
        stream.write(b"x")
        stream.seek(0)
        with pytest.raises(ContractError) as caught:
            memory.load(cast("Any", stream))
        assert caught.value.where == "source"


def test_a_dump_is_private_to_its_owner(memory: MemoryBackend, tmp_path: Path) -> None:
    memory.dump(tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600


class Refusing(ModelBackend):
    """Takes one put, then refuses."""

    puts = 0

    def put(self, request: PutRequest) -> PutResult:
        self.puts += 1
        if self.puts > 1:
            raise StoreBusy("busy", timeout_s=0.0)
        return super().put(request)


def test_a_load_that_fails_takes_back_what_it_wrote() -> None:
    count = LOAD_BATCH_RECORDS + 1
    text = text_of({**HEADER, "count": count}, *(line(f"n{n}") for n in range(count)))
    with Refusing() as memory:
        with pytest.raises(StoreBusy) as caught:
            memory.load(io.StringIO(text))
        assert records_of(memory, ("u",)) == []
    assert caught.value.__notes__ == [
        f"{LOAD_BATCH_RECORDS} records that were loaded before have been deleted again"
    ]


def test_a_load_that_cannot_take_back_says_so() -> None:
    class Stuck(Refusing):
        def delete(self, request: Any) -> Any:  # noqa: ARG002 - the contract's signature
            raise StoreBusy("still busy", timeout_s=0.0)

    count = LOAD_BATCH_RECORDS + 1
    text = text_of({**HEADER, "count": count}, *(line(f"n{n}") for n in range(count)))
    with Stuck() as memory, pytest.raises(StoreBusy) as caught:
        memory.load(io.StringIO(text))
    assert f"{LOAD_BATCH_RECORDS} of {LOAD_BATCH_RECORDS} records" in caught.value.__notes__[0]


def test_a_file_that_changes_between_the_passes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD)
    with MemoryFileReader(path) as file, pytest.raises(MemoryFileError) as caught:
        path.write_text(text_of(HEADER, line("a"), line("c")))
        list(file.records())
    assert caught.value.reason is Reason.FILE_CHANGED


def test_the_reader_gives_ids_and_records_in_the_order_of_the_file() -> None:
    with MemoryFileReader(io.StringIO(text_of(HEADER, line("b"), line("a")))) as file:
        assert file.ids == {("u",): ["b", "a"]}
        assert [one.id for one in file.records()] == ["b", "a"]
        assert [one.id for one in file.records()] == ["b", "a"], "any number of times"
        assert (file.header.count, file.namespace) == (2, ("u",))
