"""Whole frames and files that were moved, doubled or exchanged give the old events, or an error.

Goal: bytes that are right by themselves, but stand where they do not belong, never change what a
reader gets in silence. Method: a store of several segments; frames and files of it, of an older
copy of it and of another store are spliced in every way; reader and writer must get exactly the old
events or a named error, and the writer that refuses changes nothing. What would have to break: a
checksum that does not know its place, a seq or a chain that is not compared, a witness that nobody
asks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import permutations
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from fmemory_segments import Head, Log, LogError, PosixFileSystem, _load, _tail, verify_store
from fmemory_segments.recovery import CLEAN
from tests.crash.disk import QuickFileSystem
from tests.crash.programs import Fact, Runner, facts_of
from tests.segments.log_tools import files_of, segments_of

PROGRAM = ("batch", "put", "roll", "put", "batch", "roll", "batch", "put", "delete")
COMPACTED = (
    "batch",
    "roll",
    "put",
    "delete",
    "compact",
    "roll",
    "delete",
    "compact",
    "batch",
    "put",
)
Files = dict[str, bytes]


class Store(NamedTuple):
    """A store as files, what it holds, and where its frames lie.

    Attributes:
        extents: By file, the start and end of each frame.
        head: Its newest event and chain value.
    """

    files: Files
    facts: list[Fact]
    extents: dict[str, list[tuple[int, int]]]
    head: Head

    @property
    def segments(self) -> list[str]:
        """Names of its segments, in order."""
        return sorted(name for name in self.files if name.startswith("seg-"))


def make(path: Path, program: tuple[str, ...] = PROGRAM, *, first_number: int = 0) -> Store:
    """A store after a program; the zeros ahead are cut, which would only cost time."""
    run = Runner(path, QuickFileSystem(), _number=first_number)
    run.take_over()
    for name in program:
        run.run(name)
    log = run.open()
    extents = {}
    for segment in log._core.segments:
        index = segment.index
        starts = [index.frame_offset(number) for number in range(index.frame_count)]
        extents[segment.path.name] = [*zip(starts, [*starts[1:], segment.frames_end], strict=True)]
    facts, head = facts_of(log), log.head()
    run.close()
    active = segments_of(path)[-1]
    active.write_bytes(active.read_bytes().rstrip(b"\0") + bytes(80))
    return Store(files_of(path), facts, extents, head)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make(tmp_path_factory.mktemp("splices") / "store")


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make(tmp_path_factory.mktemp("compacted") / "store", COMPACTED)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The same store, without its last two batches, so with the same ids."""
    path = tmp_path_factory.mktemp("older") / "store"
    return make(path, PROGRAM[:-2])


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Store]:
    """Two stores that were one, and went on with other events of the same shape."""
    folder = tmp_path_factory.mktemp("forks")
    make(folder / "one", ("batch", "put"))
    shutil.copytree(folder / "one", folder / "other")
    one, other = (
        make(folder / name, ("roll", "put", "roll", "put"), first_number=first_number)
        for name, first_number in (("one", 100), ("other", 200))
    )
    return one, other


def lay(path: Path, files: Files) -> Path:
    """The files in a new folder."""
    shutil.rmtree(path, ignore_errors=True)
    for name, content in files.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return path


def complaint(path: Path, files: Files, facts: list[Fact]) -> str:
    """What is wrong with what reader and writer make of these files; "" = nothing."""
    for read_only in (True, False):
        lay(path, files)
        before = files_of(path)
        try:
            with Log.open(path, fs=QuickFileSystem(), read_only=read_only) as log:
                found = facts_of(log)
        except LogError:
            if files_of(path) | {"LOCK": b"", "TIP": b""} != before | {"LOCK": b"", "TIP": b""}:
                return f"read_only={read_only}: refused, and files were changed"
            continue
        if found != facts:
            return f"read_only={read_only}: {len(found)} events, other than the {len(facts)}"
    return ""


