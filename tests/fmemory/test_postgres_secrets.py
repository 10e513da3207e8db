"""A password of PostgreSQL appears in no error, `repr`, log line, path or stats.

Goal: whatever fails, and whatever is printed of it, holds no password. Method: a password that
occurs nowhere else, everything that can be printed, gathered, and searched. What would have to
break: a URL quoted in a message, a driver's text passed on, a cause that shows what was left out.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from urllib.parse import quote

import pytest

from fmemory import ContractError, MemoryBackendError, StorageError
from fmemory.journals import PostgresMemoryBackend
from fmemory.journals._postgres.target import PostgresTarget

PASSWORD = "hunter/2 @ßecret:"
QUOTED = quote(PASSWORD, safe="")

URLS = {
    "slash not escaped": f"postgresql://ada:{PASSWORD}@there/notes",
    "port that is none": f"postgresql://ada@there:{QUOTED}/notes",
    "brackets": f"postgresql://ada:{QUOTED}@[there/notes",
    "other scheme": f"mysql://ada:{QUOTED}@there/notes",
    "fragment": f"postgresql://ada:hunter#{PASSWORD}@there/notes",
    "unknown parameter": f"postgresql://ada:{QUOTED}@there/notes?foo=1",
    "password as a parameter": f"postgresql://ada@there/notes?password={QUOTED}",
    "empty log": f"postgresql://ada:{QUOTED}@there/notes?log=",
    "nul": f"postgresql://ada:{QUOTED}%00@there/notes",
}


def printed(error: BaseException) -> str:
    """All that a program may print of an error and its causes; not the lines of code."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        parts += [str(seen), repr(seen), repr(vars(seen)), *traceback.format_exception_only(seen)]
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n".join([*parts, repr(pickle.loads(pickle.dumps(error)))])


def assert_no_password(text: str) -> None:
    for secret in (PASSWORD, QUOTED, "hunter", "ßecret", "%C3%9Fecret"):
        assert secret not in text


def refusal(call: Callable[[], object]) -> MemoryBackendError:
    with pytest.raises(MemoryBackendError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("name", URLS)
def test_url_that_is_refused_is_not_quoted(name: str) -> None:
    error = refusal(lambda: PostgresTarget.from_url(URLS[name]))
    assert isinstance(error, ContractError)
    assert_no_password(printed(error))


@pytest.mark.usefixtures("postgres_server")
def test_server_that_is_not_there_is_told_without_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        error = refusal(lambda: PostgresMemoryBackend("127.0.0.1", 9, "notes", "ada", PASSWORD))
    assert isinstance(error, StorageError)
    assert_no_password(printed(error))
    assert_no_password(caplog.text)


@pytest.mark.usefixtures("postgres_server")
def test_parameter_that_the_driver_refuses_is_told_without_the_password() -> None:
    error = refusal(
        lambda: PostgresMemoryBackend(
            "127.0.0.1", 9, "notes", "ada", PASSWORD, parameters={"sslmode": PASSWORD}
        )
    )
    assert_no_password(printed(error))


@pytest.mark.usefixtures("postgres_server")
def test_text_of_the_driver_that_holds_the_password_is_left_out() -> None:
    import psycopg

    from fmemory.journals._postgres.errors import connect_failed, raise_contract_error

    target = PostgresTarget("there", 5432, "notes", "ada", PASSWORD)
    for text in (f"bad conninfo password='{PASSWORD}'", f"bad URL {QUOTED}"):
        cause = psycopg.OperationalError(text)
        failed = connect_failed(cause, target)
        raised = refusal(lambda cause=cause: raise_contract_error(cause, target, "read"))  # type: ignore[misc]
        for error in (failed.error, raised):
            assert_no_password(printed(error))


def test_open_memory_prints_no_password(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = PostgresTarget.from_url(postgres_url)
    with (
        caplog.at_level(logging.DEBUG),
        PostgresMemoryBackend(
            target.host, target.port, target.database, target.username, PASSWORD
        ) as memory,
    ):
        memory.add_note("tea", id="a")
        journal = memory.journal
        shown = [repr(one) for one in (memory, journal, memory.stats(), memory.health())]
        shown += [repr(vars(memory)), repr(vars(journal)), repr(journal.table)]  # type: ignore[attr-defined]
        shown += [repr(vars(journal.table)), journal.table.path]  # type: ignore[attr-defined]
    assert_no_password("\n".join(shown))
    assert_no_password(caplog.text)


def test_target_prints_no_password() -> None:
    target = PostgresTarget.from_url(f"postgresql://ada:{QUOTED}@there/notes?log=one")
    assert target.password == PASSWORD
    assert_no_password(f"{target} {target!r} {target.path}")


def test_path_names_the_log() -> None:
    url = f"postgresql://ada:{QUOTED}@[::1]:5433/my%20notes?log=a%26b"
    assert PostgresTarget.from_url(url).path == ("postgresql://ada@[::1]:5433/my%20notes?log=a%26b")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada@there:5432/notes?log=one",
        "postgresql://ada@/notes?host=/run/pg&log=one",
        "postgresql:///notes?log=default",
        "postgresql://ada@[::1]:5433/notes?log=%C3%9F",
    ],
)
def test_path_leads_to_the_same_log(url: str) -> None:
    target = PostgresTarget.from_url(url)
    assert PostgresTarget.from_url(target.path) == target
    assert target.path == url
