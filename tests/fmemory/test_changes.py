"""What each event of a session changed: applied in order, deltas give the state of any moment."""

from __future__ import annotations

import random
from pathlib import Path

import fmemory
from fmemory import (
    FeatureRecord,
    JsonObject,
    LogBackend,
    Message,
    NewEvent,
    ProgressEntry,
    RunCheckpoint,
    SessionManifest,
    ToolCall,
)
from fmemory.replay import Change, Delta, Part, changes


class Replayed:
    """State that is told by deltas alone."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, object]] = {}

    def apply(self, change: Change) -> None:
        for delta in change.deltas:
            part = self.parts.setdefault(delta.part, {})
            if delta.part not in {"message", "origin"}:
                had = part.get(delta.name, 0 if delta.part == "transcript" else None)
                assert delta.part == "order" or had == delta.before
            if delta.after is None:
                part.pop(delta.name, None)
            else:
                part[delta.name] = delta.after
            if delta.part == "order":
                assert isinstance(delta.after, list)
                features = self.parts["feature"]
                self.parts["feature"] = {str(one): features[str(one)] for one in delta.after}

    def part(self, name: str) -> dict[str, object]:
        return self.parts.get(name, {})

    def features(self) -> list[object]:
        passes = self.part("passes")
        return [
            {"id": name, **one, "passes": passes[name]}  # type: ignore[dict-item]
            for name, one in self.part("feature").items()
        ]


def compare(memory: LogBackend, session_id: str) -> None:
    """Deltas, applied one event after the other, give the state of each moment."""
    replayed = Replayed()
    for change in changes(memory, session_id):
        replayed.apply(change)
        view = memory.at(change.seq)
        state = view.load_bootstrap_state(session_id).to_dict()
        manifest = {k: v for k, v in (state["manifest"] or {}).items() if v is not None}  # type: ignore[union-attr]
        assert replayed.part("manifest") == manifest
        assert replayed.features() == state["feature_list"]
        assert list(replayed.part("progress").values()) == state["recent_progress"]
        assert list(replayed.part("checkpoint").values()) == state["checkpoints"]
        count = len(view.load_transcript_messages(session_id))
        assert replayed.part("transcript").get("messages", 0) == count


def write_anything(memory: LogBackend, session_id: str, draw: random.Random) -> None:
    session = memory.session(session_id)
    ids = [f"f{n}" for n in range(5)]
    draw.shuffle(ids)
    features = [
        FeatureRecord(one, "c", f"does {draw.randrange(3)}", passes=draw.random() < 0.5)
        for one in ids[: draw.randrange(6)]
    ]
    manifest = SessionManifest(session_id, "main", f"objective {draw.randrange(3)}")
    match draw.randrange(11):
        case 0:
            session.initialize_session_if_missing(
                manifest, features, ProgressEntry("r", "begun"), RunCheckpoint.started("r")
            )
        case 1:
            session.save_manifest(manifest)
        case 2:
            session.replace_feature_list(features)
        case 3 | 4:
            known = session.load_bootstrap_state().feature_list
            if known:
                session.update_feature_pass(draw.choice(known).id, draw.random() < 0.5)
        case 5:
            session.append_progress_entry(ProgressEntry("r", "went on"))
        case 6:
            session.record_run_checkpoint(RunCheckpoint.started("r").failed("broke"))
        case 7 | 8:
            messages = [Message("user", "hello") for _ in range(draw.randrange(4))]
            session.append_transcript_messages(messages)
        case 9:
            memory.append(("session", session_id), [NewEvent("tool.ran", {"exit": 0})])
        case _:
            if draw.random() < 0.4:
                memory.delete_session(session_id)
            else:
                session.truncate_transcript(keep=draw.randrange(4))


def test_deltas_applied_in_order_give_the_state_of_every_moment() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    with fmemory.open(":memory:") as memory:
        for _ in range(120):
            write_anything(memory, draw.choice(["a", "b"]), draw)
        compare(memory, "a")
        compare(memory, "b")
        assert len(changes(memory, "a")) > 20


def test_a_forks_deltas_begin_with_where_it_came_from_and_what_it_copied() -> None:
    with fmemory.open(":memory:") as memory:
        session = memory.session("a")
        session.initialize_session_if_missing(
            SessionManifest("a", "main", "go"), [FeatureRecord("f", "c", "d", passes=True)]
        )
        session.append_transcript_messages([Message("user", "one"), Message("user", "two")])
        memory.fork_session("a", "b")
        first, second = changes(memory, "b")
        compare(memory, "b")

    assert first.deltas[0] == Delta(Part.ORIGIN, "session", None, {"session_id": "a", "seq": 2})
    assert Delta(Part.PASSES, "f", None, True) in first.deltas
    assert second.deltas[0] == Delta(Part.TRANSCRIPT, "messages", 0, 2)


def test_a_flip_is_one_small_delta_with_who_did_it_and_why() -> None:
    with fmemory.open(":memory:") as memory:
        session = memory.session("a")
        session.replace_feature_list([FeatureRecord("form", "ui", "a form")])
        with fmemory.audit(actor="ada", run_id="r1", reason="tests passed"):
            session.update_feature_pass("form", True)
        flip = changes(memory, "a")[1]

    assert flip.deltas == (Delta(Part.PASSES, "form", False, True),)
    assert flip.deltas[0].is_flip
    assert (flip.actor, flip.run_id, flip.reason) == ("ada", "r1", "tests passed")


def test_a_large_message_is_its_first_words_and_its_length() -> None:
    calls = [ToolCall("c1", "bash", {"command": "ls"})]
    with fmemory.open(":memory:") as memory:
        memory.session("a").append_transcript_messages(
            [Message("assistant", "x" * 1_000_000, tool_calls=calls)]
        )
        (change,) = changes(memory, "a")

    count, message = change.deltas
    assert count == Delta(Part.TRANSCRIPT, "messages", 0, 1)
    expected: JsonObject = {
        "role": "assistant",
        "text": "x" * 200,
        "characters": 1_000_000,
        "tools": ["bash"],
    }
    assert message == Delta(Part.MESSAGE, "1", None, expected)


def test_erased_and_forgotten_events_are_there_and_change_nothing(tmp_path: Path) -> None:
    with fmemory.open(tmp_path / "store") as memory:
        session = memory.session("a")
        session.save_manifest(SessionManifest("a", "main", "secret"))
        session.append_transcript_messages([Message("user", "secret")])
        memory.delete_session("a")
        session.append_progress_entry(ProgressEntry("r", "after"))
        memory.compact(forget_before=2)
        found = changes(memory, "a")

    assert [(one.seq, one.type, one.erased) for one in found] == [
        (1, "event_forgotten", True),
        (2, "transcript_appended", True),
        (3, "session_deleted", False),
        (4, "progress_appended", False),
    ]
    assert [len(one.deltas) for one in found] == [0, 0, 0, 1]


def test_a_session_that_never_was_has_no_changes() -> None:
    with fmemory.open(":memory:") as memory:
        assert changes(memory, "nobody") == ()