def frame_splices(store: Store) -> Iterator[tuple[str, Files]]:
    """Frames of each segment left out, doubled, exchanged, or in the place of others."""
    for name in store.segments:
        data, extents = store.files[name], store.extents[name]
        for low, high in extents:
            frame = data[low:high]
            yield f"{name}: without {low}", {name: data[:low] + data[high:]}
            yield f"{name}: {low} zeroed", {name: data[:low] + bytes(high - low) + data[high:]}
            yield f"{name}: {low} doubled", {name: data[:high] + frame + data[high:]}
            end = extents[-1][1]
            yield f"{name}: {low} again at the end", {name: data[:end] + frame + data[end:]}
            for other, (first, last) in ((n, e) for n in store.segments for e in store.extents[n]):
                part = store.files[other][first:last]
                if (other, first) != (name, low):
                    yield (
                        f"{name}: {other} {first} at {low}",
                        {name: data[:low] + part + data[high:]},
                    )


def file_splices(store: Store) -> Iterator[tuple[str, Files]]:
    """Segments exchanged, cut at every frame, joined, emptied, or under another's name."""
    names = store.segments
    for one, other in permutations(names, 2):
        yield f"{one} is {other}", {one: store.files[other]}
        yield f"{one} and {other}", {one: store.files[one] + store.files[other]}
        yield f"{one} and {other} exchanged", {one: store.files[other], other: store.files[one]}
    for name in names:
        for low, _ in store.extents[name]:
            yield f"{name} ends at {low}", {name: store.files[name][:low]}
        yield f"{name} is empty", {name: b""}
        yield f"{name} is text", {name: b"notes\n" * 100}
        yield f"{name} is TIP", {name: store.files["TIP"]}
    yield "TIP is a segment", {"TIP": store.files[names[0]]}
    yield "TIP is empty", {"TIP": b""}
    yield "a far segment", {"seg-00000000000000000900-000000.log": store.files[names[-1]]}
    yield (
        "a segment of generation 7",
        {names[0].replace("-000000", "-000007"): store.files[names[0]]},
    )


def manifest_splices(store: Store) -> Iterator[tuple[str, Files]]:
    """Manifests cut, longer, exchanged, under other numbers, or nothing but zeros."""
    names = sorted(name for name in store.files if name.startswith("manifest-"))
    assert len(names) == 2
    first, last = (store.files[name] for name in names)
    for name in names:
        data = store.files[name]
        yield f"{name} is empty", {name: b""}
        yield f"{name} is zeros", {name: bytes(len(data))}
        yield f"{name} twice", {name: data + data}
        yield f"{name} and a newline", {name: data + b"\n"}
        for size in range(0, len(data), 7):
            yield f"{name} of {size} bytes", {name: data[:size]}
    yield "the older one again", {names[1]: first}
    yield "the newer one as the older", {names[0]: last}
    yield "exchanged", {names[0]: last, names[1]: first}
    for number in (3, 900):
        for data in (first, last, b"", b"{}"):
            yield f"another as number {number}", {f"manifest-{number:012}.mf": data}


def first_complaint(path: Path, store: Store, cases: Iterator[tuple[str, Files]]) -> str:
    """What the first case with something wrong shows."""
    for what, changed in cases:
        if wrong := complaint(path, store.files | changed, store.facts):
            return f"{what}: {wrong}"
    return ""


def test_no_splice_of_frames_shows_other_events(store: Store, tmp_path: Path) -> None:
    assert first_complaint(tmp_path / "store", store, frame_splices(store)) == ""


def test_no_splice_of_files_shows_other_events(store: Store, tmp_path: Path) -> None:
    assert first_complaint(tmp_path / "store", store, file_splices(store)) == ""


@pytest.mark.parametrize("splices", [frame_splices, file_splices, manifest_splices])
def test_no_splice_of_a_compacted_store_shows_other_events(
    compacted: Store, tmp_path: Path, splices: Callable[[Store], Iterator[tuple[str, Files]]]
) -> None:
    assert first_complaint(tmp_path / "store", compacted, splices(compacted)) == ""


