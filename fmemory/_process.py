"""Which process began a run: it stands in the id of the event that begins it.

So whoever reads the log on the same machine can look whether that process still lives, whatever
the actor calls itself. Numbers of processes come again, after a restart and in containers: where
the system tells, the id also says of which boot and namespace the number is, and when the process
began.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ProcessName", "is_alive", "process_event_id", "process_of"]

_EVENT_ID = re.compile(
    r"process:(?P<host>.*):(?P<pid>[0-9]{1,9}):(?P<birth>[0-9a-f]*(?:-[0-9]+){2}|):[0-9a-f]{16}"
)
_PROC: Final = Path("/proc")
_ZOMBIE: Final = "Z"
_STATE, _STARTED = 0, 19
"""Of the fields of `/proc/PID/stat` behind the program's name."""


class ProcessName(NamedTuple):
    """A process of a machine.

    Attributes:
        host: The machine's name.
        pid: Its number there.
        birth: Boot, namespace and time in which it began, `BOOT-NAMESPACE-TICKS`; empty where the
            system does not tell.
    """

    host: str
    pid: int
    birth: str = ""


def process_event_id() -> str:
    """An id for an event that this process writes; no other event has it."""
    host = socket.gethostname().encode("utf-8", "replace").decode("utf-8")
    pid = os.getpid()
    return f"process:{host}:{pid}:{_birth(pid) or ''}:{secrets.token_hex(8)}"


def process_of(event_id: str | None) -> ProcessName | None:
    """The process that an event's id names; None if it names none.

    >>> process_of("process:vm:4711:d3adb33f-4026531836-12345:0123456789abcdef")
    ProcessName(host='vm', pid=4711, birth='d3adb33f-4026531836-12345')
    >>> process_of("claude-code:1:0123456789abcdef")
    """
    found = None if event_id is None else _EVENT_ID.fullmatch(event_id)
    return None if found is None else ProcessName(found["host"], int(found["pid"]), found["birth"])


def is_alive(process: ProcessName) -> bool | None:
    """Whether a process lives; None where that cannot be told from here."""
    if process.host != socket.gethostname() or os.name != "posix":
        return None
    if process.birth:
        boot, namespace, _ = process.birth.split("-")
        here = _birth(os.getpid())
        if here is None:
            return None
        boot_here, namespace_here, _ = here.split("-")
        if boot != boot_here:
            return False
        # Its number means another process here, or none.
        return _birth(process.pid) == process.birth if namespace == namespace_here else None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _birth(pid: int) -> str | None:
    """Boot, namespace and time in which a process began; None if it has ended, or nobody tells."""
    try:
        # The name of the program, in brackets, may hold anything.
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2]
        fields = stat.split()
        started = int(fields[_STARTED])
        return None if fields[_STATE] == _ZOMBIE else f"{_boot_and_namespace()}-{started}"
    except (OSError, ValueError, IndexError):
        return None


@functools.cache
def _boot_and_namespace() -> str:
    boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii")
    return f"{boot[:8]}-{(_PROC / 'self/ns/pid').stat().st_ino}"
