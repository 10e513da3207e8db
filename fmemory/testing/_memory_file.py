"""The memory file: dumped whole or not at all, checked whole before a load."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from pathlib import Path

import pytest

from fmemory._json_values import JsonObject, JsonValue
from fmemory.backend import MemoryBackend
from fmemory.errors import ContractError, MemoryFileError, Reason
from fmemory.testing._backend_base import BackendSuiteBase, Stores
from fmemory.testing._records_values import IDS, METADATA, TEXTS, VECTORS
from fmemory.testing._samples import identity, record, records, scan, scan_ids

HEADER: JsonObject = {
    "format": "coniti-memory",
    "version": "1.0.0",
    "embedding_id": None,
    "namespace": [],
    "created_at": "2025-01-02T03:04:05Z",
    "count": 2,
}


def line_of(record_id: str, **changes: JsonValue) -> JsonObject:
    """A record of the file."""
    note: JsonObject = {"id": record_id, "text": "x", "timestamp": 1.5, "metadata": {}}
    return {
        "note": note,
        "vector": [1.0, 2.0],
        "embedding_id": None,
        "namespace": [],
        **changes,
    }


def text_of(*lines: JsonObject, header: JsonObject | None = None, **changes: JsonValue) -> str:
    """A whole file; without lines one of two good records."""
    rows = list(lines) if lines else [line_of("a"), line_of("b")]
    first = {**HEADER, "count": len(rows), **changes} if header is None else header
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in [first, *rows])


def without(data: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in data.items() if name != key}


def with_note(record_id: str, **changes: JsonValue) -> JsonObject:
    note: JsonObject = {"id": record_id, "text": "x", "timestamp": 1.5, "metadata": {}}
    return line_of(record_id, note={**note, **changes})


# A file, why it is refused, and the line that is to blame (None where the claim leaves it open).
BAD_FILES: dict[str, tuple[str, Reason, int | None]] = {
    "empty": ("", Reason.FILE_FORMAT, 1),
    "no json": ("hello\n", Reason.FILE_FORMAT, 1),
    "list": ("[1]\n", Reason.FILE_FORMAT, 1),
    "other format": (text_of(format="other"), Reason.FILE_FORMAT, 1),
    "no format": (text_of(header=without({**HEADER}, "format")), Reason.FILE_FORMAT, 1),
    "major version": (text_of(version="2.0.0"), Reason.FILE_FORMAT, 1),
    "version number": (text_of(version=1), Reason.FILE_FORMAT, 1),
    "no version": (text_of(header=without({**HEADER}, "version")), Reason.FILE_FORMAT, 1),
    "no count": (text_of(header=without({**HEADER}, "count")), Reason.FILE_HEADER, 1),
    "count text": (text_of(count="2"), Reason.FILE_HEADER, 1),
    "count negative": (text_of(count=-1), Reason.FILE_HEADER, 1),
    "no namespace": (text_of(header=without({**HEADER}, "namespace")), Reason.FILE_HEADER, 1),
    "namespace text": (text_of(namespace="a"), Reason.FILE_HEADER, 1),
    "namespace int": (text_of(namespace=[1]), Reason.FILE_HEADER, 1),
    "embedding id int": (text_of(embedding_id=1), Reason.FILE_HEADER, 1),
    "created naive": (text_of(created_at="2025-01-02T03:04:05"), Reason.FILE_HEADER, 1),
    "created text": (text_of(created_at="yesterday"), Reason.FILE_HEADER, 1),
    "blank line": (text_of().replace("\n", "\n\n", 1), Reason.FILE_RECORD, 2),
    "blank last line": (text_of() + "\n", Reason.FILE_RECORD, 4),
    "cut line": (text_of()[:-9], Reason.FILE_RECORD, 3),
    "record list": (text_of().replace('{"note"', '[{"note"', 1), Reason.FILE_RECORD, 2),
    "extra field": (text_of(line_of("a", extra=1)), Reason.FILE_RECORD, 2),
    "no vector": (text_of(without(line_of("a"), "vector")), Reason.FILE_RECORD, 2),
    "no note": (text_of(without(line_of("a"), "note")), Reason.FILE_RECORD, 2),
    "no id": (text_of(line_of("a", note={"text": "x"})), Reason.FILE_RECORD, 2),
    "extra in note": (text_of(with_note("a", extra=1)), Reason.FILE_RECORD, 2),
    "empty id": (text_of(with_note("")), Reason.FILE_RECORD, 2),
    "id int": (text_of(line_of("a"), with_note("b", id=2)), Reason.FILE_RECORD, 3),
    "time text": (text_of(with_note("a", timestamp="1")), Reason.FILE_RECORD, 2),
    "metadata list": (text_of(with_note("a", metadata=[])), Reason.FILE_RECORD, 2),
    "vector text": (text_of(line_of("a", vector=["1"])), Reason.FILE_RECORD, 2),
    "vector nested": (text_of(line_of("a", vector=[[1.0]])), Reason.FILE_RECORD, 2),
    "vector nan": (text_of().replace("2.0]", "NaN]", 1), Reason.FILE_RECORD, 2),
    "time infinite": (text_of().replace("1.5", "Infinity", 1), Reason.FILE_RECORD, 2),
    "number beyond float": (text_of().replace("1.5", "1e999", 1), Reason.FILE_RECORD, 2),
    "metadata nan": (
        text_of().replace('"metadata": {}', '"metadata": {"a": NaN}', 1),
        Reason.FILE_RECORD,
        2,
    ),
    "surrogate": (text_of().replace('"x"', '"\\ud800"', 1), Reason.FILE_RECORD, 2),
    "repeated id": (text_of(line_of("a"), line_of("b"), line_of("a")), Reason.FILE_DUPLICATE, 4),
    "count too large": (text_of(count=3), Reason.FILE_COUNT, None),
    "count too small": (text_of(count=1), Reason.FILE_COUNT, None),
    "present id": (text_of(line_of("new"), line_of("r0")), Reason.FILE_PRESENT, 3),
}
# Of two faults in one file the earlier in the order of checks is named, wherever it stands.
ORDERED_FAULTS: dict[str, tuple[str, Reason]] = {
    "format before header": (text_of(format="x", count=-1), Reason.FILE_FORMAT),
    "header before record": (text_of(line_of("", extra=1), count=-1), Reason.FILE_HEADER),
    "record before duplicate": (
        text_of(line_of("a"), line_of("a"), line_of("b", extra=1)),
        Reason.FILE_RECORD,
    ),
    "duplicate before count": (
        text_of(line_of("a"), line_of("a"), count=9),
        Reason.FILE_DUPLICATE,
    ),
    "count before embedding": (text_of(count=9, embedding_id="other"), Reason.FILE_COUNT),
    "embedding before present": (
        text_of(line_of("r0"), embedding_id="other"),
        Reason.FILE_EMBEDDING,
    ),
}


class DumpPart(BackendSuiteBase):
    """What `dump` promises."""

    def test_dump_returns_the_number_of_records(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        self.put(memory, *records(1, 2, 3))
        assert memory.dump(tmp_path / "memory.jsonl") == 3

    def test_dumped_file_is_a_header_and_a_line_a_record(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        self.put(memory, *records(3, 1, 2))
        memory.dump(tmp_path / "memory.jsonl")
        raw = (tmp_path / "memory.jsonl").read_bytes()
        lines = [json.loads(one) for one in raw.decode("utf-8").splitlines()]
        assert [one["note"]["id"] for one in lines[1:]] == ["r1", "r2", "r0"]
        assert all(set(one) == set(line_of("a")) for one in lines[1:])
        assert raw.endswith(b"}\n")

    def test_header_says_format_count_namespace_and_time(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        self.put(memory, record("x", namespace=("a", "b")))
        self.set_meta(memory, "embedding_id", "model", ("a", "b"))
        memory.dump(tmp_path / "memory.jsonl", ("a", "b"))
        header = json.loads((tmp_path / "memory.jsonl").read_text("utf-8").splitlines()[0])
        created = header.pop("created_at")
        expected = {**without(HEADER, "created_at"), "embedding_id": "model", "count": 1}
        assert header == {**expected, "namespace": ["a", "b"]}
        assert created.endswith("Z")

    def test_text_is_written_as_utf_8_and_not_escaped(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        self.put(memory, record("a", text="漢字 é \U0001f680"))
        memory.dump(tmp_path / "memory.jsonl")
        assert "漢字 é \U0001f680".encode() in (tmp_path / "memory.jsonl").read_bytes()

    def test_path_ending_in_gz_is_gzip(self, memory: MemoryBackend, tmp_path: Path) -> None:
        self.put(memory, *records(1, 2))
        memory.dump(tmp_path / "plain.jsonl")
        memory.dump(tmp_path / "memory.jsonl.gz")
        plain = (tmp_path / "plain.jsonl").read_bytes().splitlines()[1:]
        packed = gzip.decompress((tmp_path / "memory.jsonl.gz").read_bytes()).splitlines()[1:]
        assert packed == plain

    def test_stream_carries_text(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2))
        stream = io.StringIO()
        assert memory.dump(stream) == 2
        assert len(stream.getvalue().splitlines()) == 3

    def test_dump_leaves_no_partial_file(self, memory: MemoryBackend, tmp_path: Path) -> None:
        folder = tmp_path / "out"
        folder.mkdir()
        self.put(memory, record("a"))
        memory.dump(folder / "memory.jsonl")
        assert [one.name for one in folder.iterdir()] == ["memory.jsonl"]

    def test_failed_dump_leaves_the_previous_file(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        folder = tmp_path / "out"
        (folder / "memory.jsonl.partial").mkdir(parents=True)
        (folder / "memory.jsonl").write_text("before")
        with self.refused(memory, MemoryFileError, Reason.FILE_UNWRITABLE):
            memory.dump(folder / "memory.jsonl")
        assert (folder / "memory.jsonl").read_text() == "before"

    def test_dump_into_a_folder_that_is_missing_is_refused(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        with self.refused(memory, MemoryFileError, Reason.FILE_UNWRITABLE):
            memory.dump(tmp_path / "nowhere" / "memory.jsonl")

    @pytest.mark.parametrize("target", [None, 5, b"path"])
    def test_target_of_another_type_is_refused(self, memory: MemoryBackend, target: object) -> None:
        with self.refused(memory, ContractError, Reason.WRONG_TYPE):
            self.untyped(memory, "dump", target)

    def test_dump_of_an_empty_namespace_is_a_header(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        assert memory.dump(tmp_path / "memory.jsonl") == 0
        assert len((tmp_path / "memory.jsonl").read_bytes().splitlines()) == 1

    def test_dump_writes_nothing_into_the_store(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        self.put(memory, record("a"))
        with self.nothing_written(memory):
            memory.dump(tmp_path / "memory.jsonl")

    def test_async_dump_is_the_sync_one(self, memory: MemoryBackend, tmp_path: Path) -> None:
        self.put(memory, *records(1, 2))
        assert asyncio.run(memory.adump(tmp_path / "a.jsonl")) == 2
        memory.dump(tmp_path / "b.jsonl")
        first, second = [
            (tmp_path / one).read_text().splitlines()[1:] for one in ("a.jsonl", "b.jsonl")
        ]
        assert first == second


class LoadPart(BackendSuiteBase):
    """What `load` promises."""

    def test_load_returns_the_number_of_records(self, memory: MemoryBackend) -> None:
        assert memory.load(io.StringIO(text_of())) == 2

    def test_everything_round_trips(self, stores: Stores, tmp_path: Path) -> None:
        source, target = stores.open("source"), stores.open("target")
        many = [
            record(one, i / 3, text=TEXTS[i % 6], metadata=METADATA[i % 8], embedding_id="m")
            for i, one in enumerate(IDS)
        ]
        self.put(source, *many)
        source.dump(tmp_path / "memory.jsonl.gz")
        target.load(tmp_path / "memory.jsonl.gz")
        assert [identity(one) for one in scan(target)] == [identity(one) for one in many]

    @pytest.mark.parametrize("number", range(len(VECTORS)))
    def test_vector_values_round_trip_exactly(
        self, stores: Stores, tmp_path: Path, number: int
    ) -> None:
        source, target = stores.open("source"), stores.open("target")
        self.put(source, record("a", vector=VECTORS[number]))
        source.dump(tmp_path / "memory.jsonl")
        target.load(tmp_path / "memory.jsonl")
        found = scan(target)[0].vector
        assert list(map(repr, found.tolist())) == list(map(repr, VECTORS[number].tolist()))

    def test_loaded_equal_times_keep_the_order_of_the_file(self, memory: MemoryBackend) -> None:
        memory.load(io.StringIO(text_of(*(line_of(one) for one in "dbca"))))
        assert scan_ids(memory) == ["d", "b", "c", "a"]

    def test_load_of_more_than_a_batch_is_whole(self, memory: MemoryBackend) -> None:
        many = [line_of(f"x{i}") for i in range(1203)]
        assert memory.load(io.StringIO(text_of(*many))) == 1203
        assert scan_ids(memory) == [f"x{i}" for i in range(1203)]

    def test_records_land_in_the_namespaces_they_name(self, memory: MemoryBackend) -> None:
        lines = (line_of("x", namespace=["a"]), line_of("x"), line_of("x", namespace=["a", "b"]))
        memory.load(io.StringIO(text_of(*lines)))
        assert [scan_ids(memory, one) for one in ((), ("a",), ("a", "b"))] == [["x"]] * 3

    def test_load_into_a_namespace_rehomes_all(self, memory: MemoryBackend) -> None:
        lines = (line_of("x", namespace=["a"]), line_of("y"))
        memory.load(io.StringIO(text_of(*lines)), ("user1",))
        assert (scan_ids(memory, ("user1",)), scan_ids(memory, ("a",))) == (["x", "y"], [])

    def test_rehoming_that_makes_ids_meet_is_refused(self, memory: MemoryBackend) -> None:
        lines = (line_of("x", namespace=["a"]), line_of("x"))
        with self.refused(memory, MemoryFileError, Reason.FILE_DUPLICATE):
            memory.load(io.StringIO(text_of(*lines)), ("user1",))

    def test_records_are_added_to_those_there(self, memory: MemoryBackend) -> None:
        self.put(memory, *records(1, 2))
        memory.load(io.StringIO(text_of()))
        assert sorted(scan_ids(memory)) == ["a", "b", "r0", "r1"]

    def test_embedding_id_of_the_header_is_set_where_there_was_none(
        self, memory: MemoryBackend
    ) -> None:
        memory.load(io.StringIO(text_of(embedding_id="model", namespace=["a"])))
        assert self.get_meta(memory, "embedding_id", ("a",)) == "model"
        assert self.get_meta(memory, "embedding_id") is None

    def test_embedding_id_is_set_where_records_are_rehomed(self, memory: MemoryBackend) -> None:
        memory.load(io.StringIO(text_of(embedding_id="model", namespace=["a"])), ("user1",))
        assert self.get_meta(memory, "embedding_id", ("user1",)) == "model"
        assert self.get_meta(memory, "embedding_id", ("a",)) is None

    def test_file_of_another_embedding_id_is_refused(self, memory: MemoryBackend) -> None:
        self.set_meta(memory, "embedding_id", "model-1")
        with self.refused(memory, MemoryFileError, Reason.FILE_EMBEDDING):
            memory.load(io.StringIO(text_of(embedding_id="model-2")))

    @pytest.mark.parametrize(("there", "given"), [("model", "model"), ("model", None)])
    def test_file_whose_embedding_id_does_not_contradict_is_loaded(
        self, memory: MemoryBackend, there: str, given: str | None
    ) -> None:
        self.set_meta(memory, "embedding_id", there)
        assert memory.load(io.StringIO(text_of(embedding_id=given))) == 2
        assert self.get_meta(memory, "embedding_id") == there

    @pytest.mark.parametrize("case", BAD_FILES)
    def test_bad_file_is_refused_and_nothing_loaded(self, memory: MemoryBackend, case: str) -> None:
        text, reason, line = BAD_FILES[case]
        self.put(memory, record("r0"))
        with self.refused(memory, MemoryFileError, reason) as caught:
            memory.load(io.StringIO(text))
        assert line is None or caught.value.line == line

    @pytest.mark.parametrize("case", ORDERED_FAULTS)
    def test_of_two_faults_the_first_in_order_is_named(
        self, memory: MemoryBackend, case: str
    ) -> None:
        text, reason = ORDERED_FAULTS[case]
        self.put(memory, record("r0"))
        self.set_meta(memory, "embedding_id", "model")
        with self.refused(memory, MemoryFileError, reason):
            memory.load(io.StringIO(text))

    def test_later_minor_version_is_read(self, memory: MemoryBackend) -> None:
        assert memory.load(io.StringIO(text_of(version="1.7.3"))) == 2

    def test_file_without_last_newline_is_read(self, memory: MemoryBackend) -> None:
        assert memory.load(io.StringIO(text_of().rstrip("\n"))) == 2

    def test_second_load_of_a_file_is_refused(self, memory: MemoryBackend) -> None:
        memory.load(io.StringIO(text_of()))
        with self.refused(memory, MemoryFileError, Reason.FILE_PRESENT):
            memory.load(io.StringIO(text_of()))

    def test_missing_file_is_refused(self, memory: MemoryBackend, tmp_path: Path) -> None:
        with self.refused(memory, MemoryFileError, Reason.FILE_UNREADABLE):
            memory.load(tmp_path / "nowhere.jsonl")

    def test_folder_is_no_file(self, memory: MemoryBackend, tmp_path: Path) -> None:
        with self.refused(memory, MemoryFileError, Reason.FILE_UNREADABLE):
            memory.load(tmp_path)

    def test_every_cut_of_a_gzip_file_is_refused(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        packed = gzip.compress(text_of().encode())
        path = tmp_path / "memory.jsonl.gz"
        for length in range(0, len(packed), 7):
            path.write_bytes(packed[:length])
            with pytest.raises(MemoryFileError):
                memory.load(path)
        assert scan_ids(memory) == []

    def test_gzip_with_a_changed_byte_is_refused(
        self, memory: MemoryBackend, tmp_path: Path
    ) -> None:
        packed = bytearray(gzip.compress(text_of().encode()))
        packed[len(packed) // 2] ^= 0xFF
        (tmp_path / "memory.jsonl.gz").write_bytes(packed)
        with self.nothing_written(memory), pytest.raises(MemoryFileError):
            memory.load(tmp_path / "memory.jsonl.gz")

    def test_file_that_is_no_utf_8_is_refused(self, memory: MemoryBackend, tmp_path: Path) -> None:
        raw = text_of().encode().replace(b'"x"', b'"\xff"', 1)
        (tmp_path / "memory.jsonl").write_bytes(raw)
        with self.refused(memory, MemoryFileError, Reason.FILE_RECORD) as caught:
            memory.load(tmp_path / "memory.jsonl")
        assert (caught.value.line, caught.value.path) == (2, str(tmp_path / "memory.jsonl"))

    def test_stream_that_fails_is_a_memory_file_error(self, memory: MemoryBackend) -> None:
        with self.nothing_written(memory), pytest.raises(MemoryFileError):
            memory.load(FailingStream(text_of()))

    @pytest.mark.parametrize("source", [None, 5, b"path"])
    def test_source_of_another_type_is_refused(self, memory: MemoryBackend, source: object) -> None:
        with self.refused(memory, ContractError, Reason.WRONG_TYPE):
            self.untyped(memory, "load", source)

    @pytest.mark.parametrize("namespace", ["a", ("",), (1,)])
    def test_bad_namespace_is_refused(self, memory: MemoryBackend, namespace: object) -> None:
        with self.nothing_written(memory), pytest.raises(ContractError):
            self.untyped(memory, "load", io.StringIO(text_of()), namespace)

    def test_async_load_is_the_sync_one(self, memory: MemoryBackend) -> None:
        assert asyncio.run(memory.aload(io.StringIO(text_of()))) == 2
        assert scan_ids(memory) == ["a", "b"]


class FailingStream(io.StringIO):
    """A stream that breaks at its second line."""

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # typeshed
        self._fail()
        return super().readline(-1 if size is None else size)

    def read(self, size: int | None = -1, /) -> str:
        self._fail()
        return super().read(size)

    def __next__(self) -> str:  # type: ignore[override]  # typeshed
        self._fail()
        return super().__next__()

    def _fail(self) -> None:
        if self.tell():
            raise OSError(5, "the disk is gone")