@pytest.mark.parametrize("number", [0, 1])
def test_manifest_that_is_gone_is_no_other_past(
    compacted: Store, tmp_path: Path, number: int
) -> None:
    files = dict(compacted.files)
    del files[sorted(name for name in files if name.startswith("manifest-"))[number]]
    assert complaint(tmp_path / "store", files, compacted.facts) == ""


def test_files_of_another_store_are_refused(store: Store, tmp_path: Path) -> None:
    other = make(tmp_path / "other")
    assert other.segments == store.segments
    cases = [
        (f"foreign {', '.join(sorted(names))}", {name: other.files[name] for name in names})
        for names in ([one] for one in [*store.segments, "TIP"])
    ]
    assert first_complaint(tmp_path / "store", store, iter(cases)) == ""


def fork_splices(forks: tuple[Store, Store]) -> Iterator[tuple[str, Files]]:
    """A segment of the other one, but for the last, which nothing but a kept head can tell."""
    one, other = forks
    assert one.segments == other.segments
    for name in one.segments[:-1]:
        if one.files[name] != other.files[name]:
            yield f"{name} of the fork", {name: other.files[name]}


def test_segment_of_a_copy_that_went_its_own_way_is_refused(
    forks: tuple[Store, Store], tmp_path: Path
) -> None:
    assert len(list(fork_splices(forks))) >= 2
    assert first_complaint(tmp_path / "store", forks[0], fork_splices(forks)) == ""


def test_files_of_other_names_are_left_alone(store: Store, tmp_path: Path) -> None:
    strange = {"notes.txt": b"mine", "seg-1.log": b"x", "tmp/mine": b"x", "seg-1-2.log~": b""}
    path = tmp_path / "store"
    assert complaint(path, store.files | strange, store.facts) == ""
    assert files_of(path).items() >= strange.items()


def test_older_witness_costs_nothing(store: Store, older: Store, tmp_path: Path) -> None:
    cases = [("older TIP", {"TIP": older.files["TIP"]}), ("a TIP of zeros", {"TIP": bytes(1024)})]
    path = tmp_path / "store"
    assert first_complaint(path, store, iter(cases)) == ""
    with Log.open(lay(path, store.files | dict(cases[0][1]))) as log:
        assert facts_of(log) == store.facts


def test_older_copy_of_the_last_segment_is_a_loss_with_a_name(store: Store, tmp_path: Path) -> None:
    name = store.segments[-1]
    end = store.extents[name][-2][1]
    path = lay(tmp_path / "store", store.files | {name: store.files[name][:end] + bytes(200)})
    for read_only in (True, False):
        with pytest.raises(LogError, match="TIP"):
            Log.open(path, read_only=read_only)


def test_store_that_was_put_back_whole_is_found_by_a_head_that_was_kept(
    store: Store, tmp_path: Path
) -> None:
    name = store.segments[-1]
    end = store.extents[name][-2][1]
    files = store.files | {name: store.files[name][:end] + bytes(200)}
    del files["TIP"]
    path = lay(tmp_path / "store", files)
    with Log.open(path, read_only=True) as log:
        assert facts_of(log) == store.facts[: log.refresh()]
        assert log.refresh() < len(store.facts)
    assert not verify_store(PosixFileSystem(), path)
    assert [one.damage for one in verify_store(PosixFileSystem(), path, store.head)] == [True]


def forgets_the_witness() -> AbstractContextManager[object]:
    return mock.patch.object(_tail, "judge_end", lambda **_: CLEAN)


def does_not_compare_chains_of_segments() -> AbstractContextManager[object]:
    return mock.patch.object(_load, "check_place", lambda *_: None)


@pytest.mark.parametrize("plant", [forgets_the_witness, does_not_compare_chains_of_segments])
def test_splices_tell_of_a_planted_mistake(
    store: Store,
    forks: tuple[Store, Store],
    tmp_path: Path,
    plant: Callable[[], AbstractContextManager[object]],
) -> None:
    with plant():
        wrong = first_complaint(tmp_path / "store", forks[0], fork_splices(forks))
        assert wrong or first_complaint(tmp_path / "store", store, file_splices(store))
