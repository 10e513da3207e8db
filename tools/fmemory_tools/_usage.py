"""Wrong usage told in one line of our own words, and help without the parser's type names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fmemory_tools._failure import USAGE, Failure, reported


class Misused(typer.BadParameter):
    """A value that an argument or option does not take, in words that name it."""


class Command(TyperCommand):
    """A command whose help shows metavars as they are."""

    # typer has the parser's Context class in different places, depending on its version.
    def get_help(self, ctx: Any) -> str:
        """The help, with `SEQ` where the parser would have `{SEQ}` and `SEQ <int>`."""
        return _plain(super().get_help(ctx))


class Commands(TyperGroup):
    """The commands in the order in which they were added, with errors told in one line."""

    def get_help(self, ctx: Any) -> str:
        """The help, with metavars as they are."""
        return _plain(super().get_help(ctx))

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """As the parser does, with wrong options before the command told in one line."""
        with reported(), _in_our_words(lambda: "fmemory"):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what goes wrong is told in one line."""

        def command() -> str:
            return " ".join(filter(None, [ctx.command_path, ctx.invoked_subcommand]))

        with reported(), _in_our_words(command):
            return super().invoke(ctx)


def whole_number(name: str, least: int = 1) -> Callable[[str | int], int]:
    """A parser of whole numbers for an argument or option of this name."""

    def parse(value: str | int) -> int:
        text = str(value).strip()
        if re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII) is None:
            raise Misused(f"expected a whole number for {name}, got {value!r}")
        if int(text) < least:
            raise Misused(f"expected {least} or more for {name}, got {text}")
        return int(text)

    return parse


def existing_file(name: str) -> Callable[[str | Path], Path]:
    """A parser of paths for an argument or option of this name: there must be a file."""

    def parse(value: str | Path) -> Path:
        path = Path(value)
        if path.is_dir():
            raise Misused(f"expected a file for {name}, and {value} is a folder")
        if not path.exists():
            raise Misused(f"there is no file {value}")
        return path

    return parse


@contextmanager
def _in_our_words(command: Callable[[], str]) -> Iterator[None]:
    """The parser's errors as failures. `command` names the command where the error does not."""
    try:
        yield
    except Exception as error:
        # The parser's classes live in click or in typer, depending on its version.
        kinds = [one.__name__ for one in type(error).__mro__]
        if "UsageError" not in kinds or "NoArgsIsHelpError" in kinds:
            raise
        context = getattr(error, "ctx", None)
        path = command() if context is None else context.command_path
        raise Failure(f"{_words(error, kinds)}; see {path} --help", USAGE, teller=path) from None


def _words(error: Any, kinds: Sequence[str]) -> str:
    message = str(getattr(error, "message", ""))
    quoted = re.search(r"'(.+?)'", message)
    if isinstance(error, Misused):
        return message
    if "MissingParameter" in kinds:
        return f"{_label(error.param)} is missing"
    if "NoSuchOption" in kinds:
        alike = [one for one in error.possibilities or () if one.startswith(error.option_name[:4])]
        meant = f" (did you mean {' or '.join(alike)}?)" if alike else ""
        return f"there is no option {error.option_name}{meant}"
    if "BadOptionUsage" in kinds:
        takes = "needs a value" if "requires" in message else "takes no value"
        return f"{error.option_name} {takes}"
    if message.startswith("No such command") and quoted:
        meant = message.partition("Did you mean ")[2].rstrip("?.")
        return f"there is no command {quoted[0]}" + (f" (did you mean {meant}?)" if meant else "")
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message)
    if extra:
        is_there = os.path.exists(extra[1])  # noqa: PTH110 - pathlib raises for some texts
        hint = "; a store is named with -s" if is_there else ""
        return f"expected fewer arguments: {extra[1]} is too much{hint}"
    if message.startswith("Missing command"):
        return "expected a command, got none"
    if getattr(error, "param", None) is not None:
        return f"{_label(error.param)}: {message.rstrip('.')}"
    return message.rstrip(".")


def _label(param: Any) -> str:
    """An option's name, or the argument's metavar."""
    if param.param_type_name == "option":
        return str(param.opts[-1])
    return str(param.metavar or param.name.upper())


def _plain(text: str) -> str:
    usage, rest, others = text.partition("\n")
    usage = re.sub(r"\{([A-Z|]+)\}", r"\1", usage)
    usage = re.sub(r"\[(\[[A-Z|]+\])\]", r"\1", usage)
    # The width stays, so that lines below are still in their column.
    others = re.sub(
        r"(?m)^(  [\[\]A-Z|]+)( <[A-Za-z ]+>)(?=  )", lambda m: m[1] + " " * len(m[2]), others
    )
    return usage + rest + others
