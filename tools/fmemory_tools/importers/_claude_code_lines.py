"""Lines of Claude Code's session files, checked, and the sessions that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from fmemory_tools.importers._lines import Malformed, as_object, as_text, as_time, optional_text
from fmemory_tools.importers.plan import BadSource

if TYPE_CHECKING:
    from fmemory._json_values import JsonObject

MESSAGE_TYPES = frozenset({"user", "assistant"})


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file. `api` is the API message in it, its own or that of a sub-agent."""

    number: int
    raw: bytes
    value: JsonObject
    kind: str
    time: datetime | None
    api: JsonObject | None
    agent_id: str | None

    @property
    def is_meta(self) -> bool:
        """Text that the harness put in, not a person."""
        return self.value.get("isMeta") is True

    @property
    def uuid(self) -> str | None:
        """The line's own id."""
        return optional_text(self.value.get("uuid"))


@dataclass(slots=True)
class Thread:
    """The lines of one session: a main one, or a sub-agent with its parent's thread."""

    session_id: str
    parent: Thread | None = None
    agent_id: str | None = None
    lines: list[Line] = field(default_factory=list)

    @property
    def began_at(self) -> datetime | None:
        """The first time that any of the lines states."""
        return min((line.time for line in self.lines if line.time is not None), default=None)

    @property
    def ended_at(self) -> datetime | None:
        """The last time that any of the lines states."""
        return max((line.time for line in self.lines if line.time is not None), default=None)


def read_line(number: int, raw: bytes, value: JsonObject) -> Line:
    """The line of a JSON object; lines of types that are not known pass.

    Raises:
        Malformed: It has no type, or its time or API message is not one.
    """
    kind = as_text(value.get("type"), "type")
    stamp = value.get("timestamp")
    if stamp is None and isinstance(value.get("snapshot"), dict):
        stamp = as_object(value["snapshot"], "snapshot").get("timestamp")
    time = None if stamp is None else as_time(stamp, "timestamp")
    agent_id = optional_text(value.get("agentId"))
    api: JsonObject | None = None
    if kind in MESSAGE_TYPES:
        api = _api_message(value, "message", kind)
    elif kind == "progress":
        data = value.get("data")
        if isinstance(data, dict) and isinstance(data.get("message"), dict):
            inner = as_object(data["message"], "data.message")
            api = _api_message(inner, "data.message.message", inner.get("type"))
            agent_id = as_text(data.get("agentId"), "data.agentId")
            if inner.get("timestamp") is not None:
                time = as_time(inner["timestamp"], "data.message.timestamp")
    return Line(number, raw, value, kind, time, api, agent_id)


def _api_message(holder: JsonObject, name: str, kind: object) -> JsonObject:
    message = as_object(holder.get("message"), name)
    if message.get("role") != kind:
        raise Malformed(f"{name}.role: expected {kind!r}, got {message.get('role')!r}")
    content = message.get("content")
    if isinstance(content, list):
        for index, block in enumerate(content):
            as_text(
                as_object(block, f"{name}.content[{index}]").get("type"),
                f"{name}.content[{index}].type",
            )
    elif not isinstance(content, str):
        raise Malformed(f"{name}.content: expected a string or an array of blocks")
    return message


def threads_of(lines: Sequence[Line], fallback: str) -> list[Thread]:
    """The sessions of the file, main ones first, each with its lines in file order."""
    roots = _side_chain_roots(lines)
    mains: dict[str, Thread] = {}
    agents: dict[tuple[str, str], Thread] = {}
    stated = (optional_text(line.value.get("sessionId")) for line in lines)
    current = next((one for one in stated if one is not None), fallback)
    for line in lines:
        current = optional_text(line.value.get("sessionId")) or current
        agent_id = line.agent_id or roots.get(line.number)
        if agent_id is None:
            mains.setdefault(current, Thread(current)).lines.append(line)
            continue
        key = (current, agent_id)
        if key not in agents:
            parent = mains.setdefault(current, Thread(current))
            agents[key] = Thread(f"{current}.agent-{agent_id}", parent, agent_id)
        agents[key].lines.append(line)
    # A sub-agent's own file names its parent but holds none of its lines.
    return [*(one for one in mains.values() if one.lines), *agents.values()]


def _side_chain_roots(lines: Sequence[Line]) -> dict[int, str]:
    """Line number → name of its side chain, for side chains that carry no agent id."""
    chain_of: dict[str, str] = {}
    roots: dict[int, str] = {}
    for line in lines:
        if line.value.get("isSidechain") is not True or line.agent_id is not None:
            continue
        parent = optional_text(line.value.get("parentUuid"))
        uuid = line.uuid or f"line-{line.number}"
        root = chain_of.get(parent, uuid[:8]) if parent is not None else uuid[:8]
        chain_of[uuid] = root
        roots[line.number] = root
    return roots


def rename_threads(threads: Sequence[Thread], session_id: str, name: str) -> list[Thread]:
    """The threads with another name for their main session, which must be one.

    Raises:
        BadSource: The file holds several sessions.
    """
    mains = {
        thread.session_id if thread.parent is None else thread.parent.session_id
        for thread in threads
    }
    if len(mains) > 1:
        raise BadSource(
            name, f"holds {len(mains)} sessions, so one name for all of them is not possible"
        )
    for thread in threads:
        if thread.parent is not None:
            thread.parent.session_id = session_id
            thread.session_id = f"{session_id}.agent-{thread.agent_id}"
        else:
            thread.session_id = session_id
    return list(threads)


def api_of(line: Line) -> JsonObject:
    """The API message of a line that has one."""
    assert line.api is not None, "only lines with an API message are merged into messages"
    return line.api
