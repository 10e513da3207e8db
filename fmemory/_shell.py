"""Words of a command line that a person can copy from a terminal."""

from __future__ import annotations

from shlex import quote

__all__ = ["shell_word"]


def shell_word(text: str) -> str:
    """The text as one word for a shell.

    What a terminal would not show, or would obey, is written in the form `$'…'`, which bash, zsh
    and ksh read.

    >>> shell_word("login"), shell_word("it's"), shell_word("a\\nb")
    ('login', '\\'it\\'"\\'"\\'s\\'', "$'a\\\\x0ab'")
    """
    if text.isprintable():
        return quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    # Byte by byte, as `\\u` depends on the shell's locale.
    return "".join(f"\\x{byte:02x}" for byte in character.encode())
