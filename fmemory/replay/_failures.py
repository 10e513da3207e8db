"""Whether a tool call failed: what its answer is marked with, else what its text says of itself.

Providers mark failed tool results. SWE-agent's files mark nothing: there the harness's own
sentences tell, with which the text begins. Output that merely mentions an error is no failure.
"""

from __future__ import annotations

import re

import msgspec

from fmemory._json_values import JsonValue

__all__ = ["STEP_TYPE", "Answer", "failure_in", "is_failed_step", "step_of"]

STEP_TYPE = "swe_agent.step"
"""The events in which an import keeps the steps of SWE-agent's trajectory."""
_SENTENCES = re.compile(
    r"\A\s*(?:OBSERVATION:\s*)?("
    r"EXECUTION TIMED OUT"
    r"|COMMAND FAILED TO EXECUTE"
    r"|Wrong flag!"
    r"|Invalid command"
    r"|Your proposed edit has introduced new syntax error"
    r"|Your edit was not applied"
    r"|Your command was blocked"
    r"|Operation '[^'\n]*' is not supported by this environment"
    r"|The command '[^\n]*' was cancelled because it took more than"
    r"|(?:/bin/)?(?:ba)?sh: [^\n]*: (?:command not found|No such file or directory)"
    r")"
)
_LOOKED_AT = 4096
_match = _SENTENCES.match


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer to a tool call.

    Attributes:
        call_id: The call; empty where the harness names none.
        words: The first characters of its text.
        is_error: It is marked as failed.
        failure: What its text says of a failure, where it is not marked.
    """

    call_id: str
    words: str
    is_error: bool = False
    failure: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the call failed, marked or by its own words."""
        return self.is_error or self.failure is not None


def failure_in(text: str) -> str | None:
    """The sentence with which a harness says that the call failed; None if it does not.

    >>> failure_in("\\nEXECUTION TIMED OUT\\n(Open file: n/a)")
    'EXECUTION TIMED OUT'
    """
    found = _match(text, 0, _LOOKED_AT)
    return None if found is None else found.group(1)


def is_failed_step(event_type: str, data: JsonValue) -> bool:
    """Whether an event is a step that failed, by what was observed.

    >>> timed_out = {"value": {"action": "ls", "observation": "EXECUTION TIMED OUT"}}
    >>> is_failed_step(STEP_TYPE, timed_out), is_failed_step("other.step", timed_out)
    (True, False)
    """
    step = step_of(data) if event_type == STEP_TYPE else None
    return step is not None and failure_in(step[1]) is not None


def step_of(data: JsonValue) -> tuple[str, str] | None:
    """Action and observation of a step of SWE-agent's trajectory, as the import keeps it."""
    value = data.get("value") if isinstance(data, dict) else None
    if not isinstance(value, dict):
        return None
    action, observation = value.get("action"), value.get("observation")
    if not isinstance(action, str) or not isinstance(observation, str):
        return None
    return action.strip(), observation
