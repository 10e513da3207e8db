"""Sessions: what a harness needs to start again where it stopped, and the transcript.

The artifacts are those of long-running agents: a manifest, a checklist of features, a progress log
and run checkpoints. Times are aware and kept in UTC; ids are plain strings. Every model checks
itself when built and keeps nothing of the caller's that could change later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias, cast

import msgspec

from fmemory._checks import wrong_type
from fmemory._json_values import JsonObject, JsonValue, check_text
from fmemory._model import Model, Rule, check_int
from fmemory._receipt import check_length
from fmemory.errors import ContractError, Reason

__all__ = [
    "SESSION_ID_CHARACTERS_MAX",
    "BootstrapState",
    "FeatureRecord",
    "InitCommand",
    "InitPlan",
    "InitShell",
    "InitShellScript",
    "InitStep",
    "Message",
    "ProgressEntry",
    "Role",
    "RunCheckpoint",
    "RunStatus",
    "SessionInfo",
    "SessionManifest",
    "SessionPage",
    "ToolCall",
    "check_features",
    "check_session_id",
]

SESSION_ID_CHARACTERS_MAX = 4096


def check_session_id(value: object, where: str = "session_id") -> str:
    """The value itself, when it can name a session: any non-empty str.

    Raises:
        ContractError: It cannot.
    """
    try:
        return check_length(check_text(value), SESSION_ID_CHARACTERS_MAX)
    except ContractError as error:
        raise error.within(where) from None


def check_features(features: Iterable[object]) -> tuple[FeatureRecord, ...]:
    """The feature list as a tuple; ids are unique in it.

    Raises:
        ContractError: Not FeatureRecords, or an id is named twice.
    """
    if isinstance(features, (str, bytes)) or not isinstance(features, Iterable):
        raise ContractError(
            f"expected a sequence of FeatureRecord, got {type(features).__name__}"
            + ("; put one into a list" if isinstance(features, FeatureRecord) else ""),
            where="feature_list",
            reason=Reason.WRONG_TYPE,
        )
    checked = tuple(features)
    seen: set[str] = set()
    for index, feature in enumerate(checked):
        where = f"feature_list[{index}]"
        if not isinstance(feature, FeatureRecord):
            raise ContractError(
                f"expected FeatureRecord, got {type(feature).__name__}",
                where=where,
                reason=Reason.WRONG_TYPE,
            )
        if feature.id in seen:
            raise ContractError(
                f"expected every feature id once, got {feature.id!r} twice",
                where=f"{where}.id",
                reason=Reason.BAD_VALUE,
            )
        seen.add(feature.id)
    return cast("tuple[FeatureRecord, ...]", checked)


def _check_name(value: object) -> str:
    return check_length(check_text(value), SESSION_ID_CHARACTERS_MAX)


def _check_version(value: object) -> int:
    version = check_int(value)
    if version < 1:
        raise ContractError(f"expected 1 or more, got {version}", reason=Reason.OUT_OF_RANGE)
    return version


def _now() -> datetime:
    return datetime.now(UTC)


_Name: TypeAlias = Annotated[
    str, Rule(_check_name, {"minLength": 1, "maxLength": SESSION_ID_CHARACTERS_MAX})
]


class InitShell(StrEnum):
    """The shell a start-up script is for."""

    BASH = "bash"
    SH = "sh"
    PWSH = "pwsh"
    CMD = "cmd"


class InitStep(Model, frozen=True, tag_field="kind"):
    """One step that prepares a workspace: a command or a shell script."""

    @staticmethod
    def command(program: str, args: Sequence[str] = ()) -> InitCommand:
        """A step that runs a program with arguments, without a shell.

        >>> InitStep.command("make", ["test"]).args
        ('test',)
        """
        return InitCommand(program, cast("tuple[str, ...]", args))

    @staticmethod
    def shell(shell: InitShell, script: str) -> InitShellScript:
        """A step that gives a script to a shell.

        >>> InitStep.shell(InitShell.SH, "make test").script
        'make test'
        """
        return InitShellScript(shell, script)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """The step of plain data; `kind` says which.

        Raises:
            ContractError: A field is unknown, missing or breaks a rule; `where` is its path.
        """
        if cls is not InitStep:
            return super().from_dict(_without_kind(data, cls))
        kinds: dict[object, type[InitStep]] = {"command": InitCommand, "shell": InitShellScript}
        kind = data.get("kind") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            raise ContractError(
                f"expected 'command' or 'shell', got {kind!r}",
                where="kind",
                reason=Reason.BAD_VALUE,
                owner="InitStep",
            )
        return cast("Self", kinds[kind].from_dict(data))

    def to_dict(self) -> JsonObject:
        """Plain JSON data; `kind` says which step it is."""
        return {"kind": cast("str", self.__struct_config__.tag), **super().to_dict()}

    @classmethod
    def _schema(cls, defs: JsonObject) -> JsonObject:
        if cls is InitStep:
            return {"anyOf": [InitCommand._schema(defs), InitShellScript._schema(defs)]}
        plain = super()._schema(defs)
        properties = cast("JsonObject", plain["properties"])
        required = cast("list[JsonValue]", plain["required"])
        kind: JsonObject = {"const": cast("str", cls.__struct_config__.tag)}
        return {
            **plain,
            "properties": {"kind": kind, **properties},
            "required": ["kind", *required],
        }


class InitCommand(InitStep, frozen=True, tag="command"):
    """A program and its arguments, run without a shell."""

    program: _Name
    args: tuple[str, ...] = ()


class InitShellScript(InitStep, frozen=True, tag="shell"):
    """A script and the shell it is for."""

    shell: InitShell  # type: ignore[assignment]  # the field hides InitStep.shell on purpose
    script: str


class InitPlan(Model, frozen=True):
    """The steps that prepare a workspace, in order."""

    steps: tuple[InitStep, ...] = ()

    if TYPE_CHECKING:  # any sequence may be given; what is kept is a tuple

        def __init__(self, steps: Sequence[InitStep] = ()) -> None: ...


class SessionManifest(Model, frozen=True):
    """What a session is about and where it stands.

    Attributes:
        session_id: The session's own id.
        active_branch: Branch of the work.
        current_objective: What is being done, in words.
        schema_version: Of the caller's own; 1 or more.
        harness_version: Of the caller's harness.
        last_known_good_commit: Where to go back to; None = unknown.
        init_plan: How a workspace is prepared; None = nothing to do.
        metadata: JSON values of the caller's own.
    """

    session_id: _Name
    active_branch: str
    current_objective: str
    schema_version: Annotated[int, Rule(_check_version, {"minimum": 1})] = 1
    harness_version: str = "v0"
    last_known_good_commit: str | None = None
    init_plan: InitPlan | None = None
    metadata: JsonObject = msgspec.field(default_factory=dict)

    def with_active_branch(self, active_branch: str) -> SessionManifest:
        """A copy with another branch."""
        return msgspec.structs.replace(self, active_branch=active_branch)

    def with_current_objective(self, current_objective: str) -> SessionManifest:
        """A copy with another objective.

        >>> SessionManifest("s", "main", "start").with_current_objective("go on").active_branch
        'main'
        """
        return msgspec.structs.replace(self, current_objective=current_objective)

    def with_schema_version(self, schema_version: int) -> SessionManifest:
        """A copy with another schema version."""
        return msgspec.structs.replace(self, schema_version=schema_version)

    def with_harness_version(self, harness_version: str) -> SessionManifest:
        """A copy with another harness version."""
        return msgspec.structs.replace(self, harness_version=harness_version)

    def with_last_known_good_commit(self, commit: str | None) -> SessionManifest:
        """A copy with another commit to go back to."""
        return msgspec.structs.replace(self, last_known_good_commit=commit)

    def with_init_plan(self, init_plan: InitPlan | None) -> SessionManifest:
        """A copy with another init plan."""
        return msgspec.structs.replace(self, init_plan=init_plan)

    def with_metadata(self, metadata: JsonObject) -> SessionManifest:
        """A copy with other metadata, instead of the present, not merged."""
        return msgspec.structs.replace(self, metadata=metadata)


class FeatureRecord(Model, frozen=True):
    """One item of the checklist.

    Attributes:
        id: Unique in its list.
        category: A word to group by.
        description: What must work.
        steps: How to see that it works.
        passes: Whether it does.
    """

    id: _Name
    category: str
    description: str
    steps: tuple[str, ...] = ()
    passes: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            id: str,  # noqa: A002 - the field's name
            category: str,
            description: str,
            steps: Sequence[str] = (),
            passes: bool = False,
        ) -> None: ...


class ProgressEntry(Model, frozen=True):
    """What a run did, in words."""

    run_id: _Name
    summary: str
    created_at: datetime = msgspec.field(default_factory=_now)


class RunStatus(StrEnum):
    """How far a run is."""

    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class RunCheckpoint(Model, frozen=True):
    """The state of one run at a moment; a run usually has two, at its start and end.

    Attributes:
        run_id: The run.
        started_at: When it began.
        completed_at: When it ended; None = it has not.
        status: How far it is.
        note: What should be known of it.
    """

    run_id: _Name
    started_at: datetime
    completed_at: datetime | None = None
    status: RunStatus = RunStatus.IN_PROGRESS
    note: str | None = None

    @classmethod
    def started(cls, run_id: str) -> Self:
        """A checkpoint of a run that begins now.

        >>> RunCheckpoint.started("run-1").succeeded("all tests pass").status.value
        'succeeded'
        """
        return cls(run_id, _now())

    def succeeded(self, note: str | None = None) -> Self:
        """A copy that ended well, now."""
        return self._ended(RunStatus.SUCCEEDED, note)

    def failed(self, note: str | None = None) -> Self:
        """A copy that failed, now."""
        return self._ended(RunStatus.FAILED, note)

    def _ended(self, status: RunStatus, note: str | None) -> Self:
        # A clock that was set back must not end a run before it began.
        completed_at = max(_now(), self.started_at)
        kept = self.note if note is None else note
        return msgspec.structs.replace(self, completed_at=completed_at, status=status, note=kept)


class BootstrapState(Model, frozen=True):
    """Everything a harness needs to go on with a session; empty for an unknown one.

    Attributes:
        manifest: None = the session has none yet.
        feature_list: The checklist.
        recent_progress: All progress entries, oldest first.
        checkpoints: All run checkpoints, oldest first.
        revision: Of the session's stream; 0 = unknown session.
    """

    manifest: SessionManifest | None = None
    feature_list: tuple[FeatureRecord, ...] = ()
    recent_progress: tuple[ProgressEntry, ...] = ()
    checkpoints: tuple[RunCheckpoint, ...] = ()
    revision: int = 0


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(Model, frozen=True):
    """A tool the assistant wants called.

    Attributes:
        id: What the answer refers to.
        name: The tool.
        arguments: A dict; or the text as it came, where that is not a JSON object.
    """

    id: _Name
    name: _Name
    arguments: JsonObject | str = msgspec.field(default_factory=dict)


class _MessageDetails(Model, frozen=True, kw_only=True):
    """Fields of a message that are given by name only."""

    blocks: tuple[JsonValue, ...] = ()
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool = False
    id: str | None = None
    created_at: datetime | None = None
    metadata: JsonObject = msgspec.field(default_factory=dict)


class Message(_MessageDetails, frozen=True):
    """One message of a transcript.

    Attributes:
        role: Who speaks; the enum or its value.
        content: The text.
        blocks: The provider's own content blocks, kept verbatim.
        name: Of the speaker.
        tool_calls: Tools the assistant wants called.
        tool_call_id: The call this message answers.
        is_error: Whether the answer reports a failure.
        id: The message's own id.
        created_at: When it was made; an aware time.
        metadata: JSON values of the caller's own.

    >>> Message("user", "hello").role
    <Role.USER: 'user'>
    """

    role: Role
    content: str = ""

    if TYPE_CHECKING:

        def __init__(
            self,
            role: Role | Literal["system", "user", "assistant", "tool"],
            content: str = "",
            *,
            blocks: Sequence[JsonValue] = (),
            name: str | None = None,
            tool_calls: Sequence[ToolCall] = (),
            tool_call_id: str | None = None,
            is_error: bool = False,
            id: str | None = None,  # noqa: A002 - the field's name
            created_at: datetime | None = None,
            metadata: JsonObject = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.content, (list, tuple)):
            error = wrong_type("str", self.content, ": content blocks are passed as blocks")
            raise error.within("content", owner="Message")
        super().__post_init__()


class SessionInfo(Model, frozen=True):
    """A session in a list.

    Attributes:
        session_id: The session.
        revision: Of its stream.
        last_seq: Its newest event.
        updated_at: When that was recorded; UTC.
        initialized: Whether it has a manifest.
    """

    session_id: str
    revision: int
    last_seq: int
    updated_at: datetime
    initialized: bool


class SessionPage(Model, frozen=True):
    """Sessions, the most recently written first, and the cursor of the next page."""

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None


def _without_kind(data: object, cls: type[InitStep]) -> object:
    if not isinstance(data, dict) or data.get("kind", "") != cls.__struct_config__.tag:
        return data
    return {key: value for key, value in data.items() if key != "kind"}
