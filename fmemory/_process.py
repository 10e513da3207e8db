"""Which process began a run: it stands in the id of the event that begins it.

So whoever reads the log on the same machine can look whether that process still lives, whatever
the actor calls itself.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import NamedTuple

__all__ = ["ProcessName", "process_event_id", "process_of"]

_EVENT_ID = re.compile(r"process:(?P<host>.*):(?P<pid>[0-9]{1,9}):[0-9a-f]{16}")


class ProcessName(NamedTuple):
    """A process of a machine."""

    host: str
    pid: int


def process_event_id() -> str:
    """An id for an event that this process writes; no other event has it."""
    host = socket.gethostname().encode("utf-8", "replace").decode("utf-8")
    return f"process:{host}:{os.getpid()}:{secrets.token_hex(8)}"


def process_of(event_id: str | None) -> ProcessName | None:
    """The process that an event's id names; None if it names none.

    >>> process_of("process:vm:4711:0123456789abcdef")
    ProcessName(host='vm', pid=4711)
    >>> process_of("claude-code:1:0123456789abcdef")
    """
    found = None if event_id is None else _EVENT_ID.fullmatch(event_id)
    return None if found is None else ProcessName(found["host"], int(found["pid"]))
